"""What each endpoint does: one module for each group of URLs."""
