"""A starter project for Spark's declarative pipelines."""
