"""Requests and responses as plain values, and the programs that decide about them without any I/O.

A **program** is a generator. It yields an effect (`Send`, `Open`, `More`, `Shut`, `Pause`, `Now`, `Emit`), and receives
the outcome, or a `TransportFailed` is thrown into it. The blocking and the asynchronous client only carry programs out.
So every decision is made in one place, and is tested without a network or a clock.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeAlias, TypeVar

from headwater.protocol.headers import Header

T = TypeVar("T")
E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Request:
    """A request to send; the client adds the headers and parameters of its settings."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    waits: bool = False
    """Whether the server may delay its response on purpose (long-poll, SSE)."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request was sent: its URL on one of the nodes, and what is left to try."""

    url: str
    others: int = 0
    """How many other URLs the client has, if this one failed: they may be tried at once."""
    failed: int = 0
    """How many URLs the client has, if all of them failed when they were last tried."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response; header names are lower case. The body of an opened response is read with `More`."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    route: Route = field(default_factory=lambda: Route(""), compare=False)

    def source(self, request: Request) -> str:
        """The URL that gave this response."""
        return self.route.url or request.url

    def header(self, header: Header) -> str | None:
        return self.headers.get(header.lower)

    def number(self, header: Header) -> int | None:
        """The whole number in a header; None if it has none."""
        text = self.headers.get(header.lower, "")
        return int(text) if text.isascii() and text.isdigit() else None

    def flag(self, header: Header) -> bool:
        return self.headers.get(header.lower, "").lower() == "true"

    def restated(self, status: int, detail: str) -> "Response":
        """The same response with the status and detail that describe what it means to the caller."""
        return replace(self, status=status, body=detail.encode())

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request and read the whole response: a `Response`."""

    request: Request


@dataclass(frozen=True, slots=True)
class Open:
    """Send a request and wait for the head of the response: a `Response` without its body."""

    request: Request


@dataclass(frozen=True, slots=True)
class More:
    """The next bytes of the opened response: `bytes`, empty at its end."""


@dataclass(frozen=True, slots=True)
class Shut:
    """Close the opened response."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for a while."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Now:
    """Read the clock: seconds since an arbitrary moment, as a `float`."""


@dataclass(frozen=True, slots=True)
class Emit(Generic[E]):
    """Give a value to the caller, who iterates over the program's values."""

    value: E


Effect: TypeAlias = Send | Open | More | Shut | Pause | Now | Emit[Any]
Program: TypeAlias = Generator[Effect, Any, T]


def send(request: Request) -> Program[Response]:
    response: Response = yield Send(request)
    return response


def open_response(request: Request) -> Program[Response]:
    response: Response = yield Open(request)
    return response


def more() -> Program[bytes]:
    data: bytes = yield More()
    return data


def now() -> Program[float]:
    seconds: float = yield Now()
    return seconds
