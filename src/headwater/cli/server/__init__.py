"""`headwater status` and `headwater flush`."""
