"""The runtime of a server: a node and its shards, each with a committer, reads and chores."""
