"""From planned slices to the bytes of a page."""

from collections.abc import Iterator, Sequence
from operator import attrgetter

from headwater.streams.reading import Slice

_PAYLOAD = attrgetter("payload")


def fetch(slices: Sequence[Slice], *, json: bool) -> bytes:
    """The body that these slices make: their bytes, or for JSON an array of the exact messages."""
    if json:
        return b"[%b]" % b",".join(message for slice_ in slices for message in _messages(slice_))
    return b"".join(map(_bytes, slices)) if len(slices) != 1 else _bytes(slices[0])


def _bytes(slice_: Slice) -> bytes:
    appends = slice_.appends[slice_.first : slice_.stop]
    payloads = list(map(_PAYLOAD, appends))
    # The last append first: it may be the first as well, and is then cut at both ends.
    if (beyond := appends[-1].end - slice_.end) > 0:
        payloads[-1] = payloads[-1][:-beyond]
    if (before := slice_.start - appends[0].offset) > 0:
        payloads[0] = payloads[0][before:]
    return b"".join(payloads) if len(payloads) != 1 else payloads[0]


def _messages(slice_: Slice) -> Iterator[bytes]:
    for hot, lo, hi in slice_.parts():
        if hot.ends is None:
            yield hot.payload
            continue
        start = 0
        for end in hot.ends:
            if start >= lo and end <= hi:
                yield hot.payload[start:end]
            start = end
