"""The log of one node: journal files in a directory, synced before anything is acknowledged."""
