"""Reads from the lake: Parquet segments, straight from the object store."""
