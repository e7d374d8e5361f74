"""Parameters and headers as the OpenAPI document describes them; the tables are in `protocol`."""

from headwater.protocol import headers, parameters, shapes
from headwater.protocol.headers import Use
from headwater.protocol.limits import NAME_BYTES_MAX, PRODUCER_ID_BYTES_MAX

PATH: dict[str, Use] = {
    "bucket": Use(
        {"type": "string", "pattern": "^[a-z0-9_-]{4,64}$"}, "The bucket's name: 4 to 64 characters from `a-z 0-9 _ -`."
    ),
    "stream": Use(
        {"type": "string", "minLength": 1, "maxLength": NAME_BYTES_MAX, "pattern": r"^[^/\u0000]+$"},
        f"The stream's id: UTF-8, percent-encoded, at most {NAME_BYTES_MAX} bytes together with the bucket.",
    ),
    "path": Use(
        {"type": "string", "minLength": 1, "maxLength": NAME_BYTES_MAX, "pattern": r"^[^\u0000]+$"},
        "The stream; the first `/`, encoded or not, ends the bucket, and without one the bucket is `_default`.",
    ),
    "consumer": Use(
        {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"},
        "The name of a consumer of the lake.",
    ),
    "purge": Use({"type": "string", "pattern": r"^[0-9a-f]{16}$"}, "The id of a purge."),
    "namespace": Use({"type": "string", "pattern": r"^[^/]+$"}, "A namespace of the Iceberg catalog: `headwater`."),
    "table": Use({"type": "string", "pattern": r"^[^/]+$"}, "A table of the lake: `messages` or `forks`."),
    "producer": Use(
        {"type": "string", "minLength": 1, "maxLength": PRODUCER_ID_BYTES_MAX, "pattern": r"^[^/]+$"},
        "The producer's id, percent-encoded.",
    ),
    "offset": Use(
        shapes.PLACE, "An offset from an earlier response, or a byte position in decimal, at a message boundary."
    ),
}

QUERY: dict[str, Use] = parameters.TABLE | parameters.REPEATED
REQUEST_HEADERS = {header.name: header.request for header in headers.TABLE if header.request is not None}
RESPONSE_HEADERS = {header.name: header.response for header in headers.TABLE if header.response is not None}
