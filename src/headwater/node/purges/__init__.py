"""Purges: which streams one removes, how a client asks for one, and how the node that does the chores does it."""
