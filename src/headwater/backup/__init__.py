"""Backups of a data directory and its lake: create, verify, restore."""
