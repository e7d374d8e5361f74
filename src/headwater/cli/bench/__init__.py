"""`headwater bench`."""
