"""The server side of the lake: flush, publish, catalog, compact, swap, sweep."""
