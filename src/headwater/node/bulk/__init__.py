"""Appends to many streams in one request, as Arrow rows."""
