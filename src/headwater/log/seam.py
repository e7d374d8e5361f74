"""The seam between a shard and the log that orders its commands."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from headwater.prometheus import Metric
from headwater.streams.batches import Batch
from headwater.streams.commands import Command

Ticket = int
"""A proposer's own number for a batch. The log returns it with the batch and does not interpret it."""

Deliver = Callable[[Batch, Ticket | None], None]
"""Receives a decided batch, and its ticket if this proposer appended it; None if another one did."""


GiveBack = Callable[[Ticket], None]
"""Receives the ticket of a batch for which there is no room: nothing of it was decided, nor ever will be."""

Reached = Callable[[bool], None]
"""Receives whether a barrier was reached; False if the log could not tell in time."""

Barrier = Callable[[Reached], None]
"""`Barriers.barrier`."""


class Barriers(Protocol):
    """Tells when a proposer has seen everything that the others had."""

    @property
    def shared(self) -> bool:
        """Whether other processes append to this log, too."""

    def barrier(self, reached: Reached) -> None:
        """Call `reached` when everything that any proposer had applied before this call has been delivered here.

        At once if this is the only proposer, or if nothing is missing. Call it on the event loop, after `start`.
        """


async def reach(barrier: Barrier) -> bool:
    """Wait until all that any node had applied before is applied here; False if the log could not tell in time."""
    found: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def reached(in_time: bool) -> None:
        if not found.done():
            found.set_result(in_time)

    barrier(reached)
    return await found


class Trimming(Protocol):
    """What images and purges need, which drop what was logged before them."""

    @property
    def has_room(self) -> bool:
        """Whether commands that need space may be appended; those that free space always may."""

    @property
    def size_bytes(self) -> int:
        """The bytes replayed and appended since the start; only differences are meaningful."""

    def mark(self) -> bytes:
        """What a node must know, besides the state, to follow the log from the batch delivered last; for an image."""

    def forget(self, upto: int) -> None:
        """Nothing up to this position will ever be replayed again."""

    def cut(self) -> int:
        """Have what follows stored apart from what was appended so far, so that `forget` leaves no byte of the latter.

        That is so once another batch was appended, and batches of as many bytes as this returns. Call it on the loop.
        """

    async def has_forgotten(self, upto: int) -> bool:
        """Whether nothing up to this position is stored any more; only after `cut` and `forget`."""


class CommandLog(Barriers, Trimming, Protocol):
    """An ordered, durable log of commands, as one of its proposers sees it; positions count commands and never restart.

    A log may have several proposers. Each receives every batch, in the same order.
    """

    @property
    def log_id(self) -> str:
        """The log's id: chosen at random at its first start, and never changed."""

    @property
    def shortage(self) -> str:
        """What was missing when there last was no room, and what to do, as one sentence for a client."""

    @property
    def outage(self) -> str | None:
        """Why no command can be decided now, as one sentence for a client; None while the log works."""

    @property
    def batches_in_flight_max(self) -> int:
        """How many of its batches a proposer should have in flight at a time.

        One if deciding a batch keeps the log busy: the next batch gathers meanwhile. More if a batch mostly waits for
        a round trip.
        """

    def replay(self, after: int) -> Iterator[Batch]:
        """Every batch above a position, in order; once, before `start`."""

    def start(self, deliver: Deliver, give_back: GiveBack) -> None:
        """From now on call `deliver` on the running event loop with every decided batch, in order.

        The first one follows the last that was replayed. Batches of one proposer keep the order of its appends,
        except that a small one may pass a large one if both are appends, to different streams. A batch
        that needs space is given back where there is none, so that those behind it that free some do not wait for it.
        """

    def append(self, at: int, commands: list[Command], ticket: Ticket) -> None:
        """Order these commands, make them durable, then deliver them together with the ticket."""

    def close(self) -> None:
        """Finish what was appended and release every resource."""


class Peer(Protocol):
    """What a pulse says of another node."""

    @property
    def session(self) -> str: ...
    @property
    def applied(self) -> int: ...
    @property
    def known(self) -> int: ...
    @property
    def clock_offset_us(self) -> int: ...
    @property
    def heard_at(self) -> float: ...


class MarkDamaged(Exception):
    """Bytes are not a mark."""


class Marked(Protocol):
    """Where in the log a mark is."""

    @property
    def sequence(self) -> int: ...
    @property
    def now(self) -> int: ...


class Engine(Protocol):
    """What the software below a log says of it. That may be out of date, so it decides nothing."""

    @property
    def leader(self) -> str | None:
        """The server that leads the log; None if there is one server only, or no leader."""

    @property
    def replica_lag(self) -> int:
        """How many messages the slowest replica is behind."""


class MemberLog(CommandLog, Protocol):
    """A shared log whose nodes hear each other's pulses."""

    members: Mapping[str, str]
    """Whom a barrier asks: the session of each member, by its name. A former process of that name does not count."""

    @property
    def applied(self) -> int:
        """The sequence up to which this node has applied the log."""

    @property
    def known(self) -> int:
        """The sequence up to which the log is known to go."""

    @property
    def peers(self) -> Mapping[str, Peer]:
        """The other nodes that were heard."""

    def clock_offset_us(self) -> int:
        """How far this node's clock is off."""

    def fail_barriers(self) -> None:
        """Give up every barrier that has not been reached: those that were asked may not be all."""

    def compare(self, checkpoint: str, sha256: str) -> None:
        """Tell the other nodes the hash of the state at a checkpoint; one that has another is an outage."""

    def read_mark(self, mark: bytes) -> Marked:
        """What a mark of such a log says, also one that another node made; MarkDamaged if it cannot be read."""

    def metrics(self) -> list[Metric]:
        """What there is to watch of this log."""

    async def describe(self) -> Engine | None:
        """What the software below the log says of it; None if it does not answer."""
