"""`compact`: rewrite segments of the lake."""
