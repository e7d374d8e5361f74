"""A log in memory that several proposers share, for tests of nodes that apply each other's batches."""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from headwater.log.seam import Deliver, GiveBack, Reached, Ticket
from headwater.streams import batches
from headwater.streams.batches import Batch
from headwater.streams.commands import Command


class _Proposed(NamedTuple):
    """A batch that waits for its place in the order."""

    proposer: "Proposer"
    at: int
    commands: list[Command]
    ticket: Ticket


class _Record(NamedTuple):
    """A decided batch, encoded: proposers share no objects, as if each were in its own process."""

    first_position: int
    last_position: int
    data: bytes


class SharedLog:
    """Decides batches in the order in which they were appended, on the next turn of the loop.

    While it is held it decides nothing, so a test can have several batches in flight, of one proposer or of several.
    """

    def __init__(self, log_id: str, batches_in_flight_max: int = 4) -> None:
        self.log_id, self.batches_in_flight_max = log_id, batches_in_flight_max
        self.size_bytes = 0
        self.position = 0
        self.proposers: list[Proposer] = []
        """Those that are started and not closed."""
        self._records: list[_Record] = []
        self._proposed: list[_Proposed] = []
        self._held = False

    def proposer(self) -> "Proposer":
        """A `CommandLog` for one more node."""
        return Proposer(self)

    @property
    def in_flight(self) -> int:
        """How many batches wait to be decided."""
        return len(self._proposed)

    def hold(self) -> None:
        """Decide nothing until `release`."""
        self._held = True

    def release(self) -> None:
        self._held = False
        self.decide()

    def give_back_first(self) -> None:
        """Find no room for the first batch that waits."""
        one = self._proposed.pop(0)
        one.proposer.give_back(one.ticket)

    def decide(self) -> None:
        """Decide every batch that waits, unless held."""
        if self._held:
            return
        proposed, self._proposed = self._proposed, []
        for one in proposed:
            batch = Batch(self.position + 1, one.at, one.commands)
            record = _Record(batch.first_position, batch.last_position, batches.encode(one.at, one.commands))
            self.position = batch.last_position
            self.size_bytes += len(record.data)
            self._records.append(record)
            for proposer in self.proposers:
                if proposer is one.proposer:
                    proposer.deliver_soon(batch, one.ticket)
                else:
                    proposer.deliver_soon(_decoded(record), None)

    def propose(self, one: _Proposed) -> None:
        self._proposed.append(one)
        asyncio.get_running_loop().call_soon(self.decide)

    def decided(self, after: int) -> Iterator[Batch]:
        """Every batch above a position."""
        return (_decoded(record) for record in self._records if record.last_position > after)

    def forget(self, upto: int) -> None:
        self._records = [record for record in self._records if record.last_position > upto]


class Proposer:
    """One node's end of a shared log: a `CommandLog`."""

    has_room = True
    shortage = ""
    shared = True
    outage: str | None = None

    def __init__(self, shared: SharedLog) -> None:
        self._shared = shared
        self._replayed = 0
        self._barriers: list[tuple[int, Reached]] = []
        self._lagging: list[tuple[Batch, Ticket | None]] | None = None

    @property
    def log_id(self) -> str:
        return self._shared.log_id

    @property
    def size_bytes(self) -> int:
        return self._shared.size_bytes

    @property
    def batches_in_flight_max(self) -> int:
        return self._shared.batches_in_flight_max

    def replay(self, after: int) -> Iterator[Batch]:
        self._replayed = after
        for batch in self._shared.decided(after):
            self._replayed = batch.last_position
            yield batch

    def start(self, deliver: Deliver, give_back: GiveBack) -> None:
        self._loop, self._deliver, self.give_back = asyncio.get_running_loop(), deliver, give_back
        self._delivered = self._replayed
        for batch in self._shared.decided(self._replayed):
            self.deliver_soon(batch, None)
        self._shared.proposers.append(self)

    def append(self, at: int, commands: list[Command], ticket: Ticket) -> None:
        self._shared.propose(_Proposed(self, at, commands, ticket))

    def deliver_soon(self, batch: Batch, ticket: Ticket | None) -> None:
        self._loop.call_soon(self._deliver_now, batch, ticket)

    def lag(self) -> None:
        """Fall behind: deliver nothing until `catch_up`."""
        self._lagging = []

    def catch_up(self) -> None:
        lagging, self._lagging = self._lagging or [], None
        for batch, ticket in lagging:
            self._deliver_now(batch, ticket)

    def fail_barriers(self) -> None:
        """Give up every barrier that has not been reached, as a log does that cannot tell in time."""
        barriers, self._barriers = self._barriers, []
        for _, reached in barriers:
            reached(False)

    def _deliver_now(self, batch: Batch, ticket: Ticket | None) -> None:
        if self._lagging is not None:
            self._lagging.append((batch, ticket))
            return
        self._deliver(batch, ticket)
        self._delivered = batch.last_position
        reached = [one for position, one in self._barriers if position <= self._delivered]
        self._barriers = [barrier for barrier in self._barriers if barrier[0] > self._delivered]
        for one in reached:
            one(True)

    def barrier(self, reached: Reached) -> None:
        if self._delivered >= self._shared.position:
            reached(True)
        else:
            self._barriers.append((self._shared.position, reached))

    def mark(self) -> bytes:
        return b""

    def forget(self, upto: int) -> None:
        self._shared.forget(upto)

    def cut(self) -> int:
        return 0

    async def has_forgotten(self, upto: int) -> bool:
        return all(batch.first_position > upto for batch in self._shared.decided(0))

    def close(self) -> None:
        self._shared.decide()
        self._shared.proposers.remove(self)


def _decoded(record: _Record) -> Batch:
    return batches.decode(record.data, record.first_position)
