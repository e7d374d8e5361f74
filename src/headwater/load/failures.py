"""The exception of the load generator."""


class LoadFailed(OSError):
    """The load cannot continue; the message is a clause that names the request or the connection."""
