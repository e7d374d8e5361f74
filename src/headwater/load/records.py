"""The records that are appended: each one is unique, so that reading back shows what was lost, doubled or torn."""

from functools import cache
from typing import NamedTuple

RECORD_BYTES = 100
ID_BYTES = 15
RECORD_BYTES_MIN = ID_BYTES + 1


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
    """What a ledger found: different records, those seen more than once, torn ones, and those in a wrong place."""

    found: int
    doubled: int
    torn: int
    misplaced: int


class Ledger:
    """Collects the records that are read back, to compare them with those that were acknowledged.

    `sequences` are the numbers of the records in the order of their stream, if one writer wrote it; a record with
    another number, or before an earlier one, is misplaced.
    """

    def __init__(self, record_bytes: int = RECORD_BYTES, sequences: range | None = None) -> None:
        self.record_bytes = record_bytes
        self.sequences = sequences
        self.ids: set[bytes] = set()
        self.doubled = 0
        self.torn = 0
        self.misplaced = 0

    @property
    def found(self) -> int:
        """How many different records were read."""
        return len(self.ids)

    def add(self, body: bytes) -> None:
        """Take the whole content of one stream."""
        size, rest, last = self.record_bytes, padding(self.record_bytes), -1
        for at in range(0, len(body), size):
            if body[at + ID_BYTES : at + size] != rest:
                self.torn += 1
                continue
            key = body[at : at + ID_BYTES]
            if key in self.ids:
                self.doubled += 1
            elif self.sequences is not None:
                last = self._place(key, last)
            self.ids.add(key)

    def _place(self, key: bytes, last: int) -> int:
        number = int(key[4:14]) if key[4:14].isdigit() else -1
        if number < last or self.sequences is None or number not in self.sequences:
            self.misplaced += 1
        return max(number, last)

    def findings(self) -> Findings:
        return Findings(self.found, self.doubled, self.torn, self.misplaced)

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
