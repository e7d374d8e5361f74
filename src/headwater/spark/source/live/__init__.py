"""Reads from the server: named streams, hot and cold."""
