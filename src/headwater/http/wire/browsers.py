"""Protection of browsers' users: which host names a server accepts, and which pages may use it.

A browser sends requests wherever a page tells it to. So every page that a developer opens can reach a server on the
developer's machine: directly, or through a host name that is rebound to this machine (DNS rebinding). In local mode,
which needs no credential, the host must therefore be an address or `localhost`, and only pages from this machine may
read or change anything.
"""

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from headwater.http.wire.requests import CACHED_BYTES_MAX, Request
from headwater.protocol import headers
from headwater.protocol.refusals import Code, Refusal
from headwater.protocol.remembering import remembered

_ORIGIN, _HOST = headers.ORIGIN.key, headers.HOST.key
_SAFE = frozenset({b"GET", b"HEAD", b"OPTIONS"})
_PAGE_OF_THIS_MACHINE = re.compile(r"https?://(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?", re.ASCII)
_PORT = re.compile(r":\d*$", re.ASCII)

AUTO, ALL = "auto", "*"
ORIGINS_MAX = 256
"""For how many origins the header lines are remembered."""


def allow_lines(origin: str) -> str:
    """The header lines that let pages of an origin read a response and all its headers.

    `*` exposes every header of a response to a request without credentials, and the server takes no others: a script's
    own `Authorization` is none in this sense, and there are no cookies.
    """
    return f"{headers.ACCESS_CONTROL_ALLOW_ORIGIN.line}{origin}\r\n{headers.ACCESS_CONTROL_EXPOSE_HEADERS.line}*\r\n"


ALLOW_ALL_LINES = allow_lines(ALL)


class Hosts:
    """The names under which a server may be called."""

    def __init__(self, names: str) -> None:
        self._names = frozenset(name.strip().lower() for name in names.split(",") if name.strip())
        self.admits = remembered(entries_max=1024, length_max=CACHED_BYTES_MAX)(self._admits)

    def refuse(self, authority: bytes, request_headers: dict[bytes, bytes]) -> Refusal | None:
        """Why a request is refused that calls the server by a target with this authority, or by its Host header."""
        called = (authority, request_headers.get(_HOST, b""))
        name = next((name for name in called if name and not self.admits(name)), None)
        if name is None:
            return None
        shown = name.decode("latin-1").strip()[:64]
        return Refusal(
            Code.HOST_REFUSED,
            f"This server does not answer to the name {shown!r}; use localhost or an address, or name it in --hosts.",
        )

    def _admits(self, authority: bytes) -> bool:
        host = _PORT.sub("", authority.decode("latin-1").strip().lower())
        if host in self._names or _is_address(host):
            return True
        host = host.removesuffix(".")
        return host == "localhost" or host.endswith(".localhost") or host in self._names


def _is_address(host: str) -> bool:
    """Whether a host is an IP address: no name system is asked for it.

    >>> _is_address("127.0.0.1"), _is_address("[::1]"), _is_address("127.0.0.1.example.com")
    (True, True, False)
    """
    try:
        IPv6Address(host[1:-1]) if host[:1] == "[" else IPv4Address(host)
    except AddressValueError:
        return False
    return True


class Origins:
    """The pages that may read responses, and those that may change something."""

    def __init__(self, setting: str, *, local: bool) -> None:
        chosen = frozenset(origin.strip() for origin in setting.split(",")) - {AUTO, ALL}
        self.to_all = setting == ALL or (setting == AUTO and not local)
        """Whether every page may read."""
        self._chosen, self._local = chosen, local
        self.lines = remembered(entries_max=ORIGINS_MAX, length_max=CACHED_BYTES_MAX)(self._lines)
        """The header lines for a page whose `Origin` this is; None if the gate must decide about its request."""

    def _lines(self, origin: bytes) -> bytes | None:
        text = origin.decode("latin-1").strip()
        return None if self._local and not self._is_known(text) else self.reading_lines(text).encode("latin-1")

    def reading_lines(self, origin: str) -> str:
        """The header lines of a response to a page of this origin: whether it may read it."""
        if self.to_all:
            return ALLOW_ALL_LINES
        return allow_lines(origin) if self._is_known(origin) else ""

    def _is_known(self, origin: str) -> bool:
        return origin in self._chosen or (self._local and _PAGE_OF_THIS_MACHINE.fullmatch(origin) is not None)

    def refuse(self, request: Request) -> Refusal | None:
        """Why a request of a page is refused; those without an `Origin` do not come from another page."""
        if not self._local or request.method in _SAFE or _ORIGIN not in request.headers:
            return None
        origin = request.headers[_ORIGIN].decode("latin-1").strip()
        if self._is_known(origin):
            return None
        return Refusal(
            Code.ORIGIN_REFUSED,
            f"Pages of {origin[:128]!r} may not change anything here; name the origin with --cors-origins to allow it.",
        )
