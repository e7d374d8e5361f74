"""The endpoint table: one row per endpoint, the router that finds it, and the documents made from it."""
