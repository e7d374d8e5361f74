"""The cold tier: segments in an object store, where other engines read them too."""
