"""What the short path uses of connections, parsers, shards and committers.

Compiled code is not type-checked, so it reads nothing of these objects that is not declared here. At the end, mypy
compares the declarations with the classes.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from headwater.http.wire.stages import Stage
from headwater.streams.commands.streams import Append
from headwater.streams.queries import Read
from headwater.streams.replies import Reply
from headwater.streams.state import State, Stream

if TYPE_CHECKING:
    from headwater.http.connection.connection import Connection
    from headwater.http.connection.inflow import Inflow
    from headwater.http.wire.parser import RequestParser
    from headwater.node.committer import Committer
    from headwater.node.renewals import Renewals
    from headwater.node.shard import Shard

Done = Callable[[Reply], None]


class ParserView(Protocol):
    """The parser of a connection: whether the next input may be a whole request with a plain head."""

    stage: Stage
    plain: bool
    refused: bool
    full: bool
    rest: bytes
    read_form: Any
    write_form: Any


class InflowView(Protocol):
    """The input of a connection."""

    paused: bool


class TransportView(Protocol):
    """The socket of a connection."""

    def write(self, data: bytes) -> None: ...

    def writelines(self, parts: list[bytes]) -> None: ...


class ConnectionView(Protocol):
    """A connection: whether nothing is in the way of a request, and of its response."""

    deadline: float
    write_paused: bool
    reserved: bool
    starting: bool

    @property
    def parser(self) -> ParserView: ...

    @property
    def inflow(self) -> InflowView: ...

    @property
    def transport(self) -> TransportView: ...

    @property
    def exchanges(self) -> Any:
        """The deque of those without a response; a waiting append takes the place of an exchange."""

    def finished(self) -> None:
        """An exchange has its response."""


class RenewalsView(Protocol):
    """The sliding lifetimes of a shard's streams."""

    def time_for(self, name: str) -> int: ...

    def are_due(self, stream: Stream, now: int) -> bool: ...

    def begin(self, name: str, alive_at: int) -> None: ...

    def end(self, name: str) -> None: ...


class CommitterView(Protocol):
    """The queue of a shard."""

    queued_bytes: int

    def enqueue(self, command: Append, done: Done, size_bytes: int) -> None: ...


class RoomView(Protocol):
    """The log of a shard."""

    @property
    def has_room(self) -> bool: ...


class QueriesView(Protocol):
    """What a shard says of its pages."""

    def reaches_tail(self, query: Read) -> bool: ...


class ShardView(Protocol):
    """A shard: its state, and where its appends go."""

    hot_bytes_max: int

    @property
    def state(self) -> State: ...

    @property
    def renewals(self) -> RenewalsView: ...

    @property
    def committer(self) -> CommitterView: ...

    @property
    def command_log(self) -> RoomView: ...

    @property
    def queries(self) -> QueriesView: ...

    def now(self) -> int: ...

    def read_hot(self, query: Read) -> Reply | None: ...

    def submit(self, command: Append, done: Done) -> None: ...


if TYPE_CHECKING:

    def _have_what_is_declared(
        *,
        connection: Connection,
        parser: RequestParser,
        inflow: Inflow,
        shard: Shard,
        committer: Committer,
        renewals: Renewals,
    ) -> tuple[ConnectionView, ParserView, InflowView, ShardView, CommitterView, RenewalsView]:
        return connection, parser, inflow, shard, committer, renewals
