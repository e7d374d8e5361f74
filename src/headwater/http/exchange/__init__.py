"""One request and its response, whatever connection carries them."""
