"""The journal: the log of a single process, in files on its own disk."""
