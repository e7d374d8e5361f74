"""Turns planned slices into the bytes of a page."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter

from headwater.streams.reading import Slice

_PAYLOAD, _ENDS = attrgetter("payload"), attrgetter("ends")


def fetch(slices: Sequence[Slice], *, json: bool) -> bytes:
    """The body of a page: the bytes of these slices, or for JSON an array of the exact messages."""
    if json:
        return b"[%b]" % b",".join(map(_joined_messages, slices))
    return b"".join(map(_bytes, slices)) if len(slices) != 1 else _bytes(slices[0])


def _bytes(slice_: Slice) -> bytes:
    pieces = slice_.pieces[slice_.first : slice_.stop]
    payloads = list(map(_PAYLOAD, pieces))
    # The last piece first: if it is the first as well, it is cut at both ends.
    if (beyond := pieces[-1].end - slice_.end) > 0:
        payloads[-1] = payloads[-1][:-beyond]
    if (before := slice_.start - pieces[0].offset) > 0:
        payloads[0] = payloads[0][before:]
    return b"".join(payloads) if len(payloads) != 1 else payloads[0]


def _joined_messages(slice_: Slice) -> bytes:
    pieces = slice_.pieces[slice_.first : slice_.stop]
    if not any(map(_ENDS, pieces)):
        return b",".join(map(_PAYLOAD, pieces))  # As below, without a step for each: every piece is one message.
    return b",".join(_messages(slice_))


def _messages(slice_: Slice) -> Iterator[bytes]:
    for piece, lo, hi in slice_.parts():
        if piece.ends is None:
            yield piece.payload
            continue
        ends = piece.message_ends
        first = bisect_right(ends, lo)
        start = ends[first - 1] if first else 0
        for end in ends[first : bisect_right(ends, hi)]:
            yield piece.payload[start:end]
            start = end


_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


def fetch_records(slices: Sequence[Slice], first: int, *, envelope: bool) -> bytes:
    """The messages, one per line. A line end in JSON can only be between tokens, where a space is equivalent."""
    lines = (message.translate(_LINE_ENDS) for slice_ in slices for message in _messages(slice_))
    if envelope:
        lines = (b'{"record":%d,"value":%b}' % (first + index, line) for index, line in enumerate(lines))
    return b"".join(b"%b\n" % line for line in lines)


def fetch_messages(slice_: Slice) -> Iterator[bytes]:
    """The messages of a slice one by one; in a byte stream the first and the last may be parts of one."""
    for piece, lo, hi in slice_.parts():
        ends = piece.message_ends
        start = lo
        for end in ends[bisect_right(ends, lo) :]:
            yield piece.payload[start : min(end, hi)]
            start = end
            if end >= hi:
                break
