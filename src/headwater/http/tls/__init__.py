"""TLS: certificates that are renewed while the server runs, and the transport between a socket and its connection."""
