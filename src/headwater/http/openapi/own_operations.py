"""What the rows of the URL table take and give that are about the server itself, its lake, and many streams at once."""

from headwater.http.addresses import Resource
from headwater.http.openapi.operation_shapes import Gives, Operation, Takes
from headwater.node.bulk.arrow import MEDIA_TYPE as ARROW
from headwater.protocol.content_types import JSON

OWN_OPERATIONS: dict[tuple[Resource, bool], dict[bytes, Operation]] = {
    (Resource.HEALTH, False): {
        b"GET": Operation(
            "Whether the process runs", {200: Gives("It does.", "Cache-Control", {"text/plain": "Text"})}, ""
        ),
    },
    (Resource.READY, False): {
        b"GET": Operation(
            "Whether to send requests here: not while it starts, nor while it ends",
            {200: Gives("Yes.", "Cache-Control", {"text/plain": "Text"})},
            "",
        ),
    },
    (Resource.METRICS, False): {
        b"GET": Operation(
            "Counters in the text format of Prometheus",
            {200: Gives("All of them.", "Cache-Control", {"text/plain": "Text"})},
            "",
        ),
    },
    (Resource.STATUS, False): {
        b"GET": Operation(
            "What the server is and how it does",
            {200: Gives("For people and scripts; more may be added.", "Cache-Control", {JSON: "Status"})},
            "",
        ),
    },
    (Resource.FLUSH, False): {
        b"POST": Operation(
            "Put everything that was acknowledged so far into the lake, and wait until it is there",
            {200: Gives("Up to which position of each shard that is.", "Cache-Control", {JSON: "Positions"})},
            "",
        ),
    },
    (Resource.DESCRIBE, False): {
        b"POST": Operation(
            "What many streams are: those that are named, or a page of those whose whole names begin with a prefix",
            {200: Gives("A row for each that lives, sorted by name.", "Cache-Control", {ARROW: "Descriptions"})},
            "",
            body=Takes({JSON: "DescribeRequest"}, required=True),
        ),
    },
    (Resource.LOCATE, False): {
        b"POST": Operation(
            "At which offsets records begin",
            {
                200: Gives(
                    "An offset for each, null where that life is gone, trimmed past it or not that long.",
                    "Cache-Control",
                    {JSON: "Offsets"},
                )
            },
            "",
            body=Takes({JSON: "LocateRequest"}, required=True),
        ),
    },
    (Resource.SCAN, False): {
        b"POST": Operation(
            "Read ranges of many streams: of each the messages that begin in it",
            {
                200: Gives(
                    "The rows range by range, in the columns of the lake, as of one instant.",
                    "Cache-Control",
                    {ARROW: "Scanned"},
                )
            },
            "ranges_unavailable",
            body=Takes({JSON: "ScanRequest"}, required=True),
        ),
    },
    (Resource.BULK_APPEND, False): {
        b"POST": Operation(
            "Append to many streams: each row is an append of its own, judged as if it had come alone",
            {
                200: Gives(
                    "What became of each row, in order, when all are decided; behind a refused row no other of its "
                    "stream goes in.",
                    "Cache-Control",
                    {ARROW: "Outcomes"},
                )
            },
            "",
            body=Takes({ARROW: "Appends"}, required=True),
        ),
    },
    (Resource.SWAP, False): {
        b"POST": Operation(
            "Put rewritten segments, whose objects are in the lake already, in the place of others",
            {200: Gives("It has happened, at this position or before.", "Cache-Control", {JSON: "Swapped"})},
            "swap_refused",
            body=Takes({JSON: "SwapRequest"}, required=True),
        ),
    },
    (Resource.READERS, False): {
        b"GET": Operation(
            "Every registered reader of the lake", {200: Gives("By name.", "Cache-Control", {JSON: "Readers"})}, ""
        ),
    },
    (Resource.READER, False): {
        b"GET": Operation(
            "One registered reader of the lake",
            {200: Gives("How far it has come.", "Cache-Control", {JSON: "Reader"})},
            "reader_not_found",
        ),
        b"PUT": Operation(
            "Say how far a reader of the lake has come; what lies above stays there for it",
            {204: Gives("Noted; it counts for seven days.", "Cache-Control")},
            "",
            body=Takes({JSON: "Positions"}, required=True),
        ),
        b"DELETE": Operation(
            "Keep nothing for a reader any more", {204: Gives("It is not registered.", "Cache-Control")}, ""
        ),
    },
}
