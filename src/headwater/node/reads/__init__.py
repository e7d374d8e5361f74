"""Queries of one stream: from memory, from the lake, and live."""
