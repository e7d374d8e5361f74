"""THE tables of query parameters: every one that means something, its shape and its meaning. Others are ignored."""

from headwater.protocol import shapes
from headwater.protocol.headers import Use
from headwater.protocol.limits import LISTING_MAX, LONG_POLL_MS_MAX, TAIL_URL_STREAMS_MAX

TABLE: dict[str, Use] = {
    "offset": Use(
        shapes.ANY_OFFSET,
        "Where to begin: `-1` at the start, `now` at the tail, or an offset from an earlier response.",
    ),
    "live": Use(
        shapes.one_of("long-poll", "sse"), "How to follow the stream once the tail is reached; requires `offset`."
    ),
    "cursor": Use(shapes.TEXT, "The `Stream-Cursor` of the previous response, to keep live requests apart in caches."),
    "timeout_ms": Use(
        shapes.whole(1, LONG_POLL_MS_MAX), "How long a long-poll waits, instead of the server's own setting."
    ),
    "max_bytes": Use(
        shapes.POSITIVE,
        "The maximum number of bytes in one response; a JSON message or a character of text is never cut.",
    ),
    "incarnation": Use(shapes.TEXT, "Same as the header `Stream-Incarnation`, for clients that cannot set headers."),
    "record": Use(shapes.RECORD, "The record number of the first message, or `now`; JSON streams only."),
    "tail_records": Use(shapes.whole(0, 10**19 - 1), "Begin this many messages before the tail; JSON streams only."),
    "max_records": Use(
        shapes.POSITIVE,
        "The maximum number of messages in one response; only together with `record` or `tail_records`.",
    ),
    "record_view": Use(shapes.one_of("envelope"), "Return each message in an envelope with its record number."),
    "prefix": Use(shapes.TEXT, "List only ids that begin with this."),
    "after": Use(shapes.TEXT, "List only ids that sort after this: the `next_cursor` of the previous page."),
    "limit": Use(shapes.whole(1, LISTING_MAX), "The maximum number of ids on one page."),
    "tables": Use(shapes.one_of("all"), "Also write the lake's table `streams`, which else is minutes old."),
}
"""Those that a request has once."""

REPEATED: dict[str, Use] = {
    "s": Use(
        shapes.several(shapes.TEXT, TAIL_URL_STREAMS_MAX),
        "A stream to follow: `bucket/stream@OFFSET`, or `bucket/stream@OFFSET/INCARNATION`; may appear several times.",
    ),
}
"""Those that a request may have several times; where they mean nothing, they are ignored."""
