"""What goes over the wire as plain values, and the programs that decide about it without touching it.

A **program** is a generator. It yields what it wants done (`Send`, `Open`, `More`, `Shut`, `Pause`, `Emit`) and is sent
the outcome, or has a `TransportFailed` thrown into it. Both shells, the blocking and the asynchronous one, only carry
programs out; so everything that is decided is decided once, and can be tested without a network or a clock.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from headwater.protocol import headers

T = TypeVar("T")
E = TypeVar("E")

# Header names are lower case wherever this client looks one up.
CONTENT_TYPE = headers.CONTENT_TYPE.lower
EARLIEST_OFFSET = headers.STREAM_EARLIEST_OFFSET.lower
ETAG = headers.ETAG.lower
INCARNATION = headers.STREAM_INCARNATION.lower
NEXT_OFFSET = headers.STREAM_NEXT_OFFSET.lower
PRODUCER_EPOCH = headers.PRODUCER_EPOCH.lower
PRODUCER_EXPECTED_SEQ = headers.PRODUCER_EXPECTED_SEQ.lower
PRODUCER_ID = headers.PRODUCER_ID.lower
PRODUCER_SEQ = headers.PRODUCER_SEQ.lower
RECORD_FIRST = headers.STREAM_RECORD_FIRST.lower
RECORD_NEXT = headers.STREAM_RECORD_NEXT.lower
RECORD_START = headers.STREAM_RECORD_START.lower
RETRY_AFTER = headers.RETRY_AFTER.lower
SNAPSHOT_OFFSET = headers.STREAM_SNAPSHOT_OFFSET.lower
SSE_ENCODING = headers.STREAM_SSE_DATA_ENCODING.lower
STREAM_CLOSED = headers.STREAM_CLOSED.lower
STREAM_CURSOR = headers.STREAM_CURSOR.lower
UP_TO_DATE = headers.STREAM_UP_TO_DATE.lower


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it is to be sent; headers and parameters of the client itself are added by the shell."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    waits: bool = False
    """Whether the server may take its time on purpose (long-poll, SSE)."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer; names of headers are lower case. The body of an opened one is read with `More`."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def flag(self, name: str) -> bool:
        return self.headers.get(name, "").lower() == "true"

    def saying(self, status: int, detail: str) -> "Response":
        """The same answer, as what it amounts to."""
        return Response(status, self.headers, detail.encode())

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Send:
    """Send, and read the whole answer: a `Response`."""

    request: Request


@dataclass(frozen=True, slots=True)
class Open:
    """Send, and wait for the head of the answer: a `Response` without its body."""

    request: Request


@dataclass(frozen=True, slots=True)
class More:
    """The next bytes of the opened answer: `bytes`, empty at its end."""


@dataclass(frozen=True, slots=True)
class Shut:
    """Let go of the opened answer."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for a while."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Now:
    """Read the clock: seconds, as a `float`, from any beginning."""


@dataclass(frozen=True, slots=True)
class Emit(Generic[E]):
    """Hand a value to whoever iterates."""

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
