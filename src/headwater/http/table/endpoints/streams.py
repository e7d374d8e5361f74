"""Rows for streams and what is below them."""

from headwater.access.audit import Event
from headwater.access.grants import Action
from headwater.http.api import attributes, batches, bootstrap, reads, snapshots, streams
from headwater.http.table.routes import ANY, Endpoint, Gives, Route, Takes
from headwater.protocol import headers as h
from headwater.protocol.content_types import DEFAULT, ENVELOPES, JSON, NDJSON
from headwater.protocol.limits import BATCH_BYTES_MAX, SNAPSHOT_BYTES_MAX
from headwater.protocol.refusals import Code

# -- What several rows share ------------------------------------------------------------------------------------------

_EXISTS = (Code.STREAM_NOT_FOUND, Code.STREAM_GONE, Code.INCARNATION_CHANGED)
_POSITION = (Code.INVALID_OFFSET, Code.OFFSET_TRIMMED, Code.OFFSET_BEYOND_TAIL, Code.OFFSET_UNALIGNED)
_BOUNDARY = (*_EXISTS, *_POSITION, Code.SNAPSHOT_CONFLICT)
_SNAPSHOT = (*_EXISTS, Code.SNAPSHOT_NOT_FOUND)
_CREATING = (
    *(Code.STREAM_NOT_FOUND, Code.INCARNATION_CHANGED, Code.PRODUCER_INCOMPLETE, Code.PRODUCER_SEQ_CONFLICT),
    *(Code.PRODUCER_PAYLOAD_MISMATCH, Code.PRODUCER_EPOCH_STALE, Code.PRECONDITION_FAILED),
    *(*_POSITION, Code.INVALID_JSON, Code.CONTENT_TYPE_MISMATCH, Code.BUCKET_NOT_FOUND),
    *(Code.STREAM_EXISTS, Code.FORK_CONFLICT, Code.QUOTA_EXCEEDED),
)
_APPENDING = (
    *(*_EXISTS, Code.PRODUCER_INCOMPLETE, Code.PRODUCER_EPOCH_STALE, Code.PRODUCER_EPOCH_INVALID),
    *(
        Code.PRODUCER_PAYLOAD_MISMATCH,
        Code.PRODUCER_SEQ_CONFLICT,
        Code.PRODUCERS_TOO_MANY,
        Code.INVALID_JSON,
        Code.EMPTY_BODY,
    ),
    *(Code.CONTENT_TYPE_MISSING, Code.CONTENT_TYPE_MISMATCH, Code.STREAM_CLOSED, Code.STREAM_SEQ_CONFLICT),
    *(Code.PRECONDITION_FAILED, Code.RECORD_PRECONDITION_FAILED, Code.QUOTA_EXCEEDED),
)

_ABOUT = (h.STREAM_NEXT_OFFSET, h.STREAM_INCARNATION)
_RECORDS = (h.STREAM_RECORD_START, h.STREAM_RECORD_FIRST, h.STREAM_RECORD_NEXT)
_PRODUCER = (h.PRODUCER_EPOCH, h.PRODUCER_SEQ)
_WRITER = (h.PRODUCER_ID, *_PRODUCER, h.STREAM_SEQ, h.STREAM_INCARNATION, h.STREAM_CLOSED)
_CONDITIONS = (h.IF_MATCH, h.STREAM_RECORD_MATCH)
_FORK = (h.STREAM_FORKED_FROM, h.STREAM_FORK_OFFSET, h.STREAM_FORK_SUB_OFFSET)
_PAGE = (*_RECORDS, h.STREAM_EXTENSIONS, h.STREAM_UP_TO_DATE, h.STREAM_CURSOR, h.ETAG, h.CONTENT_DISPOSITION, h.VARY)
_AT_SNAPSHOT = (h.STREAM_SNAPSHOT_OFFSET, h.STREAM_SNAPSHOT_DIGEST, *_ABOUT, h.STREAM_UP_TO_DATE)
_DESCRIPTION = (*_ABOUT, h.STREAM_EXTENSIONS, h.ETAG, h.CACHE_CONTROL, h.VARY)
_LIFETIME = (h.STREAM_TTL, h.STREAM_EXPIRES_AT)
_SNAPSHOT_FACTS = (h.STREAM_SNAPSHOT_OFFSET, h.STREAM_SNAPSHOT_DIGEST)

_MESSAGES = {JSON: "Anything", "text/plain": "Text", DEFAULT: "Bytes", ANY: "Bytes"}
_PAGES = {JSON: "Messages", NDJSON: "Lines", ENVELOPES: "Lines", "text/event-stream": "Events", ANY: "Stored"}
_BODY = Takes(_MESSAGES, examples={JSON: [{"hello": "world"}], "text/plain": "hello, world"})

_INCARNATION = ("incarnation",)
_RECORD = ("record", "incarnation")

# -- Rows -------------------------------------------------------------------------------------------------------------

_STREAM = Endpoint(
    "/{bucket}/{stream}",
    "stream",
    {
        b"GET": Route(
            reads.read,
            Action.READ,
            "Read a stream from an offset or a record, once or live",
            {
                # An SSE response sends its offsets in events, since its head leaves before they are known.
                200: Gives(
                    "A page, or events.",
                    (h.STREAM_INCARNATION, h.CACHE_CONTROL),
                    (
                        *(h.STREAM_NEXT_OFFSET, h.STREAM_CLOSED, *_PAGE),
                        *(h.STREAM_SSE_DATA_ENCODING, h.X_ACCEL_BUFFERING),
                    ),
                    _PAGES,
                ),
                204: Gives(
                    "A long-poll found no new data.",
                    (*_ABOUT, h.STREAM_UP_TO_DATE, h.CACHE_CONTROL),
                    (h.STREAM_CLOSED, h.STREAM_CURSOR, *_RECORDS, h.STREAM_EXTENSIONS),
                ),
                304: Gives("The client already has this page.", (*_ABOUT, h.CACHE_CONTROL), (h.STREAM_CLOSED, *_PAGE)),
            },
            (*_EXISTS, *_POSITION, Code.WAITERS_TOO_MANY),
            query=(
                *("offset", "live", "cursor", "timeout_ms", "max_bytes"),
                *("record", "tail_records", "max_records", "record_view", "incarnation"),
            ),
            headers=(h.IF_NONE_MATCH, h.LAST_EVENT_ID, h.STREAM_INCARNATION),
        ),
        b"HEAD": Route(
            streams.head,
            Action.READ,
            "Describe a stream, without renewing its lifetime",
            {
                status: Gives(meaning, _DESCRIPTION, (h.STREAM_CLOSED, *_LIFETIME, *_SNAPSHOT_FACTS, *_RECORDS))
                for status, meaning in {200: "The description.", 304: "The stream has not changed."}.items()
            },
            _EXISTS,
            query=_INCARNATION,
            headers=(h.IF_NONE_MATCH, h.STREAM_INCARNATION),
        ),
        b"POST": Route(
            streams.append,
            Action.APPEND,
            "Append to a stream, close it, or both",
            {
                200: Gives("A producer's data was appended.", (*_ABOUT, *_PRODUCER), (h.STREAM_CLOSED, *_RECORDS)),
                204: Gives(
                    "Appended or closed; or a producer repeated a request, which changed nothing.",
                    _ABOUT,
                    (h.STREAM_CLOSED, *_RECORDS, *_PRODUCER),
                ),
            },
            _APPENDING,
            query=_INCARNATION,
            headers=(*_WRITER, *_CONDITIONS),
            takes=_BODY,
            judge=streams.judge,
        ),
        b"PUT": Route(
            streams.create,
            Action.CREATE,
            "Create a stream, optionally with first messages or as a fork",
            {
                201: Gives(
                    "The stream was created.",
                    (*_ABOUT, h.STREAM_EXTENSIONS, h.LOCATION),
                    (h.STREAM_CLOSED, *_PRODUCER, h.STREAM_RECORD_START, h.STREAM_RECORD_NEXT),
                    event=Event.CREATED,
                ),
                200: Gives(
                    "The stream exists with the same configuration.",
                    (*_ABOUT, h.STREAM_EXTENSIONS),
                    (h.STREAM_CLOSED,),
                ),
            },
            _CREATING,
            query=_INCARNATION,
            headers=(*_WRITER, *_LIFETIME, h.STREAM_ATTRS, *_FORK, h.IF_NONE_MATCH),
            takes=_BODY,
        ),
        b"DELETE": Route(
            streams.delete,
            Action.DELETE,
            "Delete a stream",
            {
                204: Gives(
                    "The stream was deleted; forks of it keep what they share.",
                    (h.STREAM_INCARNATION,),
                    event=Event.DELETED,
                )
            },
            (*_EXISTS, Code.PRECONDITION_FAILED),
            query=_INCARNATION,
            headers=(h.STREAM_INCARNATION, h.IF_MATCH),
        ),
    },
)

_BATCH = Endpoint(
    "/{bucket}/{stream}/append-batch",
    "append-batch",
    {
        b"POST": Route(
            batches.append,
            Action.APPEND,
            "Append several messages at once, each preceded by its length as four bytes, big-endian",
            {
                200: Gives(
                    "One acknowledgement per frame, in order.",
                    (h.CACHE_CONTROL,),
                    (h.STREAM_INCARNATION, *_PRODUCER),
                    {JSON: "Acknowledgements"},
                ),
                204: Gives(
                    "Every frame was accepted, and the client wanted no acknowledgements.",
                    (h.PREFERENCE_APPLIED, h.STREAM_INCARNATION),
                    _PRODUCER,
                ),
            },
            _APPENDING,
            query=_INCARNATION,
            headers=(*_WRITER, *_CONDITIONS, h.PREFER),
            takes=Takes({ANY: "Bytes"}, required=True),
            body_bytes_max=BATCH_BYTES_MAX,
        )
    },
)

_ATTRIBUTES = Endpoint(
    "/{bucket}/{stream}/attrs",
    "attrs",
    {
        b"PUT": Route(
            attributes.replace,
            Action.CREATE,
            "Replace a stream's attributes",
            {204: Gives("The attributes were replaced.", (h.STREAM_INCARNATION,))},
            (*_EXISTS, Code.INVALID_JSON),
            query=_INCARNATION,
            headers=(h.STREAM_INCARNATION,),
            takes=Takes(
                {JSON: "Attributes"},
                required=True,
                examples={JSON: {"title": "Orders", "metadata": {"team": "shop"}}},
            ),
        ),
        b"GET": Route(
            attributes.read,
            Action.READ,
            "Read a stream's attributes",
            {
                200: Gives(
                    "The attributes; an empty object if there are none.",
                    (h.CACHE_CONTROL, h.STREAM_INCARNATION),
                    content={JSON: "Attributes"},
                )
            },
            _EXISTS,
            query=_INCARNATION,
            headers=(h.STREAM_INCARNATION,),
        ),
    },
)


def _publish(query: tuple[str, ...]) -> Route:
    return Route(
        snapshots.publish,
        Action.SNAPSHOT,
        "Publish a snapshot that sums up everything before its offset; history before it is trimmed",
        {204: Gives("It is the latest snapshot.", _AT_SNAPSHOT, (h.STREAM_CLOSED,), event=Event.SNAPSHOT)},
        (*_BOUNDARY, Code.PRECONDITION_FAILED),
        query=query,
        headers=(h.STREAM_INCARNATION, h.IF_MATCH, h.STREAM_SNAPSHOT_MATCH),
        takes=_BODY,
        body_bytes_max=SNAPSHOT_BYTES_MAX,
        intake=snapshots.intake,
        judge=snapshots.judge,
    )


def _retain(query: tuple[str, ...]) -> Route:
    return Route(
        snapshots.retain,
        Action.DELETE,
        "Trim history before an offset that a snapshot covers",
        {204: Gives("Retained data begins at the offset.", (h.STREAM_INCARNATION,), event=Event.RETAINED)},
        _BOUNDARY,
        query=query,
        headers=(h.STREAM_INCARNATION,),
    )


_NEVER_DELETED = Route(
    snapshots.delete,
    Action.SNAPSHOT,
    "Always refused: bootstrap needs the latest snapshot, and no other one is visible",
    {},
    (*_SNAPSHOT, Code.SNAPSHOT_CONFLICT),
    query=_INCARNATION,
    headers=(h.STREAM_INCARNATION,),
)

_SNAPSHOTS = (
    Endpoint(
        "/{bucket}/{stream}/snapshot",
        "snapshot",
        {
            b"PUT": _publish(_RECORD),
            b"GET": Route(
                snapshots.read,
                Action.READ,
                "Find the latest snapshot",
                {
                    307: Gives(
                        "The snapshot is at this URL.",
                        (*_AT_SNAPSHOT, h.LOCATION, h.CACHE_CONTROL),
                        (h.STREAM_CLOSED,),
                    )
                },
                _SNAPSHOT,
                query=_INCARNATION,
                headers=(h.STREAM_INCARNATION,),
            ),
            b"DELETE": _NEVER_DELETED,
        },
    ),
    Endpoint(
        "/{bucket}/{stream}/snapshot/{offset}",
        "snapshot",
        {
            b"PUT": _publish(_INCARNATION),
            b"GET": Route(
                snapshots.read,
                Action.READ,
                "Read the snapshot at an offset",
                {200: Gives("Its bytes.", (*_AT_SNAPSHOT, h.CACHE_CONTROL), (h.STREAM_CLOSED,), {ANY: "Stored"})},
                _SNAPSHOT,
                query=_INCARNATION,
                headers=(h.STREAM_INCARNATION,),
            ),
            b"DELETE": _NEVER_DELETED,
        },
        operation="snapshot_at",
    ),
    Endpoint("/{bucket}/{stream}/retention", "retention", {b"PUT": _retain(_RECORD)}),
    Endpoint(
        "/{bucket}/{stream}/retention/{offset}", "retention", {b"PUT": _retain(_INCARNATION)}, operation="retention_at"
    ),
    Endpoint(
        "/{bucket}/{stream}/bootstrap",
        "bootstrap",
        {
            b"GET": Route(
                bootstrap.read,
                Action.READ,
                "Read the latest snapshot and everything after it in one response",
                {
                    200: Gives(
                        "The snapshot, then each message, as parts.",
                        (h.STREAM_SNAPSHOT_OFFSET, *_ABOUT, h.STREAM_UP_TO_DATE, h.CACHE_CONTROL),
                        (h.STREAM_CLOSED, h.STREAM_SNAPSHOT_DIGEST),
                        {"multipart/mixed": "Parts"},
                    )
                },
                _EXISTS,
                query=_INCARNATION,
                headers=(h.STREAM_INCARNATION,),
            )
        },
        head=False,
    ),
)

STREAMS = (_STREAM, _BATCH, _ATTRIBUTES, *_SNAPSHOTS)
