"""A request as it arrived, and how its target, its query and its head are parsed and checked."""

import re
from urllib.parse import unquote_to_bytes

import msgspec

from headwater.http.wire.intakes import Intake
from headwater.protocol import headers as names
from headwater.protocol import parameters
from headwater.protocol.refusals import Code, Refusal
from headwater.protocol.remembering import remembered

CACHED_BYTES_MAX = 512
"""What is found in a longer path, query or authority is not cached. The path of the longest name is shorter, even if
every byte of it is percent-encoded."""


class Request(msgspec.Struct, frozen=True, gc=False):
    """One complete HTTP request."""

    method: bytes
    authority: bytes
    path: bytes
    query: bytes
    headers: dict[bytes, bytes]
    body: bytes
    keep_alive: bool = False
    takes_chunks: bool = False
    """Whether the client supports HTTP/1.1, so that a response of unknown length can be chunked."""
    intake: Intake | None = None
    """How the body was received, if it was too large to be taken without asking, or is not in memory."""

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
            self.intake,
        )

    def with_query(self, query: bytes) -> "Request":
        """This request with another query."""
        return msgspec.structs.replace(self, query=query)

    def says_true(self, name: bytes) -> bool:
        """Whether a header is `true` in any case; every other value counts as absent."""
        value = self.headers.get(name)
        return value is not None and value.strip().lower() == b"true"


NOTHING = Request(b"", b"", b"", b"", {}, b"")
"""Takes the place of a request that was refused before it was complete."""


_ABSOLUTE = re.compile(rb"https?://([^/?]*)", re.IGNORECASE)


def split_target(target: bytes) -> tuple[bytes, bytes, bytes]:
    """Authority, path and query of a request target; only the absolute form has an authority.

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


ACCESS_TOKEN = b"access_token="


def cut_access_token(query: bytes) -> tuple[bytes, bytes | None]:
    """A query without the credential in it, and that credential.

    >>> cut_access_token(b"offset=-1&access_token=eyJ0&live=sse")
    (b'offset=-1&live=sse', b'eyJ0')
    """
    if ACCESS_TOKEN not in query:
        return query, None
    kept, found = [], None
    for pair in query.split(b"&"):
        if pair.startswith(ACCESS_TOKEN):
            # A repeated parameter is treated as invalid.
            found = unquote_to_bytes(pair[len(ACCESS_TOKEN) :]) if found is None else b""
        else:
            kept.append(pair)
    return b"&".join(kept), found


_HOST, _TRANSFER_ENCODING, _SERVICE_WORKER = names.HOST.key, names.TRANSFER_ENCODING.key, names.SERVICE_WORKER.key
_AUTHORITY = re.compile(rb"(?:\[[0-9a-fA-F:.]+\]|[0-9A-Za-z._~%!$&'()*+;=-]+)(?::[0-9]*)?")


def _is_authority(host: bytes) -> bool:
    """Whether a Host header is valid: a name or an address, perhaps with a port."""
    return _AUTHORITY.fullmatch(host.strip()) is not None


is_authority = remembered(entries_max=1024, length_max=CACHED_BYTES_MAX)(_is_authority)


def head_problem(version: str, target: bytes, headers: dict[bytes, bytes]) -> str | None:
    """What is wrong with a head that the native parser accepts, by RFC 9112 or for browsers, as a sentence."""
    if version == "1.1":
        if _HOST not in headers or not is_authority(headers[_HOST]):
            return "A request needs exactly one Host header with a name or an address."
        if _TRANSFER_ENCODING in headers and headers[_TRANSFER_ENCODING].lower() != b"chunked":
            return "Transfer-Encoding can only be chunked."
    elif version != "1.0":
        return f"HTTP/{version} is not supported; use HTTP/1.1."
    elif _TRANSFER_ENCODING in headers:
        return "Transfer-Encoding requires HTTP/1.1."
    elif _HOST in headers and not is_authority(headers[_HOST]):
        return "The Host header must be a name or an address."
    if target[:1] != b"/" and target != b"*" and not _absolute_target(target):
        return "The request target must be a path."
    if _SERVICE_WORKER in headers:
        # A browser runs a service worker between a site and its pages, so a stream must never be used as one.
        return "Nothing here can be a service worker; store its script where the site has its pages."
    return "The request target cannot have a fragment." if b"#" in target else None


def _absolute_target(target: bytes) -> bool:
    match = _ABSOLUTE.match(target)
    return match is not None and is_authority(match[1])


def _parse_query(query: bytes) -> dict[str, str] | Refusal:
    """The known parameters of a query, without unknown ones; a known one that appears twice is refused.

    >>> parse_query(b"offset=-1&live=sse&utm=x")
    {'offset': '-1', 'live': 'sse'}
    """
    found: dict[str, str] = {}
    for pair in query.replace(b"+", b" ").split(b"&"):
        raw_name, _, value = pair.partition(b"=")
        name = unquote_to_bytes(raw_name).decode(errors="replace")
        if name not in parameters.TABLE:
            continue
        if name in found:
            return Refusal(Code.BAD_REQUEST, f"The parameter {name} appears twice; send it once.")
        try:
            found[name] = unquote_to_bytes(value).decode()
        except UnicodeDecodeError:
            code = Code.INVALID_OFFSET if name == "offset" else Code.BAD_REQUEST
            return Refusal(code, f"The parameter {name} is not UTF-8; percent-encode it as UTF-8.")
    return found


parse_query = remembered(entries_max=4096, length_max=CACHED_BYTES_MAX)(_parse_query)
