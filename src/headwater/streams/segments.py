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


class Rows(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One incarnation's rows in a segment, as its publication names them: consecutive, without a gap."""

    name: str
    incarnation: int
    row: int
    rows: int
    start: int
    end: int
    record: int


class Extent(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A range of a stream's bytes in the lake; `segment` is the segment's number in the state."""

    segment: int
    row: int
    rows: int
    start: int
    end: int
    record: int
