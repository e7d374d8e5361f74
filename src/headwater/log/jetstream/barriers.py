"""Read barriers: wait until this node has applied everything that any node has acknowledged.

No node acknowledges what it has not applied. So a reader asks all members how far they have applied the log, after the
read arrived, and waits until this node has applied as much. If a member is silent, that says nothing about what it has
acknowledged, so a message without commands goes through the log: what was acknowledged before is in the log before it.

Who the members are is known as of what this node has applied. A node that was evicted and does not know it yet may miss
one that has joined since, and so may all others that it asks. Therefore a node asks its members only for some seconds
after a message of its own came through the log, which is less than a new member waits before it evicts anybody; and a
node that knows of no other member goes through the log each time.

Readers that come while a question is on its way share the next one: an answer to a question that was asked before they
came would not do.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from headwater.log.seam import Reached

SILENT_SECONDS = 0.3
"""A member whose last pulse is older is not asked at all."""
ANSWER_SECONDS = 0.05
"""How long members may take to answer."""
CONTACT_SECONDS = 2.5
"""For how long after a message went through the log the members are believed: half of what a node must be silent for to
be evicted."""
BARRIER_SECONDS_MAX = 5.0
"""How long a reader waits for a barrier."""


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """A member's answer: which process it is, and how far it has applied the log."""

    session: str
    applied: int


_encoder = msgspec.msgpack.Encoder()
_answers = msgspec.msgpack.Decoder(Answer)


def encode_answer(session: str, applied: int) -> bytes:
    return _encoder.encode(Answer(session, applied))


class Parts(Protocol):
    """What barriers need of the log."""

    @property
    def applied(self) -> int: ...

    def members_to_ask(self) -> frozenset[str] | None:
        """The sessions of the other members; None if one of them is silent, or if the members are not known."""

    def ask(self, number: int) -> bool:
        """Ask all nodes how far they are; False if that cannot be sent."""

    def send_barrier(self, arrived: Callable[[], None]) -> None:
        """Send a message without commands through the log."""

    def learn(self, sequence: int) -> None:
        """The log goes at least up to this sequence."""


class _Group:
    """Readers that came while the same question was on its way. They share the next one, and their time-out."""

    def __init__(self) -> None:
        self.readers: list[Reached] = []
        self.done = False
        self.timer: asyncio.TimerHandle | None = None

    def reach(self, good: bool) -> None:
        """Call back once, whichever comes first: the barrier or its time-out."""
        if not self.done:
            self.done = True
            if self.timer is not None:
                self.timer.cancel()
            for reached in self.readers:
                reached(good)


class _Waiting(NamedTuple):
    """Readers that wait until this node has applied the log up to a sequence."""

    sequence: int
    group: _Group


class _Round:
    """One question, and the readers that share it."""

    def __init__(self, number: int, group: _Group, missing: frozenset[str]) -> None:
        self.number, self.group = number, group
        self.missing = set(missing)
        self.sequence = 0
        self.timer: asyncio.TimerHandle | None = None


class Barriers:
    """All barriers of a node."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._next: _Group | None = None
        """Those that came while a question was on its way."""
        self._scheduled = False
        self._round: _Round | None = None
        self._numbers = 0
        self._waiting: deque[_Waiting] = deque()
        self._contact_at = float("-inf")
        """When the last message was sent that came back through the log."""
        self.asked = 0
        """Rounds in which all members answered."""
        self.through_log = 0
        """Rounds that went through the log."""
        self.timed_out = 0
        """Readers whose barrier was not reached in time."""

    def wait(self, reached: Reached) -> None:
        """Call `reached` when everything that was acknowledged anywhere before this call is applied here."""
        group = self._next
        if group is None:
            loop = asyncio.get_running_loop()
            group = self._next = _Group()
            group.timer = loop.call_later(BARRIER_SECONDS_MAX, self._time_out, group)
            if self._round is None and not self._scheduled:
                # Not at once: all readers of this turn of the loop share one question.
                self._scheduled = True
                loop.call_soon(self._begin)
        group.readers.append(reached)

    def fail_all(self) -> None:
        """No barrier can be reached any more."""
        groups = [] if self._next is None else [self._next]
        groups += [self._round.group] if self._round is not None else []
        groups += [waiting.group for waiting in self._waiting]
        self._next, self._waiting = None, deque()
        self._end_round()
        for group in groups:
            group.reach(False)

    def _time_out(self, group: _Group) -> None:
        self.timed_out += len(group.readers)
        if self._next is group:
            self._next = None
        group.reach(False)
        if self._round is not None and self._round.group is group:
            self._end_round()

    def _begin(self) -> None:
        self._scheduled = False
        group, self._next = self._next, None
        if group is None:
            return
        members = self._parts.members_to_ask()
        self._numbers += 1
        self._round = _Round(self._numbers, group, members or frozenset())
        loop = asyncio.get_running_loop()
        if not members or loop.time() > self._contact_at + CONTACT_SECONDS:
            self._go_through_log(self._round)
        elif self._parts.ask(self._numbers):
            self._round.timer = loop.call_later(ANSWER_SECONDS, self._go_through_log, self._round)
        else:
            self._go_through_log(self._round)

    def receive(self, number: int, data: bytes) -> None:
        """Take in an answer to a question."""
        current = self._round
        if current is None or current.number != number:
            return
        try:
            answer = _answers.decode(data)
        except msgspec.MsgspecError:
            return  # Not an answer: the member counts as silent.
        current.missing.discard(answer.session)
        current.sequence = max(current.sequence, answer.applied)
        if not current.missing and current.timer is not None:
            self.asked += 1
            self._answered(current)

    def _answered(self, current: _Round) -> None:
        self._end_round()
        if current.sequence <= self._parts.applied:
            current.group.reach(True)
        else:
            self._parts.learn(current.sequence)
            self._waiting.append(_Waiting(current.sequence, current.group))

    def _go_through_log(self, current: _Round) -> None:
        current.timer = None
        self.through_log += 1
        sent_at = asyncio.get_running_loop().time()
        self._parts.send_barrier(lambda: self._arrived(current, sent_at))

    def _arrived(self, current: _Round, sent_at: float) -> None:
        self._contact_at = max(self._contact_at, sent_at)
        if self._round is current:
            self._end_round()
        current.group.reach(True)

    def _end_round(self) -> None:
        if self._round is not None and self._round.timer is not None:
            self._round.timer.cancel()
        self._round = None
        if self._next is not None and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)

    def applied(self, sequence: int) -> None:
        """The log has been applied up to this sequence."""
        waiting = self._waiting
        if not waiting:
            return
        # Not sorted: a later question may have had a lower answer.
        due = [one for one in waiting if one.sequence <= sequence]
        if due:
            self._waiting = deque(one for one in waiting if one.sequence > sequence)
            for one in due:
                one.group.reach(True)
