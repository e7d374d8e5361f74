"""Tombstones without their rows: most tests are about which segments have dead rows."""

from typing import NamedTuple

from headwater.streams.cold import Cold
from headwater.streams.segments import DeadRows


class Mark(NamedTuple):
    """A tombstone: a name, the offset below which rows are dead, and the segments that have such rows."""

    name: str
    below: int
    segments: tuple[int, ...]


def marks(cold: Cold) -> dict[int, Mark]:
    """The tombstones by incarnation."""
    return {
        incarnation: Mark(one.name, one.below, tuple(rows.segment for rows in one.dead))
        for incarnation, one in cold.tombstones.items()
    }


def first_rows(*segments: int) -> list[DeadRows]:
    """The first row of each of these segments."""
    return [DeadRows(segment, 0, 1) for segment in segments]
