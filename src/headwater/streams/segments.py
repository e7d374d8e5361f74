"""Segments and extents: where the cold bytes of streams are, as the log and the state record it."""

import msgspec


class Segment(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One object of the lake: the rows of many streams, and what is needed to verify its bytes."""

    id: str
    """Unique; begins with the deadline of its publication, so that the age of an orphan is known."""
    first_position: int
    last_position: int
    first_at: int
    last_at: int
    first_name: str
    last_name: str
    rows: int
    payload_bytes: int
    size: int
    footer_bytes: int
    footer_crc: int
    low_stream: str = ""
    high_stream: str = ""
    low_incarnation: int = 0
    high_incarnation: int = 0
    high_offset: int = 0
    """Bounds of its rows' columns `stream`, `incarnation` and `offset`, for readers that skip segments by them.

    They are unknown if `high_stream` is empty.
    """


class Rows(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One incarnation's rows in a segment, as its publication names them: consecutive, without a gap."""

    name: str
    incarnation: int
    row: int
    rows: int
    start: int
    end: int
    record: int


class DeadRows(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The rows of one life in one segment that must no longer be read under its name: consecutive, its oldest ones."""

    segment: int
    row: int
    rows: int

    def joined(self, other: "DeadRows") -> "DeadRows":
        """These rows and others of the same life and segment."""
        row, end = min(self.row, other.row), max(self.row + self.rows, other.row + other.rows)
        return DeadRows(self.segment, row, end - row)


class Extent(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A range of a stream's bytes in the lake; `segment` is the segment's number in the state."""

    segment: int
    row: int
    rows: int
    start: int
    end: int
    record: int

    @property
    def dead(self) -> DeadRows:
        """All its rows, as dead ones."""
        return DeadRows(self.segment, self.row, self.rows)

    def dead_before(self, record: int) -> DeadRows:
        """Its rows before a record, as dead ones."""
        return DeadRows(self.segment, self.row, min(max(record - self.record, 0), self.rows))
