"""Pages: their bytes, from planned slices, and a cache of recent ones.

Committed bytes never change, so a page is made once for all its readers.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from operator import attrgetter

from headwater.streams.reading import Slice
from headwater.streams.replies import Page

PAGES_BYTES_MAX = 32 * 1024 * 1024
PAGE_COST_BYTES = 512
"""The size of the cache, and what a page costs in addition to its body."""
_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")
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


class PageCache:
    """The newest pages by incarnation and start; the oldest are evicted first."""

    def __init__(self, bytes_max: int = PAGES_BYTES_MAX) -> None:
        self._pages: OrderedDict[tuple[int, int], Page] = OrderedDict()  # A dict searches long for its first key.
        self._bytes_max, self._bytes = bytes_max, 0

    def get(self, incarnation: int, start: int, tail: int, closed: bool, earliest: int) -> Page | None:
        """The page, unless the stream has grown, closed or been trimmed since, so that the answer would differ."""
        page = self._pages.get((incarnation, start))
        if page is None or page.closed != closed or (page.up_to_date and page.next_offset != tail):
            return None
        return page if start >= earliest else None

    def put(self, page: Page) -> None:
        self._drop((page.incarnation, page.start))
        self._pages[page.incarnation, page.start] = page
        self._bytes += PAGE_COST_BYTES + len(page.body)
        while self._bytes > self._bytes_max:
            self._drop(next(iter(self._pages)))

    def _drop(self, key: tuple[int, int]) -> None:
        page = self._pages.pop(key, None)
        if page is not None:
            self._bytes -= PAGE_COST_BYTES + len(page.body)
