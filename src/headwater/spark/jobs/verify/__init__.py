"""`verify`: account for every message."""
