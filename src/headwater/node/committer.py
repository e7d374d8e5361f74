"""The committer: gathers commands into batches for the log, applies every batch that comes back, answers its own.

A log may have several proposers, so a batch is not answered by its order but by its ticket: the committer numbers the
batches that it appends and keeps their waiters under that number. A batch without a ticket comes from another proposer:
it is applied and wakes live tails, and no client of this process waits for it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence, Set
from itertools import count
from time import monotonic

import msgspec

from headwater.log.seam import CommandLog, Ticket
from headwater.node.metrics import Metrics
from headwater.node.reads.tails import Tails
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.apply import apply
from headwater.streams.batches import (
    CLIENT_COMMANDS,
    FREEING_BYTES_MAX,
    NEEDS_ROOM,
    Batch,
    frees_space,
)
from headwater.streams.commands import Command
from headwater.streams.replies import Duplicate, Reply
from headwater.streams.state import State

BATCH_BYTES_MAX = 8 * 1024 * 1024
"""The size of one commit (or of one command, if that alone is larger), so that small writes never wait for long."""
BATCH_COMMANDS_MAX = 16_384
"""The commands of one commit: together with the limit above it keeps a record well below what any log can take."""
QUEUE_BYTES_MAX = 256 * 1024 * 1024
"""The size of all commands that wait for a commit; beyond it writes are refused until the queue has drained."""
OVERLAP_COMMANDS_MIN = 16
"""How many commands must wait before they are sent while another batch is in flight, on a log that allows several."""
OUTCOME_SECONDS = 20.0
"""After this time the client of a command in flight gets the answer that its outcome is unknown."""
CHECK_SECONDS = 0.5
"""How often the age of what is in flight is checked, on a shared log."""

Done = Callable[[Reply], None]
"""Receives the reply to one command."""
Submit = Callable[[Command, Done], None]
"""Has a command decided."""
Now = Callable[[], int]
"""The time in microseconds since 1970."""

log = logging.getLogger(__name__)


class _Sent(msgspec.Struct, frozen=True):
    """A batch in flight: when it was sent, its commands, and who waits for each of them."""

    at_seconds: float
    commands: list[Command]
    waiters: list[Done]


def _ignore_foreign(commands: list[Command], replies: list[Reply]) -> None:
    pass


def _ignore_reply(reply: Reply) -> None:
    pass


class Committer:
    """Sends a batch as soon as nothing is in flight; while batches are, the next one gathers. No timer, no window."""

    def __init__(
        self,
        state: State,
        command_log: CommandLog,
        tails: Tails,
        metrics: Metrics,
        *,
        now: Now,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._state, self._log, self._tails, self._metrics = state, command_log, tails, metrics
        self._now, self._on_failure = now, on_failure
        self._queue: deque[tuple[Command, Done, int]] = deque()
        self._in_flight: dict[Ticket, _Sent] = {}
        self._in_flight_max = command_log.batches_in_flight_max
        self._may_send = True
        """Whether the log takes another batch now."""
        self._tickets = count(1)
        self._scheduled = False
        self.queued_bytes = 0
        self.after_batch: Callable[[], None] = lambda: None
        self.on_foreign: Callable[[list[Command], list[Reply]], None] = _ignore_foreign
        """Called with the commands of another proposer and their replies, once they are applied."""
        self._may_answer = True
        self._withheld: list[tuple[_Sent, list[Reply]]] = []
        """Decided batches of ours whose clients get no answer yet, because this node is not a member."""
        self._check_timer: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        return not self._queue and not self._in_flight

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._log.start(self.deliver, self.take_back)
        if self._log.shared:
            self._check()

    def stop(self) -> None:
        if self._check_timer is not None:
            self._check_timer.cancel()

    @property
    def may_answer(self) -> bool:
        """Whether clients get answers. Not while this node is no member: others may read without asking it."""
        return self._may_answer

    @may_answer.setter
    def may_answer(self, allowed: bool) -> None:
        self._may_answer = allowed
        if allowed and self._withheld:
            withheld, self._withheld = self._withheld, []
            for sent, replies in withheld:
                _answer(sent.waiters, replies)

    def _withhold(self, sent: _Sent, replies: list[Reply]) -> None:
        """Keep the answers of clients; chores, which make this node a member again, get theirs."""
        kept = _Sent(sent.at_seconds, [], []), list[Reply]()
        for command, done, reply in zip(sent.commands, sent.waiters, replies, strict=True):
            if type(command) in CLIENT_COMMANDS:
                kept[0].commands.append(command)
                kept[0].waiters.append(done)
                kept[1].append(reply)
            else:
                _answer([done], [reply])
        if kept[0].waiters:
            self._withheld.append(kept)

    def _check(self) -> None:
        """Tell clients that wait for too long that the outcome is unknown, or that nothing was changed."""
        self._check_timer = self._loop.call_later(CHECK_SECONDS, self._check)
        latest = monotonic() - OUTCOME_SECONDS
        for sent in (*self._in_flight.values(), *(sent for sent, _ in self._withheld)):
            if sent.at_seconds < latest:
                self._give_up(sent)
        if self._log.outage is not None and self._queue:
            self._refuse_queued(CLIENT_COMMANDS, Refusal(Code.LOG_UNAVAILABLE, self._log.outage))

    def _give_up(self, sent: _Sent) -> None:
        unknown = Refusal(
            Code.OUTCOME_UNKNOWN,
            "The log did not confirm this in time, so it may have happened, or may yet happen; read before you repeat "
            "it, or repeat it with the same producer headers.",
        )
        waiting: list[Done] = []
        for index, (command, done) in enumerate(zip(sent.commands, sent.waiters, strict=True)):
            if type(command) in CLIENT_COMMANDS and done is not _ignore_reply:
                sent.waiters[index] = _ignore_reply
                waiting.append(done)
        _answer(waiting, [unknown] * len(waiting))

    def submit(self, command: Command, done: Done) -> None:
        """Queue a command; `done` is called when it has been decided and applied."""
        self.enqueue(command, done, command.cost_bytes())

    def enqueue(self, command: Command, done: Done, size_bytes: int) -> None:
        """Queue a command whose size in the log (`cost_bytes`) the caller knows already."""
        self._queue.append((command, done, size_bytes))
        self.queued_bytes += size_bytes
        if not self._scheduled and self._may_send:
            # Not at once: everything else that this turn of the loop brings goes into the same batch.
            self._scheduled = True
            self._loop.call_soon(self._send_scheduled)

    def _send_next(self) -> None:
        if self._queue and self._may_send:
            self._send()

    def _send_scheduled(self) -> None:
        self._scheduled = False
        if self._may_send and (not self._in_flight or len(self._queue) >= OVERLAP_COMMANDS_MIN):
            self._send()

    def _send(self) -> None:
        most = BATCH_BYTES_MAX
        if not self._log.has_room:
            most = FREEING_BYTES_MAX
            self._refuse_what_needs_room()
        queue = self._queue
        if self.queued_bytes > most or len(queue) > BATCH_COMMANDS_MAX:
            queue = self._take(most)
        else:
            self._queue = deque()
        if queue:
            commands, waiters, costs = map(list, zip(*queue, strict=True))
            self.queued_bytes -= sum(costs)
            ticket = next(self._tickets)
            self._in_flight[ticket] = _Sent(monotonic(), commands, waiters)
            self._may_send = len(self._in_flight) < self._in_flight_max
            self._log.append(self._now(), commands, ticket)

    def _take(self, most: int) -> deque[tuple[Command, Done, int]]:
        """Take the first commands out of the queue that are together no larger than this, or the first alone."""
        taken: deque[tuple[Command, Done, int]] = deque()
        while self._queue and (self._queue[0][2] <= most or not taken) and len(taken) < BATCH_COMMANDS_MAX:
            most -= self._queue[0][2]
            taken.append(self._queue.popleft())
        return taken

    def _refuse_what_needs_room(self) -> None:
        """Commands that free space must not wait behind those that need it."""
        self._refuse_queued(NEEDS_ROOM, Refusal(Code.OVERLOADED, self._log.shortage))

    def _refuse_queued(self, kinds: Set[type], refusal: Refusal) -> None:
        refused = [done for command, done, _ in self._queue if type(command) in kinds]
        if refused:
            dropped = sum(cost for command, _, cost in self._queue if type(command) in kinds)
            self._queue = deque(one for one in self._queue if type(one[0]) not in kinds)
            self.queued_bytes -= dropped
            self._refuse(refused, refusal)

    def take_back(self, ticket: Ticket) -> None:
        """The log has no room for a batch: refuse what takes space, and send again what frees some.

        But a client's command is not sent again behind later ones on the same stream that are in flight.
        """
        sent = self._in_flight.pop(ticket)
        self._may_send = True
        again, refused = [], []
        later = {_name_of(one) for behind in self._in_flight.values() for one in behind.commands}
        for command, done in zip(sent.commands, sent.waiters, strict=True):
            overtaken = type(command) in CLIENT_COMMANDS and _name_of(command) in later
            if frees_space(command) and not overtaken:
                again.append((command, done, command.cost_bytes()))
            else:
                refused.append(done)
        self._queue.extendleft(reversed(again))
        self.queued_bytes += sum(cost for _, _, cost in again)
        self._refuse(refused, Refusal(Code.OVERLOADED, self._log.shortage))
        if self._may_send:
            self._send()

    def _refuse(self, waiters: list[Done], refusal: Refusal) -> None:
        self._metrics.refused_writes += len(waiters)
        _answer(waiters, [refusal] * len(waiters))

    def deliver(self, batch: Batch, ticket: Ticket | None) -> None:
        """Apply a decided batch, answer it if it is ours, send the next one, and wake live tails."""
        try:
            sent = None if ticket is None else self._settle(ticket, batch)
            replies = apply(self._state, batch)
        except Exception as error:
            # The state has fallen behind the log for good: no later answer could be trusted.
            log.critical("a decided batch cannot be applied, so the server stops", exc_info=error)
            self._on_failure(error)
            return
        if sent is None:
            self.on_foreign(batch.commands, replies)
        else:
            for reply in replies:
                if type(reply) is Duplicate:
                    self._metrics.producer_duplicates += 1
            if self._may_answer:
                _answer(sent.waiters, replies)
            else:
                self._withhold(sent, replies)
            if self._queue:
                # In the next turn: the batch may be synced on the loop, and what was just answered leaves before that.
                self._loop.call_soon(self._send_next)
        if self._tails.names:
            self._wake(batch.commands)
        if sent is None or self._log.shared:
            self.after_batch()
        else:
            self._loop.call_soon(self.after_batch)  # The answers leave before the chores look for work.

    def _wake(self, commands: list[Command]) -> None:
        """Wake the live tails of what was applied."""
        waited_on = self._tails.names
        for name in set(map(_name_of, commands)):
            if name in waited_on:
                self._tails.wake(name)

    def _settle(self, ticket: Ticket, batch: Batch) -> _Sent:
        """Take a batch of ours out of flight."""
        sent, metrics = self._in_flight.pop(ticket), self._metrics
        assert len(sent.waiters) == len(batch.commands), "a batch came back with a different number of commands"
        self._may_send = True
        metrics.committed(len(batch.commands), monotonic() - sent.at_seconds)
        return sent


def _name_of(command: Command) -> str:
    return getattr(command, "name", "")


def _answer(waiters: list[Done], replies: Sequence[Reply]) -> None:
    for done, reply in zip(waiters, replies, strict=True):
        try:
            done(reply)
        except Exception:
            log.exception("a reply could not be delivered")


async def ask(submit: Submit, command: Command) -> Reply:
    """Submit a command and wait for its reply."""
    done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def answered(reply: Reply) -> None:
        if not done.cancelled():
            done.set_result(reply)

    submit(command, answered)
    return await done
