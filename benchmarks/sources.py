"""Where a load generator's requests come from: each source yields ready bytes, and b"" when it has no more."""

from dataclasses import dataclass
from typing import Protocol

from benchmarks import messages
from benchmarks.records import RECORD_BYTES, record


class Source(Protocol):
    def next(self) -> bytes: ...


def stream_path(prefix: str, index: int) -> str:
    return f"{prefix}/s{index:07d}"


@dataclass(slots=True)
class Appends:
    """Appends of unique records, round-robin over the streams."""

    prefix: str
    streams: int
    worker: int
    sequence: int = -1

    def next(self) -> bytes:
        self.sequence += 1
        return b"POST %s/s%07d HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (
            self.prefix.encode(),
            self.sequence % self.streams,
            messages.OCTETS.encode(),
            RECORD_BYTES,
            record(self.worker, self.sequence),
        )


@dataclass(slots=True)
class Reads:
    """The same catch-up read again and again."""

    path: str
    ready: bytes = b""

    def next(self) -> bytes:
        if not self.ready:
            self.ready = messages.request("GET", f"{self.path}?offset=-1")
        return self.ready


@dataclass(slots=True)
class Creations:
    """One PUT for each stream from `index` up to `end`, stepping over those of the other workers."""

    prefix: str
    index: int
    end: int
    step: int

    def next(self) -> bytes:
        if self.index >= self.end:
            return b""
        path = stream_path(self.prefix, self.index)
        self.index += self.step
        return messages.request("PUT", path, b"", messages.OCTETS)


@dataclass(slots=True)
class Mixture:
    """Appends over all streams, and after every fourth one a catch-up read of the stream written last."""

    appends: Appends
    turn: int = 0

    def next(self) -> bytes:
        self.turn += 1
        if self.turn % 5:
            return self.appends.next()
        index = self.appends.sequence % self.appends.streams
        return messages.request("GET", f"{stream_path(self.appends.prefix, index)}?offset=-1")
