"""The kit for testing with Headwater, shipped with it."""

from headwater.testing.servers import RunningServer, ServerNotStarted, running_server

__all__ = ["RunningServer", "ServerNotStarted", "running_server"]
