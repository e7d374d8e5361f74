"""Checks of a lake against its own format: whole lakes, single segments, and rewrites against their sources."""
