"""A server for durable streams."""
