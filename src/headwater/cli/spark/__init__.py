"""`headwater spark`."""
