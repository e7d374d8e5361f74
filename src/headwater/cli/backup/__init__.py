"""`headwater backup`."""
