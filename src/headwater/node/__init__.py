"""The runtime of a server: shards with their committers, live tails and chores, behind `submit` and `read`."""
