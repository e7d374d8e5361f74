"""The events of a fan-out: each carries its number and the time when it was due, and all have the same size."""

import time
from functools import cache
from zlib import crc32

from headwater.load.loads import Latencies

EVENT_BYTES = 100
HEAD_BYTES = 30
EVENT_BYTES_MIN = HEAD_BYTES + 1


@cache
def padding(size: int) -> bytes:
    """Return what follows the head in an event of this size."""
    return b"." * (size - HEAD_BYTES)


def event(sequence: int, due_ns: int | None = None, size: int = EVENT_BYTES) -> bytes:
    """Build an event without line ends; one that is due now has no time given.

    >>> event(1, 2, 40)
    b'#00000001:0000000000000000002;..........'
    """
    due_ns = time.monotonic_ns() if due_ns is None else due_ns
    return b"#%08d:%019d;%s" % (sequence, due_ns, padding(size))


def warm_up(size: int = EVENT_BYTES) -> bytes:
    """Build an event that readers do not count."""
    return b"." * size


class Tracker:
    """The events that one reader has received; it may receive them in pieces cut anywhere.

    Numbers that a reader has not seen before a later one count as skipped; one that it has seen, or that arrives after
    a later one, counts as repeated.
    """

    __slots__ = (
        "changed",
        "checksum",
        "delivered",
        "following",
        "last_ns",
        "latencies",
        "padding",
        "repeated",
        "rest",
        "size",
        "skipped",
    )

    def __init__(self, latencies: Latencies, size: int = EVENT_BYTES) -> None:
        self.latencies = latencies
        self.size = size
        self.padding = b";" + padding(size)
        self.rest = b""
        self.following = 0
        self.delivered = self.skipped = self.repeated = self.changed = 0
        self.last_ns = 0
        self.checksum = 0

    def take(self, data: bytes, now_ns: int) -> None:
        """Count the events that `data` completes."""
        self.checksum = crc32(data, self.checksum)
        if self.rest:
            data = self.rest + data
        size = self.size
        if len(data) == size:
            self.rest = b""
            self._count(data, now_ns)
            return
        whole = len(data) - len(data) % size
        for at in range(0, whole, size):
            self._count(data[at : at + size], now_ns)
        self.rest = data[whole:]

    def _count(self, event: bytes, now_ns: int) -> None:
        try:
            sequence, due_ns = int(event[1:9]), int(event[10:29])
        except ValueError:
            self.changed += event != warm_up(self.size)
            return
        if not event.startswith(b"#") or not event.endswith(self.padding):
            self.changed += 1
            return
        if sequence < self.following:
            self.repeated += 1
        else:
            self.skipped += sequence - self.following
            self.following = sequence + 1
        self.delivered += 1
        self.last_ns = now_ns
        self.latencies.add(max(0, now_ns - due_ns) // 1000)
