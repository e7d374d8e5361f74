"""A request as it came, and small readers of its parts."""

from functools import lru_cache
from urllib.parse import unquote_plus

import msgspec

from headwater.protocol.refusals import Code, Refusal


class Request(msgspec.Struct, frozen=True, gc=False):
    """One HTTP request, whole."""

    method: bytes
    path: bytes
    query: bytes
    headers: dict[bytes, bytes]
    body: bytes
    keep_alive: bool = False
    takes_chunks: bool = False
    """Whether the client speaks HTTP/1.1, so that a response may go on without a length."""

    def header(self, name: bytes) -> str | None:
        """A header's value, stripped; names are lower case."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip()

    def says_true(self, name: bytes) -> bool:
        """Whether a header is `true` in any case; every other value counts as absent."""
        value = self.headers.get(name)
        return value is not None and value.strip().lower() == b"true"


NOTHING = Request(b"", b"", b"", {}, b"")
"""What stands for a request that was refused before it was whole."""


def split_target(target: bytes) -> tuple[bytes, bytes]:
    """Path and query of a request target, in origin or absolute form.

    >>> split_target(b"/a?b=c"), split_target(b"http://host/a")
    ((b'/a', b'b=c'), (b'/a', b''))
    """
    if target[:1] != b"/" and b"://" in target:
        target = b"/" + target.partition(b"://")[2].partition(b"/")[2]
    path, _, query = target.partition(b"?")
    return path, query


def head_problem(version: str, target: bytes, headers: dict[bytes, bytes]) -> str | None:
    """What the parser lets through and RFC 9112 does not, as a sentence."""
    if version == "1.1":
        if b"host" not in headers or b"," in headers[b"host"]:
            return "A request needs exactly one Host header."
        if b"transfer-encoding" in headers and headers[b"transfer-encoding"].lower() != b"chunked":
            return "Transfer-Encoding may only be chunked."
    elif version != "1.0":
        return f"HTTP/{version} is not spoken here; use HTTP/1.1."
    elif b"transfer-encoding" in headers:
        return "Transfer-Encoding needs HTTP/1.1."
    if b"#" in target or not target.startswith((b"/", b"http://", b"https://", b"*")):
        return "The request target must be a path without a fragment."
    return None


@lru_cache(maxsize=4096)
def parse_query(query: bytes) -> dict[str, str] | Refusal:
    """The parameters of a query; a repeated one is refused, an unknown one is nobody's business.

    >>> parse_query(b"offset=-1&live=sse")
    {'offset': '-1', 'live': 'sse'}
    """
    parameters: dict[str, str] = {}
    for pair in query.decode("latin-1").split("&"):
        if not pair:
            continue
        name, _, value = pair.partition("=")
        name = unquote_plus(name)
        if name in parameters:
            return Refusal(Code.BAD_REQUEST, f"The parameter {name[:40]!r} is given twice.")
        parameters[name] = unquote_plus(value)
    return parameters
