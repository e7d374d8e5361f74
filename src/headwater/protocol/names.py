"""Stream names: `bucket/stream` in one string, sorted by code point (the same order as by UTF-8 bytes)."""

from urllib.parse import unquote_to_bytes

from headwater.protocol.limits import NAME_BYTES_MAX
from headwater.protocol.refusals import Code, Refusal
from headwater.protocol.remembering import remembered

DEFAULT_BUCKET = "_default"
LEDGER_BUCKET = "_sink"
"""The bucket for the ledgers of writers that retry whole batches; it holds no user data."""
RESERVED_SEGMENT = "__ds"
"""The first path segment that the base protocol reserves."""


def bucket_of(name: str) -> str:
    """The bucket of a name."""
    return name.partition("/")[0]


def parse_flat(raw_path: bytes) -> str | Refusal:
    """The name in `/v1/stream/{raw_path}`: the first `/` ends the bucket; without one the bucket is `_default`.

    >>> parse_flat(b"notes"), parse_flat(b"team/notes/1"), parse_flat(b"caf%C3%A9")
    ('_default/notes', 'team/notes/1', '_default/café')
    """
    try:
        path = (unquote_to_bytes(raw_path) if b"%" in raw_path else raw_path).decode()
    except UnicodeDecodeError:
        return Refusal(Code.INVALID_NAME, "The stream's name is not UTF-8; percent-encode it as UTF-8.")
    bucket, slash, stream = path.partition("/")
    if not slash:
        bucket, stream = DEFAULT_BUCKET, path
    name = f"{bucket}/{stream}"
    problem = _problem(bucket, stream, name)
    return Refusal(Code.INVALID_NAME, problem) if problem else name


def _parse_whole(name: str) -> str | Refusal:
    """A name given with its bucket outside of a URL, if it is one that the flat surface accepts.

    >>> parse_whole("team/notes/1"), parse_whole("notes").detail
    ('team/notes/1', "'notes' has no bucket; a whole name is bucket/stream, with the bucket _default if there is none.")
    """
    if len(name) > NAME_BYTES_MAX:
        return Refusal(Code.INVALID_NAME, _too_long(len(name)))
    bucket, slash, stream = name.partition("/")
    if not slash:
        rule = f"a whole name is bucket/stream, with the bucket {DEFAULT_BUCKET} if there is none"
        return Refusal(Code.INVALID_NAME, f"{name!r} has no bucket; {rule}.")
    if bucket == RESERVED_SEGMENT:
        return Refusal(Code.INVALID_NAME, f"The bucket name {bucket!r} is reserved.")
    problem = _problem(bucket, stream, name)
    return Refusal(Code.INVALID_NAME, problem) if problem else name


parse_whole = remembered(entries_max=16_384, length_max=NAME_BYTES_MAX)(_parse_whole)


def _problem(bucket: str, stream: str, name: str) -> str | None:
    if not bucket or not stream:
        return "The stream's name is empty; use /v1/stream/{name} or /v1/stream/{bucket}/{name}."
    if "\0" in name:
        return "A stream's name may not contain a NUL character."
    if ".." in name and ".." in name.split("/"):
        return "A stream's name may not contain a '..' segment."
    if len(name) * 4 > NAME_BYTES_MAX and len(name.encode()) > NAME_BYTES_MAX:
        return _too_long(len(name.encode()))
    return None


def _too_long(size: int) -> str:
    return f"The name is {size} bytes long with its bucket; at most {NAME_BYTES_MAX} are allowed."


def is_reserved(raw_path: bytes) -> bool:
    """Whether a flat path belongs to the reserved subscription API.

    >>> is_reserved(b"__ds"), is_reserved(b"__ds/jwks.json"), is_reserved(b"%5F_ds/x"), is_reserved(b"__dsx")
    (True, True, True, False)
    """
    first = raw_path.split(b"/", 1)[0]
    return (unquote_to_bytes(first) if b"%" in first else first) == RESERVED_SEGMENT.encode()
