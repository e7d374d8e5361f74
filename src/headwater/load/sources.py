"""Where the requests of a load come from."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol
from zlib import crc32

from headwater.load import events, messages
from headwater.load.records import RECORD_BYTES, record
from headwater.load.targets import Target


class Source(Protocol):
    """Makes requests, for one connection or for several."""

    expected: bytes
    """The body that the response to the last request must have; empty if it is not compared."""
    is_partial: bool
    """Whether the last request is a part of an operation that another request completes."""

    def next(self) -> bytes:
        """Return the next request as ready bytes, b"" if there is none."""
        ...


def stream_path(stem: str, index: int) -> str:
    """Return the path of one of many streams; their paths begin with the same stem.

    >>> stream_path("/bench/s", 7)
    '/bench/s0000007'
    """
    return f"{stem}{index:07d}"


@dataclass(slots=True)
class Appends:
    """Appends of unique records to some streams in turn, numbered from `first` in steps."""

    target: Target
    stem: str
    streams: range
    worker: int = 0
    first: int = 0
    step: int = 1
    record_bytes: int = RECORD_BYTES
    content_type: str = messages.OCTETS
    sent: int = 0
    expected: bytes = b""
    is_partial: bool = False
    _start: bytes = b""
    _rest: bytes = b""

    def __post_init__(self) -> None:
        # The number of the stream comes between these two; all requests share the rest.
        mark = "{index}"
        request = self.target.request("POST", self.stem + mark, b"." * self.record_bytes, self.content_type)
        self._start, _, rest = request.partition(mark.encode())
        self._rest = rest[: -self.record_bytes]

    @property
    def last_stream(self) -> int:
        """The stream that the last request appends to."""
        return self.streams[(self.sent - 1) % len(self.streams)]

    def next(self) -> bytes:
        index = self.streams[self.sent % len(self.streams)]
        sequence = self.first + self.sent * self.step
        self.sent += 1
        return b"%s%07d%s%s" % (self._start, index, self._rest, record(self.worker, sequence, self.record_bytes))


@dataclass(slots=True)
class Reads:
    """The same request again and again, or only `left` times."""

    request: bytes
    expected: bytes = b""
    left: int = -1
    is_partial: bool = False

    def next(self) -> bytes:
        if self.left == 0:
            return b""
        self.left -= 1
        return self.request


class Page(NamedTuple):
    """A request for one page of a stream, and the body that it must return."""

    request: bytes
    body: bytes


@dataclass(slots=True)
class Rotation:
    """The pages of a stream from first to last, again and again; only the last page completes a replay."""

    pages: list[Page]
    turn: int = 0
    expected: bytes = b""
    is_partial: bool = False

    def next(self) -> bytes:
        page = self.pages[self.turn]
        self.turn = (self.turn + 1) % len(self.pages)
        self.expected, self.is_partial = page.body, self.turn != 0
        return page.request


@dataclass(slots=True)
class Creations:
    """One PUT for each stream."""

    target: Target
    stem: str
    streams: range
    turn: int = 0
    expected: bytes = b""
    is_partial: bool = False

    def next(self) -> bytes:
        if self.turn >= len(self.streams):
            return b""
        path = stream_path(self.stem, self.streams[self.turn])
        self.turn += 1
        return self.target.request("PUT", path, b"", messages.OCTETS)


@dataclass(slots=True)
class Mixture:
    """Appends, and after every fourth one a read of the stream written last, from its start."""

    appends: Appends
    turn: int = 0
    expected: bytes = b""
    is_partial: bool = False

    def next(self) -> bytes:
        self.turn += 1
        if self.turn % 5:
            return self.appends.next()
        path = stream_path(self.appends.stem, self.appends.last_stream)
        return self.appends.target.request("GET", f"{path}?offset=-1")


@dataclass(slots=True)
class Broadcast:
    """Appends of `total` events to one stream."""

    target: Target
    path: str
    total: int
    event_bytes: int
    sent: int = 0
    checksum: int = 0
    expected: bytes = b""
    is_partial: bool = False

    def next(self) -> bytes:
        if self.sent >= self.total:
            return b""
        event = events.event(self.sent, size=self.event_bytes)
        self.sent += 1
        self.checksum = crc32(event, self.checksum)
        return self.target.request("POST", self.path, event, messages.TEXT)
