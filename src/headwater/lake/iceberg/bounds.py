"""Bounds of columns, by which engines skip files: never between two values of the file, but not always exact."""

from struct import pack
from typing import NamedTuple

from headwater.lake.format import SCHEMA, split_name
from headwater.streams.segments import Segment

CHARACTERS_MAX = 64
"""Longer texts are cut, which makes a bound less exact, but no less correct."""

BUCKET, STREAM, INCARNATION, OFFSET, POSITION, COMMITTED_AT = (
    SCHEMA.get_field_index(name) + 1
    for name in ("bucket", "stream", "incarnation", "offset", "position", "committed_at")
)
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)

Bounds = dict[int, bytes]
"""Values by the ids of their columns, in the form of Iceberg's single values."""


class NameBounds(NamedTuple):
    """The least and the greatest values of `bucket` and of `stream`."""

    low_bucket: str
    high_bucket: str
    low_stream: str
    high_stream: str


def number(value: int) -> bytes:
    """A `long`, or a time in microseconds."""
    return pack("<q", value)


def low_text(value: str) -> bytes:
    """A text at or below this one."""
    return value[:CHARACTERS_MAX].encode()


def high_text(value: str) -> bytes | None:
    """A text at or above this one; None if there is no short one.

    >>> high_text("a" * 99)[-3:], high_text("b")
    (b'aab', b'b')
    """
    if len(value) <= CHARACTERS_MAX:
        return value.encode()
    cut = value[:CHARACTERS_MAX]
    while cut and ord(cut[-1]) == _LAST_CHARACTER:
        cut = cut[:-1]
    if not cut:
        return None
    above = ord(cut[-1]) + 1
    return (cut[:-1] + chr(_SURROGATES.stop if above in _SURROGATES else above)).encode()


def buckets(segment: Segment) -> tuple[str, str]:
    """Texts between which the buckets of a segment are.

    Rows are sorted by full name, where `team-a/x` is before `team/x`, and so is every bucket that goes on with a
    character below `/`. So a bucket that is a beginning of the first one may follow it, and one that begins with the
    last one may precede it.
    """
    first, last = split_name(segment.first_name)[0], split_name(segment.last_name)[0]
    if first == last:
        return first, last
    shortest = next((first[:end] for end in range(1, len(first)) if first[end] < "/"), first)
    return min(shortest, last), f"{last}/"


def of_segment(segment: Segment) -> tuple[Bounds, Bounds]:
    """The lower and the upper bounds of a segment's columns."""
    first_bucket, last_bucket = buckets(segment)
    low = {BUCKET: low_text(first_bucket), POSITION: number(segment.first_position)}
    high = {POSITION: number(segment.last_position)}
    if (above := high_text(last_bucket)) is not None:
        high[BUCKET] = above
    low[COMMITTED_AT], high[COMMITTED_AT] = number(segment.first_at), number(segment.last_at)
    if segment.high_stream:
        low |= {STREAM: low_text(segment.low_stream), INCARNATION: number(segment.low_incarnation), OFFSET: number(0)}
        high |= {INCARNATION: number(segment.high_incarnation), OFFSET: number(segment.high_offset)}
        if (above := high_text(segment.high_stream)) is not None:
            high[STREAM] = above
    return low, high


def of_names(names: NameBounds) -> tuple[Bounds, Bounds]:
    """The lower and the upper bounds of the two columns of a name."""
    low = {BUCKET: low_text(names.low_bucket), STREAM: low_text(names.low_stream)}
    above = {BUCKET: high_text(names.high_bucket), STREAM: high_text(names.high_stream)}
    return low, {column: value for column, value in above.items() if value is not None}
