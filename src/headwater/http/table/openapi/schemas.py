"""The shapes of request and response bodies, as JSON Schema."""

from headwater.access.identities import Kind
from headwater.http.wire.codes import REFUSALS
from headwater.lake.format import SCHEMA
from headwater.node.lake.swaps import SEGMENTS_MAX
from headwater.protocol.limits import (
    DESCRIBE_STREAMS_MAX,
    LEASE_SECONDS_MAX,
    LISTING_MAX,
    NAME_BYTES_MAX,
    SCAN_RANGES_MAX,
    SILENCE_SECONDS_MAX,
    SILENCE_SECONDS_MIN,
    TAIL_STREAMS_MAX,
)
from headwater.protocol.refusals import Code
from headwater.protocol.shapes import ANY_OFFSET, OFFSET, TEXT, several
from headwater.protocol.shapes import Shape as Schema
from headwater.settings import Mode

_STATUSES = sorted({status for status, _ in REFUSALS.values()})
_WHOLE: Schema = {"type": "integer", "minimum": 0}
_POSITIONS: Schema = {
    "type": "object",
    "properties": {"0": {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}},
    "required": ["0"],
    "additionalProperties": False,
    "description": "A position for each shard.",
}
_NUMBER: Schema = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
_NAME: Schema = {"type": "string", "description": "A whole name, bucket/stream."}
_MAYBE: Schema = {"type": ["string", "null"]}
_CODE: Schema = {"type": "string", "enum": [code.value for code in Code]}


def _object(properties: Schema, *optional: str) -> Schema:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _tuples(meaning: str, *items: Schema) -> Schema:
    """An array of arrays, each with exactly these items."""
    one = {"type": "array", "prefixItems": list(items), "minItems": len(items), "maxItems": len(items)}
    return {"type": "array", "items": one | {"description": meaning}, "maxItems": SCAN_RANGES_MAX}


_PAGE: Schema = {"type": "integer", "minimum": 0, "maximum": LISTING_MAX}
_REST: Schema = {"next_cursor": {"type": ["string", "null"]}, "has_more": {"type": "boolean"}}


def _listing(bucket: Schema) -> Schema:
    streams: Schema = {"type": "array", "items": {"$ref": "#/components/schemas/Entry"}}
    return _object({**bucket, "prefix": TEXT, "stream_count": _PAGE, "streams": streams, **_REST})


SCHEMAS: dict[str, Schema] = {
    "Problem": _object(
        {
            "type": {"type": "string", "pattern": "^urn:headwater:error:"},
            "title": TEXT,
            "status": {"type": "integer", "enum": _STATUSES},
            "detail": TEXT,
            "code": _CODE,
            "expected_seq": _WHOLE,
            "received_seq": _WHOLE,
            "problems": {"type": "array", "items": {"$ref": "#/components/schemas/RangeProblem"}},
        },
        *("expected_seq", "received_seq", "problems"),
    ),
    "RangeProblem": _object(
        {"index": _WHOLE, "code": _CODE, "earliest": {"type": ["integer", "null"], "minimum": 0}},
    ),
    "Root": _object({"name": TEXT, "version": TEXT, "links": {"type": "object", "additionalProperties": TEXT}}),
    "Whoami": _object(
        {
            "name": TEXT,
            "kind": {"type": "string", "enum": [kind.value for kind in Kind]},
            "mode": {"type": "string", "enum": [mode.value for mode in Mode]},
            "log_id": {"type": ["string", "null"]},
            "expires_in_seconds": {"type": ["number", "null"]},
        }
    ),
    "Usage": _object(
        {
            "principals": {
                "type": "object",
                "additionalProperties": _object(
                    dict.fromkeys(("requests", "appended_bytes", "read_bytes", "creates"), _WHOLE)
                ),
            },
            "buckets": {
                "type": "object",
                "additionalProperties": _object({"streams": _WHOLE, "stored_bytes": _WHOLE}),
            },
        }
    ),
    "Reloaded": _object({key: {"type": "array", "items": TEXT} for key in ("added", "removed", "changed")}),
    "Cluster": {"type": "object", "description": "See docs/operate-cluster.md; fields may be added."},
    "Checkpoint": _object({"id": TEXT}),
    "ImageTaken": _object({"log_id": TEXT, "position": _WHOLE, "sequence": _WHOLE}),
    "Document": {"type": "object", "description": "OpenAPI 3.1."},
    "Bucket": _object({"bucket_id": TEXT, "streams": _WHOLE}),
    "Listing": _listing({"bucket_id": TEXT}),
    "WholeListing": _listing({"bucket_id": {"type": "null"}}),
    "BucketListing": _object(
        {
            "prefix": TEXT,
            "bucket_count": _PAGE,
            "buckets": {"type": "array", "items": {"$ref": "#/components/schemas/Bucket"}},
            **_REST,
        }
    ),
    "Entry": _object(
        {
            "stream_id": TEXT,
            "status": {"type": "string", "enum": ["Open", "Closed"]},
            "content_type": TEXT,
            "tail_offset": _WHOLE,
            "created_at_ms": _WHOLE,
            "last_write_at_ms": _WHOLE,
        }
    ),
    "Attributes": _object({"title": TEXT, "metadata": {"type": "object"}}, "title", "metadata"),
    "Acknowledgements": {"type": "array", "items": {"$ref": "#/components/schemas/Acknowledgement"}},
    "Acknowledgement": _object(
        {
            "status": {"type": "integer", "enum": [200, 204, *_STATUSES]},
            "stream_next_offset": OFFSET,
            "stream_record_start": _WHOLE,
            "stream_record_next": _WHOLE,
            "stream_closed": {"type": "boolean"},
            "error_code": _CODE,
            "error": TEXT,
        },
        *("stream_next_offset", "stream_record_start", "stream_record_next", "stream_closed", "error_code", "error"),
    ),
    "Status": {
        "type": "object",
        "description": "Version, positions, sizes, what is used of each limit, and the contents of the lake.",
    },
    "Log": _object(
        {
            "log_id": TEXT,
            "positions": _POSITIONS,
            "lake": {"anyOf": [_object({"url": {"type": ["string", "null"]}}), {"type": "null"}]},
        }
    ),
    "Positions": _object({"positions": _POSITIONS}),
    "Consumers": _object({"consumers": {"type": "array", "items": {"$ref": "#/components/schemas/Consumer"}}}),
    "Consumer": _object(
        {
            "consumer": TEXT,
            "positions": _POSITIONS,
            "committed_at_ms": _WHOLE,
            "lapsed": {"type": "boolean"},
            "lease": {"type": "boolean"},
            "silence_seconds": _WHOLE,
        }
    ),
    "IcebergError": _object({"error": _object({"message": TEXT, "type": TEXT, "code": {"type": "integer"}})}),
    "IcebergConfig": _object(
        {
            "defaults": {"type": "object"},
            "overrides": {"type": "object"},
            "endpoints": {"type": "array", "items": TEXT},
        }
    ),
    "IcebergNamespaces": _object({"namespaces": {"type": "array", "items": {"type": "array", "items": TEXT}}}),
    "IcebergNamespace": _object({"namespace": {"type": "array", "items": TEXT}, "properties": {"type": "object"}}),
    "IcebergTables": _object(
        {
            "identifiers": {
                "type": "array",
                "items": _object({"namespace": {"type": "array", "items": TEXT}, "name": TEXT}),
            }
        }
    ),
    "IcebergTable": _object({"metadata-location": TEXT, "metadata": {"type": "object"}, "config": {"type": "object"}}),
    "Registration": _object(
        {
            "positions": _POSITIONS,
            "lease_seconds": {"type": "integer", "minimum": 1, "maximum": LEASE_SECONDS_MAX},
            "renew": {"type": "boolean"},
            "silence_seconds": {"type": "integer", "minimum": SILENCE_SECONDS_MIN, "maximum": SILENCE_SECONDS_MAX},
        },
        *("positions", "lease_seconds", "renew", "silence_seconds"),
    ),
    "DescribeRequest": {
        "oneOf": [
            _object({"streams": {"type": "array", "items": _NAME, "maxItems": DESCRIBE_STREAMS_MAX}}),
            _object(
                {
                    "prefix": TEXT,
                    "after": {"type": ["string", "null"]},
                    "limit": {"type": ["integer", "null"], "minimum": 1, "maximum": DESCRIBE_STREAMS_MAX},
                },
                *("after", "limit"),
            ),
        ]
    },
    "LocateRequest": _object({"records": _tuples("A record: stream, incarnation, ordinal.", _NAME, _NUMBER, _NUMBER)}),
    "Offsets": _object({"offsets": {"type": "array", "items": {"type": ["integer", "null"], "minimum": 0}}}),
    "ScanRequest": _object(
        {
            "ranges": _tuples("A range: stream, incarnation, from, until.", _NAME, _NUMBER, _NUMBER, _NUMBER),
            "columns": {"type": ["array", "null"], "items": {"type": "string", "enum": SCHEMA.names}, "minItems": 1},
            "since": _NUMBER | {"type": ["integer", "null"]},
            "until": _NUMBER | {"type": ["integer", "null"]},
        },
        *("columns", "since", "until"),
    ),
    "TailRequest": _object({"streams": several({"$ref": "#/components/schemas/TailedStream"}, TAIL_STREAMS_MAX)}),
    "TailedStream": _object(
        {
            "stream": _NAME | {"maxLength": NAME_BYTES_MAX, "pattern": r"^[^/\u0000]+/[^\u0000]+$"},
            "offset": ANY_OFFSET,
            "incarnation": {"type": ["string", "null"], "description": "The incarnation that the offset is of."},
        },
        "incarnation",
    ),
    "TailEvents": {
        "description": "A `batch` event for each stream at once, then one for each that has something new; `refused` "
        "for a stream that cannot be read; at last `end`. The reference, docs/reference/http.md, has their members.",
    },
    "SwapRequest": _object(
        {
            "shard": {"type": "integer", "enum": [0]},
            "replaced": {"type": "array", "items": _NUMBER, "minItems": 1, "maxItems": SEGMENTS_MAX},
            "keys": {"type": "array", "items": TEXT, "maxItems": SEGMENTS_MAX},
            "dropped": _NUMBER,
            "deadline": _NUMBER,
        }
    ),
    "Swapped": _object({"position": _WHOLE}),
    "PurgeRequest": _object(
        {"stream": _MAYBE, "prefix": _MAYBE, "with_forks": {"type": "boolean"}}, "stream", "prefix", "with_forks"
    ),
    "PurgeBegun": _object({"purge": TEXT, "streams": _WHOLE}),
    "PurgeStatus": _object(
        {
            "purge": TEXT,
            "stage": {"enum": ["deleting", "rewriting", "dropping", "done", "refused"]},
            "done": {"type": "boolean"},
            "problem": _MAYBE,
        }
    ),
    "Descriptions": {"description": "An Arrow stream; its columns are in the reference, docs/reference/http.md."},
    "Scanned": {"description": "An Arrow stream in the columns of the lake, all or those that the request names."},
    "Appends": {
        "type": "string",
        "format": "binary",
        "description": "An Arrow stream, one row for each append; its columns are in the reference.",
    },
    "Outcomes": {"description": "An Arrow stream, one row for each row of the request."},
    "Messages": {"type": "array", "description": "The messages of a JSON stream, as they were sent."},
    "Lines": {"description": "One message per line."},
    "Events": {"description": "`data` events, each followed by a `control` event."},
    "Anything": {"description": "Any JSON value; each element of an array is one message."},
    "Parts": {"description": "First the snapshot, which is empty if there is none, then one part for each message."},
    "Stored": {"description": "The bytes as they were sent."},
    "Text": TEXT,
    "Bytes": {"type": "string", "format": "binary"},
}
