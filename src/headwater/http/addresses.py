"""Addresses: what a path names. Three surfaces reach one namespace, and each prints offsets in its own form.

/{bucket}/{stream}        the canonical surface; a stream's id is one segment
/ds/{bucket}/{stream}     the same, as the extensions draft writes it
/v1/stream/{path}         the flat surface: the first `/` ends the bucket, none means `_default`; no sub-resources
/__headwater/...          the server itself; /healthz, /readyz and /metrics too
"""

import re
from enum import Enum
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from headwater.protocol import names
from headwater.protocol.limits import NAME_BYTES_MAX
from headwater.protocol.offsets import Form
from headwater.protocol.refusals import Code, Refusal

FLAT_PREFIX = b"/v1/stream/"
RESERVED_BUCKETS = frozenset({"healthz", "readyz", "metrics", "console", "openapi"})
OWN = "__headwater"
"""The first segment of what is about the server itself."""
_BUCKET = re.compile(r"[a-z0-9_-]{4,64}")
_READER = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class Resource(Enum):
    """What there is to ask about."""

    BUCKET = "bucket"
    LISTING = "streams"
    STREAM = "stream"
    SNAPSHOT = "snapshot"
    BOOTSTRAP = "bootstrap"
    BATCH = "append-batch"
    ATTRS = "attrs"
    RETENTION = "retention"
    HEALTH = "healthz"
    READY = "readyz"
    METRICS = "metrics"
    STATUS = "status"
    FLUSH = "flush"
    DESCRIBE = "describe"
    LOCATE = "locate"
    SCAN = "scan"
    BULK_APPEND = "append"
    SWAP = "swap"
    READERS = "readers"
    READER = "reader"


_SUB_RESOURCES = {
    resource.value: resource
    for resource in (Resource.SNAPSHOT, Resource.BOOTSTRAP, Resource.BATCH, Resource.ATTRS, Resource.RETENTION)
}
_WITH_ARGUMENT = frozenset({Resource.SNAPSHOT, Resource.RETENTION})


_OWN_RESOURCES = {
    resource.value: resource
    for resource in (
        Resource.STATUS,
        Resource.FLUSH,
        Resource.DESCRIBE,
        Resource.LOCATE,
        Resource.SCAN,
        Resource.BULK_APPEND,
        Resource.SWAP,
        Resource.READERS,
    )
}
_PLACES = {b"/" + resource.value.encode(): resource for resource in (Resource.HEALTH, Resource.READY, Resource.METRICS)}


class Address(NamedTuple):
    """A resource, the stream or bucket it belongs to, the rest of its path, and how its surface prints offsets."""

    resource: Resource
    name: str
    argument: str | None
    form: Form
    flat: bool


@lru_cache(maxsize=4_096)
def parse(path: bytes) -> Address | Refusal:
    """The address behind a path.

    >>> parse(b"/v1/stream/a/b").name, parse(b"/agents/run-1").name, parse(b"/ds/agents/run-1/snapshot/42").argument
    ('a/b', 'agents/run-1', '42')
    """
    if path.startswith(FLAT_PREFIX):
        return _parse_flat(path[len(FLAT_PREFIX) :])
    segments = path.split(b"/")[1:]
    if segments[:1] == [b"ds"]:
        segments = segments[1:]
    if segments in ([], [b""]):
        return Refusal(Code.STREAM_NOT_FOUND, "There is nothing at this URL; streams live at /v1/stream/{name}.")
    try:
        decoded = [unquote_to_bytes(segment).decode() for segment in segments]
    except UnicodeDecodeError:
        return Refusal(Code.INVALID_NAME, "The path is not UTF-8; percent-encode it as UTF-8.")
    if path in _PLACES:
        return Address(_PLACES[path], OWN, None, Form.PLAIN, False)
    return _parse_own(decoded[1:]) if decoded[0] == OWN else _parse_bucketed(*decoded)


def _parse_own(segments: list[str]) -> Address | Refusal:
    match segments:
        case [name] if name in _OWN_RESOURCES:
            return Address(_OWN_RESOURCES[name], OWN, None, Form.PLAIN, False)
        case ["readers", reader] if _READER.fullmatch(reader):
            return Address(Resource.READER, OWN, reader, Form.PLAIN, False)
        case ["readers", _]:
            return Refusal(Code.INVALID_NAME, "A reader's name is 1 to 128 of A-Z, a-z, 0-9, _, . and -.")
    known = ", ".join(_OWN_RESOURCES)
    return Refusal(Code.STREAM_NOT_FOUND, f"There is nothing at this URL; below /{OWN} are {known}.")


def _parse_flat(raw_path: bytes) -> Address | Refusal:
    if names.is_reserved(raw_path):
        return Refusal(Code.NOT_IMPLEMENTED, "Subscriptions are not built yet; this path is reserved for them.")
    name = names.parse_flat(raw_path)
    return name if isinstance(name, Refusal) else Address(Resource.STREAM, name, None, Form.FLAT, True)


def _parse_bucketed(bucket: str, stream: str | None = None, *rest: str) -> Address | Refusal:
    problem = _bucket_problem(bucket)
    if problem is not None:
        return Refusal(Code.INVALID_NAME, problem)
    if stream is None:
        return Address(Resource.BUCKET, bucket, None, Form.PLAIN, False)
    if stream == Resource.LISTING.value:
        return _nowhere() if rest else Address(Resource.LISTING, bucket, None, Form.PLAIN, False)
    name = f"{bucket}/{stream}"
    problem = _stream_problem(stream, name)
    if problem is not None:
        return Refusal(Code.INVALID_NAME, problem)
    if not rest:
        return Address(Resource.STREAM, name, None, Form.PLAIN, False)
    resource = _SUB_RESOURCES.get(rest[0])
    if resource is None or len(rest) > (2 if resource in _WITH_ARGUMENT else 1):
        return _nowhere()
    return Address(resource, name, rest[1] if len(rest) > 1 else None, Form.PLAIN, False)


def _bucket_problem(bucket: str) -> str | None:
    if _BUCKET.fullmatch(bucket) is None:
        return f"{bucket[:64]!r} is no bucket: 4 to 64 of a-z, 0-9, _ and -."
    if bucket.startswith("__") or bucket in RESERVED_BUCKETS:
        return f"The bucket name {bucket!r} is reserved."
    return None


def _stream_problem(stream: str, name: str) -> str | None:
    if not stream:
        return "The stream's name is empty."
    if "/" in stream or "\0" in stream or ".." in stream:
        return "A stream's name may not contain '/', '..' or a NUL character here."
    size = len(name.encode())
    if size > NAME_BYTES_MAX:
        return f"The name is {size} bytes long with its bucket; at most {NAME_BYTES_MAX} are allowed."
    return None


def _nowhere() -> Refusal:
    return Refusal(Code.STREAM_NOT_FOUND, "A stream has no such sub-resource.")
