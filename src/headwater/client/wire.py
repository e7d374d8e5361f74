"""What goes over the wire as plain values, and the programs that decide about it without touching it.

A **program** is a generator. It yields what it wants done (`Send`, `Open`, `More`, `Shut`, `Pause`, `Emit`) and is sent
the outcome, or has a `TransportFailed` thrown into it. Both shells, the blocking and the asynchronous one, only carry
programs out; so everything that is decided is decided once, and can be tested without a network or a clock.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")
E = TypeVar("E")

# Header names are lower case wherever this client looks one up.
CONTENT_TYPE = "content-type"
EARLIEST_OFFSET = "stream-earliest-offset"
ETAG = "etag"
INCARNATION = "stream-incarnation"
NEXT_OFFSET = "stream-next-offset"
PRODUCER_EPOCH = "producer-epoch"
PRODUCER_EXPECTED_SEQ = "producer-expected-seq"
PRODUCER_ID = "producer-id"
PRODUCER_SEQ = "producer-seq"
RECORD_FIRST = "stream-record-first"
RECORD_NEXT = "stream-record-next"
RECORD_START = "stream-record-start"
RETRY_AFTER = "retry-after"
SNAPSHOT_OFFSET = "stream-snapshot-offset"
SSE_ENCODING = "stream-sse-data-encoding"
STREAM_CLOSED = "stream-closed"
STREAM_CURSOR = "stream-cursor"
UP_TO_DATE = "stream-up-to-date"


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
