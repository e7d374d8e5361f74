"""THE table of HTTP headers: every one that means something here, what it means in each direction, and its shape.

Everything else is derived from these rows: which headers a request may carry only once, which ones browsers may send
(CORS), the OpenAPI document and the reference page. Code names a header by its row, never by its text.
"""

from typing import Any, NamedTuple

from headwater.protocol import shapes
from headwater.protocol.limits import (
    ATTRS_BYTES_MAX,
    PRODUCER_ID_BYTES_MAX,
    STREAM_SEQ_BYTES_MAX,
    TTL_SECONDS_MAX,
)
from headwater.protocol.shapes import Shape


class Use(NamedTuple):
    """What a header says in one direction."""

    shape: Shape
    meaning: str


class Header:
    """One row of the table."""

    __slots__ = ("allowed", "key", "line", "lower", "name", "request", "response", "singular")

    def __init__(
        self,
        name: str,
        *,
        request: Use | None = None,
        response: Use | None = None,
        singular: bool = False,
        allowed: bool | None = None,
    ) -> None:
        self.name = name
        self.lower = name.lower()
        self.key = self.lower.encode()
        """The name as parsed requests have it."""
        self.line = f"{name}: "
        """The beginning of a header line."""
        self.request, self.response = request, response
        self.singular = singular
        """Whether a request that carries it twice is refused."""
        self.allowed = request is not None if allowed is None else allowed
        """Whether a page of another origin may send it."""

    def __repr__(self) -> str:
        return f"<Header {self.name}>"


TABLE: list[Header] = []


def _row(name: str, **facts: Any) -> Header:
    header = Header(name, **facts)
    TABLE.append(header)
    return header


# -- HTTP's own ------------------------------------------------------------------------------------------------------

ALLOW = _row("Allow", response=Use(shapes.TEXT, "The methods of this resource."))
AUTHORIZATION = _row("Authorization", singular=True, allowed=True)
CACHE_CONTROL = _row(
    "Cache-Control",
    response=Use(shapes.TEXT, "Whether and how long a cache may keep the response."),
    allowed=True,
)
CONTENT_DISPOSITION = _row(
    "Content-Disposition",
    response=Use(shapes.TEXT, "`attachment` on byte streams, if the server is configured to send it."),
)
CONTENT_LENGTH = _row("Content-Length", singular=True)
CONTENT_TYPE = _row("Content-Type", singular=True, allowed=True)
ETAG = _row("ETag", response=Use(shapes.ETAG, "Names the stream's incarnation, the range read, and whether it ended."))
HOST = _row("Host", singular=True)
IF_MATCH = _row(
    "If-Match", request=Use(shapes.TEXT, "Change the stream only while it is as it was when it returned this `ETag`.")
)
IF_NONE_MATCH = _row(
    "If-None-Match",
    request=Use(shapes.TEXT, "Answer 304 if the `ETag` is still this one; `*` on a create: 412 if the stream exists."),
)
LAST_EVENT_ID = _row(
    "Last-Event-ID",
    request=Use(shapes.TEXT, "The id of the last SSE event received; overrides `offset`."),
    singular=True,
)
LOCATION = _row("Location", response=Use(shapes.TEXT, "The URL of the new stream, or of the latest snapshot."))
PREFER = _row(
    "Prefer", request=Use(shapes.TEXT, "`return=minimal`: no acknowledgement per frame when all of them were accepted.")
)
PREFERENCE_APPLIED = _row("Preference-Applied", response=Use(shapes.TEXT, "The preference that was honoured."))
RETRY_AFTER = _row("Retry-After", response=Use(shapes.COUNT, "Seconds to wait before trying again."))
RATE_LIMIT = _row("RateLimit", response=Use(shapes.TEXT, "What is left of a limit, and when there is more."))
RATE_LIMIT_POLICY = _row("RateLimit-Policy", response=Use(shapes.TEXT, "The limit: so much in a window of seconds."))
WWW_AUTHENTICATE = _row("WWW-Authenticate", response=Use(shapes.TEXT, "What a credential must prove, on 401 and 403."))
X_ACCEL_BUFFERING = _row("X-Accel-Buffering", response=Use(shapes.TEXT, "`no`: asks proxies not to buffer events."))

X_REQUEST_ID = _row(
    "X-Request-Id",
    request=Use(shapes.TEXT, "A name for this request, 1 to 64 of `A-Z a-z 0-9 _ . : -`; it appears in the log."),
    response=Use(shapes.TEXT, "The request's own `X-Request-Id`."),
)

# -- HTTP's machinery: read and written, without a meaning of our own ------------------------------------------------

ACCEPT = _row("Accept")
ACCESS_CONTROL_ALLOW_HEADERS = _row("Access-Control-Allow-Headers")
ACCESS_CONTROL_ALLOW_METHODS = _row("Access-Control-Allow-Methods")
ACCESS_CONTROL_ALLOW_ORIGIN = _row("Access-Control-Allow-Origin")
ACCESS_CONTROL_EXPOSE_HEADERS = _row("Access-Control-Expose-Headers")
ACCESS_CONTROL_MAX_AGE = _row("Access-Control-Max-Age")
CONNECTION = _row("Connection")
CONTENT_SECURITY_POLICY = _row("Content-Security-Policy")
CROSS_ORIGIN_RESOURCE_POLICY = _row("Cross-Origin-Resource-Policy")
DATE = _row("Date")
EXPECT = _row("Expect")
ORIGIN = _row("Origin")
REFERRER_POLICY = _row("Referrer-Policy")
SERVER = _row("Server")
SERVICE_WORKER = _row("Service-Worker")
TRANSFER_ENCODING = _row("Transfer-Encoding")
UPGRADE = _row("Upgrade")
USER_AGENT = _row("User-Agent")
VARY = _row("Vary")
X_CONTENT_TYPE_OPTIONS = _row("X-Content-Type-Options")
X_FORWARDED_FOR = _row("X-Forwarded-For")
X_FORWARDED_PROTO = _row("X-Forwarded-Proto")

# -- Producers -------------------------------------------------------------------------------------------------------

PRODUCER_ID = _row(
    "Producer-Id",
    request=Use(shapes.text(PRODUCER_ID_BYTES_MAX), "The producer's name; requires the other two producer headers."),
    singular=True,
)
PRODUCER_EPOCH = _row(
    "Producer-Epoch",
    request=Use(shapes.NUMBER, "The producer's generation; a higher epoch fences off lower ones."),
    response=Use(shapes.COUNT, "The producer's epoch as the stream knows it."),
    singular=True,
)
PRODUCER_SEQ = _row(
    "Producer-Seq",
    request=Use(shapes.NUMBER, "The number of this request within its epoch, from 0; a repeated one has no effect."),
    response=Use(shapes.COUNT, "The highest sequence number accepted."),
    singular=True,
)
PRODUCER_EXPECTED_SEQ = _row(
    "Producer-Expected-Seq", response=Use(shapes.COUNT, "The sequence number that the stream expects next.")
)
PRODUCER_RECEIVED_SEQ = _row("Producer-Received-Seq", response=Use(shapes.COUNT, "The sequence number in the request."))

# -- Streams ---------------------------------------------------------------------------------------------------------

STREAM_ATTRS = _row(
    "Stream-Attrs",
    request=Use(shapes.TEXT, f"Attributes of a new stream as JSON, at most {ATTRS_BYTES_MAX} bytes."),
    singular=True,
)
STREAM_CLOSED = _row(
    "Stream-Closed",
    request=Use(shapes.TEXT, "`true`: close the stream with this request; nothing can be appended afterwards."),
    response=Use(shapes.TRUE, "The response reaches the end of a closed stream: nothing will ever follow."),
    singular=True,
)
STREAM_CURSOR = _row(
    "Stream-Cursor", response=Use(shapes.DIGITS, "Send it back as `cursor` with the next live request.")
)
STREAM_EARLIEST_OFFSET = _row(
    "Stream-Earliest-Offset", response=Use(shapes.OFFSET, "The offset at which retained data begins.")
)
STREAM_EXPIRES_AT = _row(
    "Stream-Expires-At",
    request=Use(shapes.TEXT, "When a new stream expires, as an RFC 3339 timestamp; not together with `Stream-TTL`."),
    response=Use(shapes.TEXT, "When the stream expires, as it was requested."),
    singular=True,
)
STREAM_EXTENSIONS = _row(
    "Stream-Extensions", response=Use(shapes.TEXT, "The extensions of the base protocol that the stream supports.")
)
STREAM_FORKED_FROM = _row(
    "Stream-Forked-From", request=Use(shapes.TEXT, "The path of the stream to fork."), singular=True
)
STREAM_FORK_OFFSET = _row(
    "Stream-Fork-Offset",
    request=Use(shapes.OFFSET_OR_START, "Where the fork leaves its source; the source's tail by default."),
    singular=True,
)
STREAM_FORK_SUB_OFFSET = _row(
    "Stream-Fork-Sub-Offset",
    request=Use(shapes.COUNT, "How many messages (JSON) or bytes past `Stream-Fork-Offset` the fork begins."),
    singular=True,
)
STREAM_INCARNATION = _row(
    "Stream-Incarnation",
    request=Use(shapes.TEXT, "The incarnation that the request is about; 410 if the stream has been re-created."),
    response=Use(shapes.text(255), "The stream's incarnation; a stream deleted and created again has another one."),
    singular=True,
)
STREAM_LOG_ID = _row(
    "Stream-Log-Id",
    request=Use(
        shapes.text(255),
        "The `log_id` of the server that numbers in the request came from; 410 if this server has another log, as "
        "after a restore.",
    ),
    singular=True,
)
STREAM_NEXT_OFFSET = _row("Stream-Next-Offset", response=Use(shapes.OFFSET, "The offset to read from next."))
STREAM_RECORD_FIRST = _row(
    "Stream-Record-First", response=Use(shapes.COUNT, "The record number of the oldest retained message.")
)
STREAM_RECORD_MATCH = _row(
    "Stream-Record-Match",
    request=Use(shapes.COUNT, "Append only if the next message gets this record number; JSON streams only."),
    singular=True,
)
STREAM_RECORD_NEXT = _row(
    "Stream-Record-Next", response=Use(shapes.COUNT, "The record number after the last message of the response.")
)
STREAM_RECORD_START = _row(
    "Stream-Record-Start", response=Use(shapes.COUNT, "The record number of the first message of the response.")
)
STREAM_SEQ = _row(
    "Stream-Seq",
    request=Use(shapes.text(STREAM_SEQ_BYTES_MAX), "Must sort after the previous one; for writers that take turns."),
    singular=True,
)
STREAM_SNAPSHOT_DIGEST = _row(
    "Stream-Snapshot-Digest", response=Use(shapes.text(255), "Names the contents of the latest snapshot; opaque.")
)
STREAM_SNAPSHOT_MATCH = _row(
    "Stream-Snapshot-Match",
    request=Use(
        shapes.text(255),
        "Publish only if the latest snapshot has this `Stream-Snapshot-Digest`; `none`: only if there is none.",
    ),
    singular=True,
)
STREAM_SNAPSHOT_OFFSET = _row(
    "Stream-Snapshot-Offset",
    response=Use(shapes.OFFSET_OR_START, "The offset of the latest snapshot; `-1` if there is none."),
)
STREAM_SSE_DATA_ENCODING = _row(
    "Stream-SSE-Data-Encoding", response=Use(shapes.one_of("base64"), "How `data:` lines encode bytes.")
)
STREAM_TTL = _row(
    "Stream-TTL",
    request=Use(
        shapes.whole(0, TTL_SECONDS_MAX),
        "How many seconds a new stream lives after its last use; not together with `Stream-Expires-At`.",
    ),
    response=Use(shapes.COUNT, "How many seconds the stream lives after its last use."),
    singular=True,
)
STREAM_UP_TO_DATE = _row(
    "Stream-Up-To-Date", response=Use(shapes.FLAG, "Whether the response reaches the current tail.")
)

# -- Derived ---------------------------------------------------------------------------------------------------------

SINGULAR = frozenset(header.key for header in TABLE if header.singular)
"""Headers that a request may carry only once."""
ALLOWED = ", ".join(header.name for header in TABLE if header.allowed)
"""What a page of another origin may send."""
