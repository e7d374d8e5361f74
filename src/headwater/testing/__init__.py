"""The kit for testing with Headwater, shipped with it."""

from headwater.testing.faulty_disk import FaultyDisk, Halted, Step
from headwater.testing.servers import RunningServer, ServerNotStarted, running_server

__all__ = ["FaultyDisk", "Halted", "RunningServer", "ServerNotStarted", "Step", "running_server"]
