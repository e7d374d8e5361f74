"""A request as it came, and small readers of its parts."""

import re
from functools import lru_cache
from urllib.parse import unquote_plus

import msgspec

from headwater.protocol import parameters
from headwater.protocol.refusals import Code, Refusal


class Request(msgspec.Struct, frozen=True, gc=False):
    """One HTTP request, whole."""

    method: bytes
    authority: bytes
    path: bytes
    query: bytes
    headers: dict[bytes, bytes]
    body: bytes
    keep_alive: bool = False
    takes_chunks: bool = False
    """Whether the client speaks HTTP/1.1, so that a response may go on without a length."""
    upload: object = None
    """Where the body went, if it was not kept here."""

    def header(self, name: bytes) -> str | None:
        """A header's value, stripped; names are lower case."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip()

    def with_body(self, body: bytes) -> "Request":
        """This request with another body."""
        return Request(
            self.method,
            self.authority,
            self.path,
            self.query,
            self.headers,
            body,
            self.keep_alive,
            self.takes_chunks,
            self.upload,
        )

    def says_true(self, name: bytes) -> bool:
        """Whether a header is `true` in any case; every other value counts as absent."""
        value = self.headers.get(name)
        return value is not None and value.strip().lower() == b"true"


NOTHING = Request(b"", b"", b"", b"", {}, b"")
"""What stands for a request that was refused before it was whole."""


_ABSOLUTE = re.compile(rb"https?://([^/?]*)", re.IGNORECASE)


def split_target(target: bytes) -> tuple[bytes, bytes, bytes]:
    """Authority, path and query of a request target; without an authority unless it is in absolute form.

    >>> split_target(b"/a?b=c")
    (b'', b'/a', b'b=c')
    >>> split_target(b"http://host/a")
    (b'host', b'/a', b'')
    """
    authority = b""
    if target[:1] != b"/" and (absolute := _ABSOLUTE.match(target)):
        authority, target = absolute[1], target[absolute.end() :]
    path, _, query = target.partition(b"?")
    return authority, path, query


_AUTHORITY = re.compile(rb"(?:\[[0-9a-fA-F:.]+\]|[0-9A-Za-z._~%!$&'()*+;=-]+)(?::[0-9]*)?")


@lru_cache(maxsize=1024)
def is_authority(host: bytes) -> bool:
    """Whether a Host is one: a name or an address, perhaps a port."""
    return _AUTHORITY.fullmatch(host.strip()) is not None


def head_problem(version: str, target: bytes, headers: dict[bytes, bytes]) -> str | None:
    """What the parser lets through and RFC 9112 does not, as a sentence."""
    if version == "1.1":
        if b"host" not in headers or not is_authority(headers[b"host"]):
            return "A request needs exactly one Host header with a name or an address."
        if b"transfer-encoding" in headers and headers[b"transfer-encoding"].lower() != b"chunked":
            return "Transfer-Encoding may only be chunked."
    elif version != "1.0":
        return f"HTTP/{version} is not spoken here; use HTTP/1.1."
    elif b"transfer-encoding" in headers:
        return "Transfer-Encoding needs HTTP/1.1."
    elif b"host" in headers and not is_authority(headers[b"host"]):
        return "The Host header must be a name or an address."
    if target[:1] != b"/" and target != b"*" and not _absolute_target(target):
        return "The request target must be a path."
    return "The request target may not have a fragment." if b"#" in target else None


def _absolute_target(target: bytes) -> bool:
    match = _ABSOLUTE.match(target)
    return match is not None and is_authority(match[1])


@lru_cache(maxsize=4096)
def parse_query(query: bytes) -> dict[str, str] | Refusal:
    """The parameters of a query that mean something here; one of them twice is refused.

    >>> parse_query(b"offset=-1&live=sse&utm=x")
    {'offset': '-1', 'live': 'sse'}
    """
    found: dict[str, str] = {}
    for pair in query.decode("latin-1").split("&"):
        raw_name, _, value = pair.partition("=")
        name = unquote_plus(raw_name)
        if name not in parameters.TABLE:
            continue
        if name in found:
            return Refusal(Code.BAD_REQUEST, f"The parameter {name} is given twice.")
        found[name] = unquote_plus(value)
    return found
