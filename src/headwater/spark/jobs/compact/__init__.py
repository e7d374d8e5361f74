"""`compact`: merge segments of the lake."""
