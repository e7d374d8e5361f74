"""`headwater bucket`."""
