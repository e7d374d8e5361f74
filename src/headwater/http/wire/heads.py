"""Plain heads: nearly every head is of one simple form, which is parsed here without the native parser.

Nothing is decided here. A head is plain if every byte of it is printable, each line is a name, a colon, a blank and a
value, no name comes twice, and nothing in it affects the framing but a length. What the native parser makes of such a
head is certain, so this makes the same of it. All other heads, and all that are refused, are left to that parser. Lines
that clients repeat with every request are parsed once.
"""

import re
from typing import NamedTuple

from headwater.http.wire.browsers import Hosts
from headwater.http.wire.intakes import SMALL_BODY_BYTES
from headwater.http.wire.requests import is_authority
from headwater.protocol import headers
from headwater.protocol.remembering import remembered

HEAD_BYTES_MAX = 4096
LINES_MAX = 64
"""How large a plain head may be; far below the limits for any head."""
KNOWN_MAX = 4096
KNOWN_BYTES_MAX = 256
"""How many lines are known at a time, and how long one may be: a few megabytes at most, whatever clients send."""

_LINE_END = b"\r\n"
_LINE_ENDS = [_LINE_END * count for count in range(LINES_MAX)]
_PRINTABLE = bytes(range(0x20, 0x7F))
_REQUEST_LINE = re.compile(rb"(GET|POST|PUT|DELETE|HEAD) (/[!\"$->@-~]*)(?:\?([!\"$-~]*))? HTTP/1\.1")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_DIGITS_MAX = len(str(SMALL_BODY_BYTES))

_HOST, _CONNECTION, _CONTENT_LENGTH = headers.HOST.key, headers.CONNECTION.key, headers.CONTENT_LENGTH.key
_FRAMING = frozenset(header.key for header in (headers.TRANSFER_ENCODING, headers.EXPECT, headers.UPGRADE))
"""Headers with which more than a length frames the body."""
_NOT_PLAIN = _FRAMING | {b"proxy-connection"}
_REPEATED = frozenset(
    {
        *(_HOST, _CONNECTION, headers.USER_AGENT.key, headers.CONTENT_TYPE.key),
        *(headers.PRODUCER_ID.key, headers.PRODUCER_EPOCH.key, headers.ORIGIN.key),
        *(b"accept", b"accept-encoding", b"accept-language", b"cache-control", b"pragma", b"referer", b"dnt"),
        *(b"sec-fetch-dest", b"sec-fetch-mode", b"sec-fetch-site", b"sec-ch-ua"),
    }
)
"""Headers that a client sends with the same value again and again. Credentials are not among them."""


class Head(NamedTuple):
    """A request without its body, and the body's length."""

    method: bytes
    path: bytes
    query: bytes
    headers: dict[bytes, bytes]
    body_bytes: int


def _key(name: bytes) -> bytes | None:
    """A header's name in lower case, unless it makes a head not plain."""
    key = name.lower()
    return None if key in _NOT_PLAIN or _NAME.fullmatch(name) is None else key


_key_of = remembered(entries_max=1024, length_max=64)(_key)


class PlainHeads:
    """Parses plain heads; when too many lines are known, all are forgotten, and those in use are soon learned again."""

    def __init__(self, hosts: Hosts | None = None, known_max: int = KNOWN_MAX) -> None:
        self._hosts, self._known_max = hosts, known_max
        self._known: dict[bytes, tuple[bytes, bytes]] = {}
        """The name and the value in a line."""
        self._targets: dict[bytes, tuple[bytes, bytes, bytes]] = {}
        """The method, the path and the query in a request line."""

    def parse(self, head: bytes, lines: list[bytes]) -> Head | None:
        """What a head says that consists of these lines, without the empty one after it; None if it is not plain."""
        ends = len(lines) - 1
        if ends >= LINES_MAX or len(head) > HEAD_BYTES_MAX or head.translate(None, _PRINTABLE) != _LINE_ENDS[ends]:
            return None
        target = self._targets.get(lines[0]) or self._parse_target(lines[0])
        if target is None:
            return None
        found: dict[bytes, bytes] = {}
        known = self._known
        del lines[0]
        for line in lines:
            if line in known:
                key, value = known[line]
            else:
                name, _, value = line.partition(b": ")
                parsed = _key_of(name)
                if parsed is None or not value or value.strip() != value:
                    return None
                key = parsed
                if key in _REPEATED and not self._learn(line, key, value):
                    return None
            found[key] = value
        if len(found) != ends or _HOST not in found:
            return None
        length = found.get(_CONTENT_LENGTH)
        if length is None:
            return Head(*target, found, 0)
        if len(length) > _DIGITS_MAX or not length.isdigit():
            return None
        return Head(*target, found, int(length))

    def _parse_target(self, line: bytes) -> tuple[bytes, bytes, bytes] | None:
        match = _REQUEST_LINE.fullmatch(line)
        if match is None:
            return None
        method, path, query = match.groups(b"")
        if method == b"POST" and len(line) <= KNOWN_BYTES_MAX:
            # The targets of reads change with every offset.
            if len(self._targets) >= self._known_max:
                self._targets.clear()
            self._targets[line] = method, path, query
        return method, path, query

    def _learn(self, line: bytes, key: bytes, value: bytes) -> bool:
        """Remember a line that will come again; returns whether a head with it is plain."""
        if key == _HOST and not (is_authority(value) and (self._hosts is None or self._hosts.admits(value))):
            return False
        if key == _CONNECTION and value != b"keep-alive":
            return False
        if len(line) <= KNOWN_BYTES_MAX:
            if len(self._known) >= self._known_max:
                self._known.clear()
            self._known[line] = key, value
        return True
