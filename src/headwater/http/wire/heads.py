"""Plain heads: nearly every head is of one simple form, which is parsed here without the native parser.

Nothing is decided here. A head is plain if every byte of it is printable, each line is a name, a colon, a blank and a
value, no name comes twice, and nothing in it affects the framing but a length. What the native parser makes of such a
head is certain, so this makes the same of it. All other heads, and all that are refused, are left to that parser.

A client sends the same names in the same order with every request. When an order has come a few times, it gets a
*form*: one regular expression for the whole head. A connection looks first whether its next head has the form of its
last one.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from headwater.compiled import compiled
from headwater.http.wire.browsers import Hosts
from headwater.http.wire.ends import EMPTY_LINE
from headwater.http.wire.intakes import SMALL_BODY_BYTES
from headwater.http.wire.requests import CACHED_BYTES_MAX, is_authority
from headwater.protocol import headers
from headwater.protocol.remembering import remembered

HEAD_BYTES_MAX = 4096
LINES_MAX = 64
"""How large a plain head may be; far below the limits for any head."""
FORMS_MAX = 64
ORDERS_MAX = 1024
"""How many forms and orders of names are known at a time."""
FORM_AFTER = 8
"""How often an order must come before it gets a form: to compile one takes milliseconds."""
FORGET_AFTER = 100_000
"""How many heads without a form must have come before all forms are forgotten, if there is no room for another. So
no client can make the server compile all the time."""
HOSTS_MAX = 1024

_LINE_END = b"\r\n"
_REQUEST_LINE = rb"(GET|POST|PUT|DELETE|HEAD) (/[!\"$->@-~]*)(?:\?([!\"$-~]*))? HTTP/1\.1"
_VALUE = rb"([!-~][ -~]*)(?<! )"
_MATCH_REQUEST_LINE = re.compile(_REQUEST_LINE).fullmatch
_MATCH_VALUE = re.compile(_VALUE).fullmatch
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_DIGITS_MAX = len(str(SMALL_BODY_BYTES))

_HOST, _CONNECTION, _CONTENT_LENGTH = headers.HOST.key, headers.CONNECTION.key, headers.CONTENT_LENGTH.key
_FRAMING = frozenset(header.key for header in (headers.TRANSFER_ENCODING, headers.EXPECT, headers.UPGRADE))
"""Headers with which more than a length frames the body."""
_NOT_PLAIN = _FRAMING | {b"proxy-connection", headers.SERVICE_WORKER.key}
"""Names that make a head not plain: the framing depends on them, or the head is refused because of them."""
_VALUES = {_CONNECTION: rb"(keep-alive)", _CONTENT_LENGTH: rb"([0-9]{1,%d})" % _DIGITS_MAX}
"""What a plain head may have as the value of these; of others, any printable text."""


class Form(NamedTuple):
    """The names of a head in their order, and the expression that matches such a head."""

    match: Callable[[bytes, int], re.Match[bytes] | None]
    keys: tuple[bytes, ...]


class Head(msgspec.Struct, frozen=True, gc=False):
    """A request without its body: where that begins and how long it is; and the form of the head, if it has one."""

    method: bytes
    path: bytes
    query: bytes
    headers: dict[bytes, bytes]
    body_at: int
    body_bytes: int
    form: Any
    """Passed to `parse` with the next head of the connection; only the parser that made it can read it."""


class Heads(Protocol):
    """A parser of plain heads."""

    def parse(self, data: bytes, at: int, form: Any) -> Head | None:
        """The head that begins at a position, perhaps of this form; None if it is not whole, or not plain."""


def _key(name: bytes) -> bytes | None:
    """A header's name in lower case, unless it makes a head not plain."""
    key = name.lower()
    return None if key in _NOT_PLAIN or _NAME.fullmatch(name) is None else key


key_of = remembered(entries_max=1024, length_max=64)(_key)


def plain_heads(hosts: Hosts | None = None) -> Heads:
    """The compiled parser of plain heads if it was built, otherwise `PlainHeads`."""
    scanning = compiled("headwater.http.wire._scanning")
    heads = PlainHeads(hosts)
    if scanning is None:
        return heads
    scanner: Heads = scanning.Scanner(heads)
    return scanner


class PlainHeads:
    """Parses plain heads, and knows the forms of those that came often."""

    def __init__(self, hosts: Hosts | None = None) -> None:
        self._admits = None if hosts is None else hosts.admits
        self._hosts: set[bytes] = set()
        """Names under which clients may call this server, and did."""
        self._forms: dict[tuple[bytes, ...], Form] = {}
        self._orders: dict[tuple[bytes, ...], int] = {}
        """How often an order of names has come that has no form."""
        self._formless = 0
        """How many heads without a form came since the forms were forgotten."""

    def parse(self, data: bytes, at: int, form: Form | None) -> Head | None:
        """The head that begins at a position of the input; None if it is not whole, or not plain."""
        match = None if form is None else form.match(data, at)
        if match is None or form is None or match.end() - at > HEAD_BYTES_MAX:
            return self._parse(data, at)
        values = match.groups(b"")
        found = dict(zip(form.keys, values[3:]))  # noqa: B905 (a form has a group for each key)
        return self._head(values[0], values[1], values[2], found, match.end(), form)

    def _head(  # noqa: PLR0917
        self, method: bytes, path: bytes, query: bytes, found: dict[bytes, bytes], body_at: int, form: Form | None
    ) -> Head | None:
        """The head, unless it names no host that is admitted, or has a body that is not small."""
        host = found.get(_HOST)
        if host not in self._hosts and not self._learn_host(host):
            return None
        length = found.get(_CONTENT_LENGTH)
        size = 0 if length is None else int(length)
        return None if size > SMALL_BODY_BYTES else Head(method, path, query, found, body_at, size, form)

    def _parse(self, data: bytes, at: int) -> Head | None:
        """Parse a head line by line."""
        end = data.find(EMPTY_LINE, at, at + HEAD_BYTES_MAX)
        lines = data[at:end].split(_LINE_END) if end >= 0 else []
        target = _MATCH_REQUEST_LINE(lines[0]) if 0 < len(lines) <= LINES_MAX else None
        if target is None:
            return None
        names: list[bytes] = []
        found: dict[bytes, bytes] = {}
        del lines[0]
        for line in lines:
            name, _, value = line.partition(b": ")
            key = key_of(name)
            if key is None or key in found or not _is_plain_value(key, value):
                return None
            names.append(name)
            found[key] = value
        form = self._form_of(tuple(names), tuple(found))
        method, path, query = target.groups(b"")
        return self._head(method, path, query, found, end + len(EMPTY_LINE), form)

    def _form_of(self, names: tuple[bytes, ...], keys: tuple[bytes, ...]) -> Form | None:
        """The form of an order of names, which may be a new one."""
        form = self._forms.get(names)
        if form is not None:
            return form
        self._formless += 1
        if len(self._orders) >= ORDERS_MAX:
            self._orders.clear()
        count = self._orders[names] = self._orders.get(names, 0) + 1
        if count < FORM_AFTER:
            return None
        if len(self._forms) >= FORMS_MAX:
            if self._formless < FORGET_AFTER:
                return None
            self._forms.clear()
            self._formless = 0
        lines = [b"%b: %b" % (re.escape(name), _VALUES.get(key, _VALUE)) for name, key in zip(names, keys, strict=True)]
        pattern = re.compile(rb"%b\r\n\r\n" % rb"\r\n".join([_REQUEST_LINE, *lines]))
        form = self._forms[names] = Form(pattern.match, keys)
        return form

    def admits_host(self, host: bytes) -> bool:
        """Whether clients may call this server by this host; remembers those that may."""
        return host in self._hosts or self._learn_host(host)

    def _learn_host(self, host: bytes | None) -> bool:
        """Whether a head with this host may be plain."""
        if host is None or not is_authority(host) or not (self._admits is None or self._admits(host)):
            return False
        if len(host) <= CACHED_BYTES_MAX:
            if len(self._hosts) >= HOSTS_MAX:
                self._hosts.clear()
            self._hosts.add(host)
        return True


def _is_plain_value(key: bytes, value: bytes) -> bool:
    if key == _CONNECTION:
        return value == b"keep-alive"
    if key == _CONTENT_LENGTH:
        return value.isdigit() and len(value) <= _DIGITS_MAX
    return _MATCH_VALUE(value) is not None
