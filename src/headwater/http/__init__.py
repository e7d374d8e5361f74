"""The HTTP front: connections, exchanges, the endpoint table and what each endpoint does."""
