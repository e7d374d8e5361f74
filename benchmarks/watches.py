"""What used the processors during a measurement: the server, the load generator, or other processes."""

import os
import time

from benchmarks import processes
from benchmarks.servers import Server


class Watch:
    """Started right before the load and read right after it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.began = time.monotonic()
        self.server_began = server.cpu_seconds()
        self.machine_began = processes.machine_cpu_seconds()

    def server_seconds(self) -> float:
        return self.server.cpu_seconds() - self.server_began

    def foreign_share(self, generator_seconds: float) -> float:
        """Return the share of the machine that neither the server nor the generator used; 0 if that is unknown."""
        if not self.server.spec.is_started:
            return 0.0
        available = (time.monotonic() - self.began) * (os.cpu_count() or 1)
        used = processes.machine_cpu_seconds() - self.machine_began
        return max(0.0, used - self.server_seconds() - generator_seconds) / available
