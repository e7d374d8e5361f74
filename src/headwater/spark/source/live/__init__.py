"""Reads from the server: executors scan ranges of streams, up to the newest message."""
