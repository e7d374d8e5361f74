"""Reads from the lake: executors fetch Parquet segments directly from the object store."""
