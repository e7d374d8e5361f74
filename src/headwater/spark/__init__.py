"""Headwater streams as Spark tables: read them, write them, and run jobs on them."""
