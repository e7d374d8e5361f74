"""A cache of recent pages: committed bytes never change, so a page is made once for all its readers."""

from collections import OrderedDict

from headwater.streams.replies import Page

PAGES_BYTES_MAX = 32 * 1024 * 1024
PAGE_COST_BYTES = 512
"""The size of the cache, and what a page costs in addition to its body."""


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
