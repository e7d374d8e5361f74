"""From planned slices to the bytes of a page."""

from collections.abc import Iterator, Sequence

from headwater.streams.reading import Slice


def fetch(slices: Sequence[Slice], *, json: bool) -> bytes:
    """The body that these slices make: their bytes, or for JSON an array of the exact messages."""
    if json:
        return b"[%b]" % b",".join(_messages(slices))
    return b"".join(_bytes(slice_) for slice_ in slices)


def _bytes(slice_: Slice) -> bytes:
    payload = slice_.hot.payload
    return payload if slice_.hi - slice_.lo == len(payload) else payload[slice_.lo : slice_.hi]


def _messages(slices: Sequence[Slice]) -> Iterator[bytes]:
    for slice_ in slices:
        hot, lo, hi = slice_
        if hot.ends is None:
            yield hot.payload
            continue
        start = 0
        for end in hot.ends:
            if start >= lo and end <= hi:
                yield hot.payload[start:end]
            start = end
