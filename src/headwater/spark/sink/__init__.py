"""The data sink: writes rows to streams, exactly once."""
