"""Addresses: what a path names. Three surfaces reach one namespace, and each prints offsets in its own form.

/{bucket}/{stream}        the canonical surface; a stream's id is one segment
/ds/{bucket}/{stream}     the same, as the extensions draft writes it
/v1/stream/{path}         the flat surface: the first `/` ends the bucket, none means `_default`; no sub-resources
/v1/streams/{path}        the same, as the official proxy writes it; a server may have further such prefixes
/__headwater/...          the server itself
/iceberg/v1/...           the lake's tables, for engines that ask a catalog

An address says what a path looks like and which stream or bucket it names. Whether there is such an endpoint is for
the router to say.
"""

import re
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from headwater.protocol import names
from headwater.protocol.limits import NAME_BYTES_MAX
from headwater.protocol.refusals import Code, Refusal

FLAT_PREFIXES = (b"/v1/stream/", b"/v1/streams/")
"""Where every server has the flat surface."""
ALIAS = b"ds"
OWN = "__headwater"
"""The first segment of what is about the server itself."""
ICEBERG = "iceberg"
"""The first segment of the Iceberg catalog."""
CONSUMERS = "consumers"
"""The name below `__headwater` of the lake's consumers, each of which has a name of its own."""
_CONSUMERS_NOW, _CONSUMERS_ONCE = f"/{OWN}/{CONSUMERS}".encode(), f"/{OWN}/readers".encode()
Shape = tuple[str | None, ...]
"""The segments of a path, decoded, with None in the place of each name."""
STREAM_SHAPE: Shape = (None, None)
LISTING = "streams"
"""The name below a bucket that lists its streams; no stream can have it."""
_BUCKET = re.compile(r"[a-z0-9_-]{4,64}")
_CONSUMER = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class Address(NamedTuple):
    """What a path names."""

    shape: Shape
    name: str
    """The stream with its bucket, or the bucket; `__headwater` for the server itself."""
    argument: str | None = None
    """The last segment, where it is a parameter of a sub-resource."""
    flat: bool = False
    """Whether it was written on the flat surface, which prints offsets in another form."""


def flat_prefixes(mounts: str) -> tuple[bytes, ...]:
    """Where a server has the flat surface, with the mounts of its settings; the longest come first.

    >>> flat_prefixes("/api,/api/streams")
    (b'/api/streams/', b'/v1/streams/', b'/v1/stream/', b'/api/')
    """
    mounted = (f"{mount.strip()}/".encode() for mount in mounts.split(",") if mount.strip())
    return tuple(sorted({*FLAT_PREFIXES, *mounted}, key=len, reverse=True))


def current(path: bytes) -> bytes:
    """Return a path with the earlier name of an endpoint replaced by its present one.

    >>> current(b"/__headwater/readers/nightly"), current(b"/__headwater/readership")
    (b'/__headwater/consumers/nightly', b'/__headwater/readership')
    """
    if path == _CONSUMERS_ONCE or path.startswith(_CONSUMERS_ONCE + b"/"):
        return _CONSUMERS_NOW + path.removeprefix(_CONSUMERS_ONCE)
    return path


def parse(
    path: bytes, reserved: frozenset[str] = frozenset(), flat: tuple[bytes, ...] = FLAT_PREFIXES
) -> Address | Refusal:
    """The address that a path names; `reserved` are names that no bucket can have.

    >>> parse(b"/v1/stream/a/b").name, parse(b"/agents/run-1").name
    ('a/b', 'agents/run-1')
    >>> parse(b"/ds/agents/run-1/snapshot/42")
    Address(shape=(None, None, 'snapshot', None), name='agents/run-1', argument='42', flat=False)
    """
    for prefix in flat:
        if path.startswith(prefix):
            return _parse_flat(path[len(prefix) :])
    segments = path.split(b"/")[1:]
    own = segments[:1] == [OWN.encode()]
    if own and b"%" in b"".join(segments[1:2]):
        # A proxy that has a rule for an endpoint must recognise it.
        return Refusal(Code.INVALID_NAME, f"Write the name of an endpoint below /{OWN} without percent-encoding.")
    if segments[:1] == [ALIAS]:
        segments = segments[1:]
    if segments in ([], [b""]):
        return Refusal(Code.NOT_FOUND, "There is nothing at this URL; streams are at /v1/stream/{name}.")
    try:
        decoded = [unquote_to_bytes(segment).decode() for segment in segments]
    except UnicodeDecodeError:
        return Refusal(Code.INVALID_NAME, "The path is not UTF-8; percent-encode it as UTF-8.")
    if decoded[:2] == [ICEBERG, "v1"]:
        return _parse_iceberg(*decoded[2:])
    return _parse_own(*decoded[1:]) if own else _parse_bucketed(reserved, *decoded)


def stream_at(path: bytes, flat: tuple[bytes, ...] = FLAT_PREFIXES) -> str | None:
    """The stream that a path on any surface names; None if the path does not name a stream."""
    address = parse(path, flat=flat)
    return address.name if isinstance(address, Address) and address.shape == STREAM_SHAPE else None


def is_bucket(name: str) -> bool:
    """Whether a bucket could have this name, if it is not reserved."""
    return _BUCKET.fullmatch(name) is not None


def _parse_own(endpoint: str = "", argument: str | None = None, *rest: str) -> Address | Refusal:
    if argument is None:
        return Address((OWN, endpoint), OWN)
    if endpoint == CONSUMERS and not rest and _CONSUMER.fullmatch(argument) is None:
        rule = "use 1 to 128 characters from A-Z, a-z, 0-9, '_', '.' and '-'"
        return Refusal(Code.INVALID_NAME, f"{argument[:64]!r} is not a valid name here: {rule}.")
    return Address((OWN, endpoint, None, *rest), OWN, argument)


def _parse_iceberg(resource: str = "", namespace: str | None = None, kind: str | None = None, *rest: str) -> Address:
    """A namespace, its tables, or one of them: the argument is `namespace` or `namespace/table`."""
    if namespace is None:
        return Address((ICEBERG, "v1", resource), OWN)
    if kind is None:
        return Address((ICEBERG, "v1", resource, None), OWN, namespace)
    if not rest:
        return Address((ICEBERG, "v1", resource, None, kind), OWN, namespace)
    return Address((ICEBERG, "v1", resource, None, kind, None, *rest[1:]), OWN, f"{namespace}/{rest[0]}")


def _parse_flat(raw_path: bytes) -> Address | Refusal:
    if names.is_reserved(raw_path):
        return Refusal(Code.NOT_IMPLEMENTED, "This path is reserved for subscriptions, which are not implemented.")
    name = names.parse_flat(raw_path)
    return name if isinstance(name, Refusal) else Address(STREAM_SHAPE, name, None, True)


def _parse_bucketed(reserved: frozenset[str], bucket: str, stream: str | None = None, *rest: str) -> Address | Refusal:
    problem = _bucket_problem(bucket, reserved)
    if problem is not None:
        return Refusal(Code.INVALID_NAME, problem)
    if stream is None:
        return Address((None,), bucket)
    if stream == LISTING:
        return Address((None, LISTING, *rest), bucket)
    name = f"{bucket}/{stream}"
    problem = _stream_problem(stream, name)
    if problem is not None:
        return Refusal(Code.INVALID_NAME, problem)
    match rest:
        case ():
            return Address(STREAM_SHAPE, name)
        case (resource,):
            return Address((*STREAM_SHAPE, resource), name)
        case (resource, argument):
            return Address((*STREAM_SHAPE, resource, None), name, argument)
    return Address((*STREAM_SHAPE, *rest), name)


def _bucket_problem(bucket: str, reserved: frozenset[str]) -> str | None:
    if not is_bucket(bucket):
        return f"{bucket[:64]!r} is not a valid bucket name: use 4 to 64 characters from a-z, 0-9, '_' and '-'."
    if bucket.startswith("__") or bucket in reserved:
        return f"The bucket name {bucket!r} is reserved."
    return None


def _stream_problem(stream: str, name: str) -> str | None:
    if not stream:
        return "The stream name is empty."
    if "/" in stream or "\0" in stream or ".." in stream:
        return "A stream name below a bucket cannot contain '/', '..' or a NUL character."
    size = len(name.encode())
    if size > NAME_BYTES_MAX:
        return f"The name is {size} bytes long with its bucket; at most {NAME_BYTES_MAX} are allowed."
    return None
