"""`headwater doctor`."""
