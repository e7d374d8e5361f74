"""Several processes that serve one port: each can answer for all of them."""
