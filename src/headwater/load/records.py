"""The records that are appended: each one is unique, so that reading back shows what was lost, doubled or torn."""

import re
from functools import cache
from typing import NamedTuple

RECORD_BYTES = 100
ID_BYTES = 15
RECORD_BYTES_MIN = ID_BYTES + 1
ID = re.compile(rb"\d{3}-\d{10}-")


@cache
def padding(size: int) -> bytes:
    """Return what follows the id in a record of this size."""
    return b"." * (size - ID_BYTES - 1) + b"\n"


def record(worker: int, sequence: int, size: int = RECORD_BYTES) -> bytes:
    """Build one record; benchmarks/wrk.lua builds the same.

    >>> record(7, 42)[:16], len(record(7, 42)), record(7, 42, 20)
    (b'007-0000000042-.', 100, b'007-0000000042-....\\n')
    """
    return b"%03d-%010d-%s" % (worker, sequence, padding(size))


class Findings(NamedTuple):
    """How many different records a ledger found, and what is wrong with them.

    Doubled records were found before, torn ones differ from what was written, misplaced ones are not where their number
    belongs, and skipped ones are missing before a later one.
    """

    found: int
    doubled: int = 0
    torn: int = 0
    misplaced: int = 0
    skipped: int = 0


class Ledger:
    """Collects the records that are read back, to compare them with those that were acknowledged.

    If one writer wrote a stream, `sequences` are the numbers of its records in order; only then can records count as
    misplaced or skipped.
    """

    def __init__(self, record_bytes: int = RECORD_BYTES, sequences: range | None = None) -> None:
        self.record_bytes = record_bytes
        self.sequences = sequences
        self.ids: set[bytes] = set()
        self.doubled = 0
        self.torn = 0
        self.misplaced = 0
        self.skipped = 0

    @property
    def found(self) -> int:
        """How many different records were read."""
        return len(self.ids)

    def add(self, body: bytes) -> None:
        """Take the whole content of one stream."""
        size, rest, following = self.record_bytes, padding(self.record_bytes), 0
        for at in range(0, len(body), size):
            key = body[at : at + ID_BYTES]
            if body[at + ID_BYTES : at + size] != rest or not ID.fullmatch(key):
                self.torn += 1
                continue
            if key in self.ids:
                self.doubled += 1
            elif self.sequences is not None:
                following = self._place(key, following, self.sequences)
            self.ids.add(key)

    def _place(self, key: bytes, following: int, sequences: range) -> int:
        """Compare a record with its place in the stream, and return the place that follows."""
        number = int(key[4:14])
        if number not in sequences or not key.startswith(b"000-"):
            self.misplaced += 1
            return following
        place = sequences.index(number)
        if place < following:
            self.misplaced += 1
            self.skipped -= 1
            return following
        self.skipped += place - following
        return place + 1

    def findings(self) -> Findings:
        return Findings(self.found, self.doubled, self.torn, self.misplaced, self.skipped)

    def problems(self, acknowledged: int, unanswered_max: int) -> list[str]:
        """Describe what is wrong; requests still unanswered at the end may or may not have been applied."""
        found = []
        if self.found < acknowledged:
            found.append(f"{acknowledged - self.found:,} of {acknowledged:,} acknowledged records cannot be read back")
        if self.found > acknowledged + unanswered_max:
            found.append(f"{self.found - acknowledged:,} records more than were acknowledged")
        if self.doubled:
            found.append(f"{self.doubled:,} records are there twice")
        if self.torn:
            found.append(f"{self.torn:,} records are torn")
        if self.misplaced:
            found.append(f"{self.misplaced:,} records are in the wrong place")
        return found
