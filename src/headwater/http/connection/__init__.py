"""Connections: from the bytes of one client to its requests in order, and back."""
