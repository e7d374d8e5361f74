"""Backups of a data directory and its lake: an offline tool that creates, verifies and restores them.

A backup is a copy of a whole server, or of one bucket, in any store. It can be taken while the server runs.
"""
