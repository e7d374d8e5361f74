"""Segments: Parquet objects with the rows of many streams, written once and verified whenever they are read."""
