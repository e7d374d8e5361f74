"""`verify`: account for every offset."""
