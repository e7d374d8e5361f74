"""Publishing: batches become numbered messages, which are kept and sent again until they come back.

A session's messages count in order, so a large record would hold up everything behind it. Therefore a proposer has two
sessions, two lanes:

    express   batches that fit into one message, all in flight at once
    freight   larger ones, cut into parts, of which only so many bytes are in flight

A batch passes those on the freight lane only if no client can tell: both consist of appends, to different streams. Any
other batch queues on the freight lane, too. A batch on the freight lane starts when everything that was on the express
lane before it has come back. So two batches of one proposer that share a stream keep their order.
"""

import secrets
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from headwater.log.jetstream import judging
from headwater.log.jetstream.judging import SESSION_PARTS_BYTES_MAX, SESSION_US, Judge, Taken, pieces_of, seed_of
from headwater.log.seam import Ticket
from headwater.streams import batches
from headwater.streams.commands import Command
from headwater.streams.commands.streams import Append

FREIGHT_BYTES_IN_FLIGHT_MAX = 1024 * 1024
"""How much of the freight lane is in flight: what a small batch may have to wait for."""
REFUSED_SECONDS = 0.05
"""How long to wait before everything is sent again, after a message was refused or overtook another one."""
SILENCE_SECONDS = (0.3, 0.6, 1.2, 2.0)
"""How long nothing of ours comes back before everything is sent again; the last one repeats."""
SESSION_FRESH_US = SESSION_US // 2
"""A session that was silent for longer is replaced before other nodes forget it."""


class Proposal(NamedTuple):
    """A batch on its way; one without a ticket is a barrier."""

    at: int
    commands: list[Command]
    pieces: list[bytes]
    ticket: Ticket | None = None
    arrived: Callable[[], None] | None = None
    """Called when a barrier has come back."""
    after: int = 0
    """How many batches of the express lane must have come back before this one starts."""
    streams: frozenset[str] | None = None
    """The streams that it appends to; None if it does anything else, too, or if nothing depends on it."""


class _Unsettled(NamedTuple):
    """A message that has not come back."""

    number: int
    proposal: Proposal
    part: int


class Lane:
    """The messages of one session, in order, until each has come back."""

    def __init__(self, seed: int, in_flight_bytes_max: int | None) -> None:
        self._seed, self._in_flight_bytes_max = seed, in_flight_bytes_max
        self.session = secrets.randbits(63)
        self.number = 0
        self.appended = 0
        """Batches since the start."""
        self.settled = 0
        """Those of them that came back."""
        self.proposals: deque[Proposal] = deque()
        self._messages: deque[_Unsettled] = deque()
        self._sent = 0
        """How many of the messages, from the first on, were sent and have not come back."""
        self._in_flight_bytes = 0

    @property
    def idle(self) -> bool:
        return not self._messages

    def add(self, proposal: Proposal) -> None:
        self.appended += 1
        self.proposals.append(proposal)
        self._number(proposal)

    def _number(self, proposal: Proposal) -> None:
        for part in range(len(proposal.pieces)):
            self.number += 1
            self._messages.append(_Unsettled(self.number, proposal, part))

    def next_message(self, express_settled: int) -> bytes | None:
        """The next message to send, if there is one that may be sent now."""
        if self._sent == len(self._messages):
            return None
        number, proposal, part = self._messages[self._sent]
        if proposal.after > express_settled:
            return None
        piece = proposal.pieces[part]
        most = self._in_flight_bytes_max
        if most is not None and self._in_flight_bytes + len(piece) > most and self._in_flight_bytes:
            return None
        self._sent += 1
        self._in_flight_bytes += len(piece)
        return judging.message(
            self._seed,
            self.session,
            number,
            at=proposal.at,
            commands=len(proposal.commands),
            part=part,
            parts=len(proposal.pieces),
            piece=piece,
        )

    def settle(self, number: int) -> Proposal | None:
        """A message came back and counts; return its batch if that is complete now."""
        found = self._messages.popleft()
        assert found.number == number, f"message {number} came back before message {found.number}"
        if self._sent:
            self._sent -= 1
            self._in_flight_bytes -= len(found.proposal.pieces[found.part])
        if found.part + 1 < len(found.proposal.pieces):
            return None
        self.settled += 1
        return self.proposals.popleft()

    def send_again(self) -> None:
        """Send everything that has not come back once more, from the first message on."""
        self._sent = self._in_flight_bytes = 0

    def renew(self) -> None:
        """Continue in a new session: no message of the old one that has not counted ever will."""
        self.session, self.number = secrets.randbits(63), 0
        self._messages.clear()
        self.send_again()
        for proposal in self.proposals:
            self._number(proposal)

    def is_dead(self, horizon: int) -> bool:
        """Whether nothing of a session that is not known can ever count.

        That is so if it was known: then it was forgotten. It is also so if its first message is too old to begin one.
        If neither holds, some copy of the first message may still count, and another session would count it twice.
        """
        return bool(self._messages) and (self._messages[0].number > 1 or self.proposals[0].at < horizon)

    def give_up(self, before: int) -> list[Proposal]:
        """Take out the batches that are stamped too early to begin a session; only before `renew`."""
        late = [proposal for proposal in self.proposals if proposal.at < before]
        self.proposals = deque(proposal for proposal in self.proposals if proposal.at >= before)
        self.settled += len(late)
        return late


class Publisher:
    """The two lanes of a proposer. It decides what is sent next and when again; the log does the sending."""

    def __init__(self, log_id: str, shard: int, judge: Judge, give_back: Callable[[Ticket], None]) -> None:
        seed = seed_of(log_id, shard)
        self._judge, self._give_back = judge, give_back
        self.express = Lane(seed, None)
        self.freight = Lane(seed, FREIGHT_BYTES_IN_FLIGHT_MAX)
        self._resend_at = float("inf")
        self._resent_at = 0.0
        self._silences = 0
        self.progress_at = 0.0
        """When a message of ours last came back, or the first of those in flight was appended."""
        self.resends = 0

    @property
    def idle(self) -> bool:
        """Whether everything has come back."""
        return self.express.idle and self.freight.idle

    def append(self, at: int, commands: list[Command], ticket: Ticket, now_seconds: float) -> int:
        """Queue a batch; return the size of its record."""
        record = batches.encode(at, commands)
        assert len(record) <= SESSION_PARTS_BYTES_MAX, f"a batch of {len(record)} bytes is too large for the log"
        pieces = pieces_of(record)
        if self.idle:
            self.progress_at = now_seconds
        if len(pieces) == 1 and (self.freight.idle or self._may_pass(commands)):
            self._add(self.express, Proposal(at, commands, pieces, ticket))
        else:
            after, streams = self.express.appended, _streams_of(commands)
            self._add(self.freight, Proposal(at, commands, pieces, ticket, None, after, streams))
        return len(record)

    def append_barrier(self, at: int, arrived: Callable[[], None], now_seconds: float) -> None:
        """Queue a message without commands, and call `arrived` when everything before it has been delivered."""
        if self.idle:
            self.progress_at = now_seconds
        self._add(self.express, Proposal(at, [], [b""], None, arrived))

    def _add(self, lane: Lane, proposal: Proposal) -> None:
        if lane.idle and lane.number:
            used_at = self._judge.session_at(lane.session)
            if used_at is None or used_at < max(self._judge.now, proposal.at) - SESSION_FRESH_US:
                lane.renew()
        lane.add(proposal)

    def _may_pass(self, commands: list[Command]) -> bool:
        """Whether a batch and those on the freight lane are appends to different streams."""
        streams = _streams_of(commands)
        return streams is not None and all(
            proposal.streams is not None and proposal.streams.isdisjoint(streams) for proposal in self.freight.proposals
        )

    def next_message(self) -> bytes | None:
        """The next message to send; None if nothing may be sent now."""
        found = self.express.next_message(0)
        return found if found is not None else self.freight.next_message(self.express.settled)

    def lane_of(self, session: int) -> Lane | None:
        """The lane of a session; None if it is another proposer's, or one of ours that ended."""
        if session == self.express.session:
            return self.express
        return self.freight if session == self.freight.session else None

    def arrived(self, lane: Lane, taken: Taken, now_seconds: float) -> Proposal | None:
        """A message of ours came back; return its batch if it counts and completes one."""
        if taken.counts:
            self.progress_at, self._silences = now_seconds, 0
            return lane.settle(taken.number)
        if self._judge.session_at(lane.session) is None:
            if lane.is_dead(self._judge.now - SESSION_US):
                self._renew(lane)
            self.refused(now_seconds)
        elif taken.number > self._judge.last_number(lane.session) + 1:
            self.refused(now_seconds)
        return None

    def _renew(self, lane: Lane) -> None:
        for proposal in lane.give_up(self._judge.now - SESSION_FRESH_US):
            if proposal.ticket is not None:
                self._give_back(proposal.ticket)
        lane.renew()

    def refused(self, now_seconds: float, pause_seconds: float = REFUSED_SECONDS) -> None:
        """A message was not stored, or the connection was lost: send everything again soon."""
        self._resend_at = min(self._resend_at, now_seconds + pause_seconds)

    def resend_if_due(self, now_seconds: float) -> bool:
        """Whether it is time to send everything again; then the messages start from the first again."""
        if self.idle:
            self._resend_at, self._silences = float("inf"), 0
            return False
        patience = SILENCE_SECONDS[min(self._silences, len(SILENCE_SECONDS) - 1)]
        silent = now_seconds - max(self.progress_at, self._resent_at) > patience
        if now_seconds < self._resend_at and not silent:
            return False
        self._silences += silent
        self._resend_at, self._resent_at = float("inf"), now_seconds
        self.resends += 1
        self.express.send_again()
        self.freight.send_again()
        return True


def _streams_of(commands: list[Command]) -> frozenset[str] | None:
    """The streams that appends go to; None if there is any other command among them."""
    if all(type(command) is Append for command in commands):
        return frozenset(command.name for command in commands)  # type: ignore[attr-defined]
    return None
