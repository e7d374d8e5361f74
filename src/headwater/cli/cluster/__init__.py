"""Commands about a cluster."""
