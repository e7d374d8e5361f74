"""The words of the wire: every query parameter and every header that means something here, with its shape."""

from typing import Any

from headwater.http.api.reads import LONG_POLL_MS_MAX
from headwater.protocol.limits import (
    ATTRS_BYTES_MAX,
    LISTING_MAX,
    NAME_BYTES_MAX,
    NUMBER_MAX,
    PRODUCER_ID_BYTES_MAX,
    STREAM_SEQ_BYTES_MAX,
    TTL_SECONDS_MAX,
)

Schema = dict[str, Any]
Field = tuple[Schema, str]
"""A shape as JSON Schema, and a sentence about it."""

_POSITION = "[0-9]{16}_[0-9]{16}|[0-9]{20}"
TEXT: Schema = {"type": "string"}
OFFSET: Schema = {"type": "string", "pattern": f"^({_POSITION})$"}
_ANCHOR: Schema = {"type": "string", "pattern": f"^(-1|{_POSITION})$"}
_OFFSET_OR_NOW: Schema = {"type": "string", "pattern": f"^(-1|now|{_POSITION})$"}
_RECORD: Schema = {"type": "string", "pattern": "^(now|0|[1-9][0-9]{0,18})$"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_EXACT: Schema = {"type": "integer", "minimum": 0, "maximum": NUMBER_MAX}
_FROM_ONE: Schema = {"type": "integer", "minimum": 1, "maximum": NUMBER_MAX}
_TRUE: Schema = {"type": "string", "enum": ["true"]}


def _short(length: int) -> Schema:
    return {"type": "string", "minLength": 1, "maxLength": length}


PATH: dict[str, Field] = {
    "bucket": ({"type": "string", "pattern": "^[a-z0-9_-]{4,64}$"}, "The bucket."),
    "stream": (
        {"type": "string", "minLength": 1, "maxLength": NAME_BYTES_MAX, "pattern": r"^[^/\u0000]+$"},
        f"The stream in its bucket: UTF-8, percent-encoded, at most {NAME_BYTES_MAX} bytes together with the bucket.",
    ),
    "path": (
        {"type": "string", "minLength": 1, "maxLength": NAME_BYTES_MAX, "pattern": r"^[^\u0000]+$"},
        "The stream; the first `/`, encoded or not, ends the bucket, and without one the bucket is `_default`.",
    ),
    "reader": (
        {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"},
        "The name under which somebody reads the lake.",
    ),
    "offset": (_ANCHOR, "An offset that the server gave, where one message ends and the next begins."),
}

QUERY: dict[str, Field] = {
    "offset": (_OFFSET_OR_NOW, "Where to begin: `-1` at the start, `now` at the tail, else an offset that was given."),
    "live": ({"type": "string", "enum": ["long-poll", "sse"]}, "How to go on after what is there; needs `offset`."),
    "cursor": (TEXT, "The `Stream-Cursor` of the response before, so that caches tell one wait from the next."),
    "timeout_ms": (
        {"type": "integer", "minimum": 1, "maximum": LONG_POLL_MS_MAX},
        "How long a long-poll waits, in place of the server's own setting.",
    ),
    "max_bytes": (_FROM_ONE, "At most this much in one response, but at least one message."),
    "incarnation": (TEXT, "The `Stream-Incarnation` that is meant, where headers cannot be set."),
    "record": (_RECORD, "The ordinal of the message to begin with, or `now`; JSON streams only."),
    "tail_records": (_COUNT | {"maximum": 10**19 - 1}, "The last so many messages; JSON streams only."),
    "max_records": (_FROM_ONE, "At most so many messages; only beside `record` or `tail_records`."),
    "record_view": ({"type": "string", "enum": ["envelope"]}, "Each line with its ordinal beside the value."),
    "prefix": (TEXT, "Only streams whose id begins with this."),
    "after": (TEXT, "Only streams whose id sorts behind this: the `next_cursor` of the page before."),
    "limit": ({"type": "integer", "minimum": 1, "maximum": LISTING_MAX}, "How many streams a page holds at most."),
}

REQUEST_HEADERS: dict[str, Field] = {
    "If-Match": (TEXT, "Append only while the stream is as it was when it gave this `ETag`."),
    "If-None-Match": (TEXT, "Answer 304 if the `ETag` is still this one."),
    "Last-Event-ID": (TEXT, "The last SSE event that arrived; overrides `offset`."),
    "Prefer": (TEXT, "`return=minimal`: no acknowledgements if everything went well."),
    "Producer-Epoch": (_EXACT, "Which life of the producer; a higher one shuts the lower ones out."),
    "Producer-Id": (_short(PRODUCER_ID_BYTES_MAX), "Who writes; goes with the other two producer headers."),
    "Producer-Seq": (_EXACT, "Which request of this epoch, counted from 0; a repeated one is not applied again."),
    "Stream-Attrs": (TEXT, f"Attributes of a new stream as JSON, at most {ATTRS_BYTES_MAX} bytes."),
    "Stream-Closed": (TEXT, "`true`: nothing can be added after this request."),
    "Stream-Expires-At": (TEXT, "When a new stream ends, as an RFC 3339 timestamp; not with `Stream-TTL`."),
    "Stream-Fork-Offset": (_ANCHOR, "Up to where a fork shares its source; the source's tail if it is missing."),
    "Stream-Fork-Sub-Offset": (_COUNT, "So many messages (JSON) or bytes past `Stream-Fork-Offset`."),
    "Stream-Forked-From": (TEXT, "The path of the stream that a new one is a fork of."),
    "Stream-Incarnation": (TEXT, "The life of the stream that is meant; 410 if it is another one by now."),
    "Stream-Record-Match": (_COUNT, "Append only if this is the ordinal of the next message; JSON streams only."),
    "Stream-Seq": (_short(STREAM_SEQ_BYTES_MAX), "Must sort above the one before; for writers that take turns."),
    "Stream-TTL": (
        {"type": "integer", "minimum": 0, "maximum": TTL_SECONDS_MAX},
        "How many seconds a new stream lives after its last use; not with `Stream-Expires-At`.",
    ),
}

RESPONSE_HEADERS: dict[str, Field] = {
    "Allow": (TEXT, "The methods of this resource."),
    "Cache-Control": (TEXT, "Whether a cache may keep the response."),
    "Content-Disposition": (TEXT, "`attachment` on byte streams, if the server is set to say so."),
    "ETag": ({"type": "string", "pattern": '^".+"$'}, "The stream's life and the range; for the two `If-` headers."),
    "Location": (TEXT, "The URL of the new stream, or of the latest snapshot."),
    "Preference-Applied": (TEXT, "The preference that was followed."),
    "Producer-Epoch": (_COUNT, "The producer's epoch as the stream knows it."),
    "Producer-Expected-Seq": (_COUNT, "The sequence number that is next."),
    "Producer-Received-Seq": (_COUNT, "The sequence number that was sent."),
    "Producer-Seq": (_COUNT, "The highest sequence number that was accepted."),
    "Retry-After": (_COUNT, "Seconds until another attempt makes sense."),
    "Stream-Closed": (_TRUE, "The response reaches the end, and nothing will ever follow."),
    "Stream-Cursor": ({"type": "string", "pattern": "^[0-9]+$"}, "To be sent back as `cursor` with the next wait."),
    "Stream-Earliest-Offset": (OFFSET, "Where what is retained begins."),
    "Stream-Expires-At": (TEXT, "When the stream ends, as it was given."),
    "Stream-Extensions": (TEXT, "What the stream can do beyond the base protocol."),
    "Stream-Incarnation": (_short(255), "The stream's life; another one after it was deleted and made anew."),
    "Stream-Next-Offset": (OFFSET, "Where to go on."),
    "Stream-Record-First": (_COUNT, "The ordinal of the oldest message that is retained."),
    "Stream-Record-Next": (_COUNT, "The ordinal after the last message in question."),
    "Stream-Record-Start": (_COUNT, "The ordinal of the first message in question."),
    "Stream-SSE-Data-Encoding": ({"type": "string", "enum": ["base64"]}, "How `data:` lines carry bytes."),
    "Stream-Snapshot-Offset": (_ANCHOR, "Where the latest snapshot stands; `-1` if there is none."),
    "Stream-TTL": (_COUNT, "Seconds that the stream lives after its last use."),
    "Stream-Up-To-Date": ({"type": "string", "enum": ["true", "false"]}, "Whether nothing follows for now."),
    "X-Accel-Buffering": (TEXT, "`no`: a proxy in between should not hold events back."),
}
