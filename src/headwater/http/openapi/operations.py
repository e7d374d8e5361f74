"""What each row of the URL table takes and gives, in the words of `fields`; the OpenAPI document is made of this.

Parameters, headers and the codes of refusals are listed by name, apart by spaces; a response header with a `?` may be
missing. Which status a refusal has, `statuses.REFUSALS` knows.
"""

from headwater.http.addresses import Resource
from headwater.http.openapi.operation_shapes import ANY, Gives, Operation, Takes
from headwater.http.openapi.own_operations import OWN_OPERATIONS
from headwater.protocol.content_types import DEFAULT, ENVELOPES, JSON, NDJSON

ALWAYS = (
    "bad_request invalid_header invalid_name method_not_allowed request_timeout too_large uri_too_long "
    "headers_too_large overloaded draining internal"
)
"""What any request may be refused for."""
FLAT_ONLY = "not_implemented"
BUCKETED_ONLY = "bucket_not_found"

REFUSAL_HEADERS: dict[int, str] = {
    400: "Stream-Incarnation? Stream-Next-Offset? Stream-Record-First? Stream-Record-Next? Producer-Epoch?",
    403: "Stream-Incarnation Producer-Epoch",
    405: "Allow",
    404: "Stream-Incarnation? Stream-Next-Offset?",
    409: "Stream-Incarnation? Stream-Next-Offset? Stream-Closed? Producer-Expected-Seq? Producer-Received-Seq?",
    410: "Stream-Incarnation? Stream-Next-Offset? Stream-Earliest-Offset? Stream-Record-First? Stream-Record-Next?",
    412: "Stream-Incarnation Stream-Next-Offset Stream-Record-Next?",
    429: "Stream-Incarnation Retry-After",
    503: "Retry-After",
}
"""What a refusal says beside its problem, by status; none of them is cached."""

_PRESENT = "stream_not_found stream_gone incarnation_changed"
_PRODUCER = "producer_incomplete producer_epoch_stale producer_epoch_invalid producer_seq_conflict producers_too_many"
_PLACE = "invalid_offset offset_trimmed offset_beyond_tail offset_unaligned"
_BORDER = f"{_PRESENT} {_PLACE} snapshot_conflict"
_SNAPSHOT = f"{_PRESENT} snapshot_not_found"
_CREATING = (
    f"stream_not_found incarnation_changed producer_incomplete producer_seq_conflict {_PLACE} invalid_json "
    "content_type_mismatch bucket_not_found stream_exists fork_conflict"
)
_APPENDING = (
    f"{_PRESENT} {_PRODUCER} invalid_json empty_body content_type_missing content_type_mismatch stream_closed "
    "stream_seq_conflict precondition_failed record_precondition_failed"
)

_STANDING = "Stream-Next-Offset Stream-Incarnation Stream-Closed?"
_RECORDS = "Stream-Record-Start? Stream-Record-First? Stream-Record-Next?"
_PRODUCED = "Producer-Epoch? Producer-Seq?"
_MADE = f"{_STANDING} Stream-Extensions"
_WRITER = "Producer-Id Producer-Epoch Producer-Seq Stream-Seq Stream-Incarnation Stream-Closed"
_PAGE = f"{_RECORDS} Stream-Up-To-Date? Stream-Cursor? ETag? Cache-Control Content-Disposition?"
# An SSE response names its offsets in events, since its head leaves before they are known.
_READ = f"Stream-Incarnation Stream-Next-Offset? Stream-Closed? {_PAGE} Stream-SSE-Data-Encoding? X-Accel-Buffering?"
_AT_SNAPSHOT = f"Stream-Snapshot-Offset {_STANDING} Stream-Up-To-Date"
_BYTES = {JSON: "Anything", "text/plain": "Text", DEFAULT: "Bytes", ANY: "Bytes"}
_PAGES = {JSON: "Messages", NDJSON: "Lines", ENVELOPES: "Lines", "text/event-stream": "Events", ANY: "Stored"}

_PUBLISH = Operation(
    "Publish a snapshot: what everything before its offset amounts to; history before it goes",
    {204: Gives("It is the latest snapshot now, or was already.", _AT_SNAPSHOT)},
    _BORDER,
    "incarnation",
    "Stream-Incarnation",
    Takes(_BYTES),
)
_RETAIN = Operation(
    "Let go of what is before an offset that a snapshot covers",
    {204: Gives("What is retained begins there now.", "Stream-Incarnation")},
    _BORDER,
    "incarnation",
    "Stream-Incarnation",
)
_NOT_DELETED = Operation(
    "Never deletes: bootstrap needs the latest snapshot, and no other one can be seen",
    {},
    f"{_SNAPSHOT} snapshot_conflict",
    "incarnation",
    "Stream-Incarnation",
)

OPERATIONS: dict[tuple[Resource, bool], dict[bytes, Operation]] = {
    (Resource.BUCKET, False): {
        b"PUT": Operation("Make a bucket", {201: Gives("It is there now.", "Cache-Control")}, "bucket_exists"),
        b"GET": Operation(
            "Look at a bucket",
            {200: Gives("Its name, and how many streams it holds.", "Cache-Control", {JSON: "Bucket"})},
            "bucket_not_found",
        ),
        b"DELETE": Operation("Drop an empty bucket", {204: Gives("It is gone.")}, "bucket_not_found bucket_not_empty"),
    },
    (Resource.LISTING, False): {
        b"GET": Operation(
            "List the streams of a bucket, by id",
            {200: Gives("A page of them.", "Cache-Control", {JSON: "Listing"})},
            "bucket_not_found",
            "prefix after limit",
        ),
    },
    (Resource.STREAM, False): {
        b"PUT": Operation(
            "Create a stream, perhaps with first messages, perhaps as a fork",
            {
                201: Gives("It is there now.", f"{_MADE} {_PRODUCED} Location"),
                200: Gives("It was there already, with the same configuration.", _MADE),
            },
            _CREATING,
            "incarnation",
            f"{_WRITER} Stream-TTL Stream-Expires-At Stream-Attrs Stream-Forked-From Stream-Fork-Offset "
            "Stream-Fork-Sub-Offset",
            Takes(_BYTES),
        ),
        b"POST": Operation(
            "Append, close, or both",
            {
                200: Gives("Appended, for a producer.", f"{_STANDING} {_RECORDS} Producer-Epoch Producer-Seq"),
                204: Gives(
                    "Appended; or closed; or a producer's repetition, which changed nothing.",
                    f"{_STANDING} {_RECORDS} {_PRODUCED}",
                ),
            },
            _APPENDING,
            "incarnation",
            f"{_WRITER} If-Match Stream-Record-Match",
            Takes(_BYTES),
        ),
        b"GET": Operation(
            "Read from an offset or a record on, once or live",
            {
                200: Gives("A page, or events.", _READ, _PAGES),
                204: Gives(
                    "A long-poll found nothing.",
                    f"{_STANDING} Stream-Up-To-Date Stream-Cursor? Cache-Control {_RECORDS}",
                ),
                304: Gives("The page is the one that the client has.", f"{_STANDING} {_PAGE}"),
            },
            f"{_PRESENT} {_PLACE} waiters_too_many",
            "offset live cursor timeout_ms max_bytes record tail_records max_records record_view incarnation",
            "If-None-Match Last-Event-ID Stream-Incarnation",
        ),
        b"HEAD": Operation(
            "Describe a stream; does not renew its lifetime",
            {
                status: Gives(
                    meaning,
                    f"{_MADE} ETag Cache-Control Stream-TTL? Stream-Expires-At? Stream-Snapshot-Offset? {_RECORDS}",
                )
                for status, meaning in {200: "What it is.", 304: "It is as the client knows it."}.items()
            },
            _PRESENT,
            "incarnation",
            "If-None-Match Stream-Incarnation",
        ),
        b"DELETE": Operation(
            "Delete a stream",
            {204: Gives("It is gone; forks of it keep what they share.", "Stream-Incarnation")},
            _PRESENT,
            "incarnation",
            "Stream-Incarnation",
        ),
    },
    (Resource.BATCH, False): {
        b"POST": Operation(
            "Append several messages at once: each a length of four bytes, big-endian, then that many bytes",
            {
                200: Gives(
                    "One acknowledgement per frame, in order.",
                    "Cache-Control Stream-Incarnation?",
                    {JSON: "Acknowledgements"},
                ),
                204: Gives(
                    "Every frame went in, and no acknowledgement was wanted.", "Preference-Applied Stream-Incarnation"
                ),
            },
            _APPENDING,
            "incarnation",
            f"{_WRITER} If-Match Stream-Record-Match Prefer",
            Takes({ANY: "Bytes"}, required=True),
        ),
    },
    (Resource.ATTRS, False): {
        b"PUT": Operation(
            "Replace a stream's attributes",
            {204: Gives("They are these now.", "Stream-Incarnation")},
            f"{_PRESENT} invalid_json",
            "incarnation",
            "Stream-Incarnation",
            Takes({JSON: "Attributes"}, required=True),
        ),
        b"GET": Operation(
            "A stream's attributes",
            {
                200: Gives(
                    "They are these; empty if none were set.", "Cache-Control Stream-Incarnation", {JSON: "Attributes"}
                )
            },
            _PRESENT,
            "incarnation",
            "Stream-Incarnation",
        ),
    },
    (Resource.SNAPSHOT, False): {
        b"PUT": _PUBLISH._replace(query="record incarnation"),
        b"GET": Operation(
            "Find the latest snapshot",
            {307: Gives("It is at this URL.", f"{_AT_SNAPSHOT} Location Cache-Control")},
            _SNAPSHOT,
            "incarnation",
            "Stream-Incarnation",
        ),
        b"DELETE": _NOT_DELETED,
    },
    (Resource.SNAPSHOT, True): {
        b"PUT": _PUBLISH,
        b"GET": Operation(
            "Read the snapshot at an offset",
            {200: Gives("Its bytes.", f"{_AT_SNAPSHOT} Cache-Control", {ANY: "Stored"})},
            _SNAPSHOT,
            "incarnation",
            "Stream-Incarnation",
        ),
        b"DELETE": _NOT_DELETED,
    },
    (Resource.RETENTION, False): {b"PUT": _RETAIN._replace(query="record incarnation")},
    (Resource.RETENTION, True): {b"PUT": _RETAIN},
    (Resource.BOOTSTRAP, False): {
        b"GET": Operation(
            "The latest snapshot and everything after it, in one response",
            {
                200: Gives(
                    "The snapshot, then each message, as parts.",
                    f"Stream-Snapshot-Offset {_STANDING} Stream-Up-To-Date Cache-Control",
                    {"multipart/mixed": "Parts"},
                )
            },
            _PRESENT,
            "incarnation",
            "Stream-Incarnation",
        ),
    },
} | OWN_OPERATIONS
