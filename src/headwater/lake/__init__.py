"""The cold tier: history as Parquet segments in an object store, which other engines can read too."""
