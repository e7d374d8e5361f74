"""Crowding: clients that do not read their responses hold all the memory that they may.

Then reads get short pages, so that everybody is served, and pages that cannot be short, those of a large JSON message,
have to wait.
"""

import msgspec

from headwater.http.context import Context
from headwater.node.reads.queries import CROWDED_OUT
from headwater.streams.queries import Read

__all__ = ["CROWDED_OUT", "SHORT_PAGE_BYTES", "shorten"]

SHORT_PAGE_BYTES = 64 * 1024


def shorten(read: Read, context: Context) -> Read:
    """The read; as long as there is a crowd, with short pages or none."""
    if not context.sending.full:
        return read
    bytes_max = SHORT_PAGE_BYTES if read.bytes_max is None else min(read.bytes_max, SHORT_PAGE_BYTES)
    return msgspec.structs.replace(read, bytes_max=bytes_max, bytes_limit=SHORT_PAGE_BYTES)
