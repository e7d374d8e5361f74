"""The load generators for appends and reads: the built-in one is always available, wrk.py has another."""

from typing import Protocol

from benchmarks.streams import stem
from headwater.load.loads import SENDING_CORES, Load
from headwater.load.sockets import Job, run, share
from headwater.load.sources import Appends, Reads
from headwater.load.targets import Target


class Generator(Protocol):
    """Sends one kind of request for some seconds over some connections."""

    name: str

    def append(self, address: tuple[str, int], prefix: str, streams: int, connections: int, seconds: float) -> Load: ...

    def read(self, address: tuple[str, int], path: str, body: bytes, connections: int, seconds: float) -> Load: ...


class SocketGenerator:
    """The generator of `headwater.load`. The connections of a process share a source, as the threads of wrk do."""

    name = "headwater.load"

    def append(self, address: tuple[str, int], prefix: str, streams: int, connections: int, seconds: float) -> Load:
        target = Target(*address)
        shares = enumerate(share(connections, SENDING_CORES))
        return run(
            [
                Job(target, [Appends(target, stem(prefix), range(streams), worker)] * count, seconds)
                for worker, count in shares
            ]
        )

    def read(self, address: tuple[str, int], path: str, body: bytes, connections: int, seconds: float) -> Load:
        target = Target(*address)
        source = Reads(target.request("GET", f"{path}?offset=-1"), body)
        return run([Job(target, [source] * count, seconds) for count in share(connections, SENDING_CORES)])
