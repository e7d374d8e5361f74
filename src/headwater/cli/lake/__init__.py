"""`headwater lake`."""
