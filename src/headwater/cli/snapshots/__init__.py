"""`headwater snapshot` and `headwater bootstrap`."""
