"""Crowding: share memory and loop time when clients demand more of them than there is.

While unread responses take all the memory that they may, reads get short pages, so that every client is served. Pages
that cannot be short, those of a large JSON message, have to wait.

Once the long pages of one loop turn have used their share of it, further ones wait for the next turn, so that other
clients wait for a few of them instead of all.
"""

import msgspec

from headwater.http.context import Context
from headwater.node.reads.queries import CROWDED_OUT
from headwater.streams.queries import Read

__all__ = ["CROWDED_OUT", "SHORT_PAGE_BYTES", "count", "must_wait", "shorten"]

SHORT_PAGE_BYTES = 64 * 1024
"""A page of this size takes next to nothing of the memory, and of a turn."""


def shorten(read: Read, context: Context) -> Read:
    """The read; as long as there is a crowd, with short pages or none."""
    if not context.sending.full:
        return read
    bytes_max = SHORT_PAGE_BYTES if read.bytes_max is None else min(read.bytes_max, SHORT_PAGE_BYTES)
    return msgspec.structs.replace(read, bytes_max=bytes_max, bytes_limit=SHORT_PAGE_BYTES)


def must_wait(read: Read, context: Context) -> bool:
    """Whether a page has to wait for the next turn of the loop."""
    return context.long_pages.full and context.node.may_be_longer(read, SHORT_PAGE_BYTES)


def count(size: int, context: Context) -> None:
    """Count a page that is sent in this turn."""
    if size > SHORT_PAGE_BYTES:
        context.long_pages.use(size)
