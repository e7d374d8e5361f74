"""A project for Spark's declarative pipelines, to begin with."""
