"""What clients saw, and whether the log explains it.

The log is the witness. It is judged and applied once more from its first message, by itself, which says what the answer
to each command is and what each stream was at each position. Then every operation must have taken effect at one
position: behind everything that any client knew of when it began, before the end of what was stored when it ended, and
with just the answer that it got. That is linearizability, checked with the order in hand.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from typing import NamedTuple

from headwater.log.jetstream.judging import Judge
from headwater.protocol.refusals import Code, Refusal
from headwater.streams import batches
from headwater.streams.apply import apply
from headwater.streams.batches import Batch
from headwater.streams.commands import Command
from headwater.streams.commands.forks import CreateFork
from headwater.streams.commands.lake import PublishSegment
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.replies import (
    Appended,
    ClosedOnly,
    Created,
    Deleted,
    Described,
    Duplicate,
    Existed,
    Page,
    Placed,
    Reply,
)
from headwater.streams.state import State

from .nats import SimulatedNats


class Lost(NamedTuple):
    """The client lost its connection, or the patience."""


Answer = Reply | Lost

CHANGED_NOTHING = frozenset({Code.LOG_UNAVAILABLE, Code.OVERLOADED})


class Operation(NamedTuple):
    """One request and its answer, when it began and ended for the client, and which node it was sent to."""

    asked: object
    """A command, or the name of the stream that was read."""
    name: str
    node: str
    began: float
    ended: float
    answer: Answer
    repeats: bool = False
    """Whether the client sends the same command until it knows the outcome."""

    def __str__(self) -> str:
        kind = type(self.asked).__name__ if isinstance(self.asked, Command) else "read"
        payload = getattr(self.asked, "payload", b"")[:12]
        return f"{kind} {self.name} {payload!r} on {self.node} at {self.began:.4f}..{self.ended:.4f}: {self.answer}"


class Wrong(Exception):
    """The schedule has shown a bug; the message says what is wrong."""


Facts = tuple[int, int, bool] | str
"""What a stream is: its incarnation, tail and closure; or `missing`, or `gone`."""


class _Decided(NamedTuple):
    position: int
    command: Command
    reply: Reply


class Reference:
    """The history of the state, from the log alone."""

    def __init__(self, nats: SimulatedNats) -> None:
        self.state = State(nats.log_id)
        self.by_payload: dict[bytes, list[_Decided]] = defaultdict(list)
        self.deletes: list[_Decided] = []
        self._times: list[float] = []
        self._positions: list[int] = []
        self._changes: dict[str, list[tuple[int, Facts]]] = defaultdict(list)
        self.contents: dict[int, bytearray] = defaultdict(bytearray)
        """The bytes of each incarnation."""
        self.positions_of_sequences = [0]
        judge = Judge(nats.log_id, 0)
        for sequence, stored in enumerate(nats.history, 1):
            taken = judge.take(sequence, stored.data)
            if taken is not None and taken.record is not None and taken.record.commands:
                batch = batches.decode(taken.record.data, taken.record.first_position)
                self._apply(batch, stored.sender.name)
                self._times.append(stored.at_seconds)
                self._positions.append(batch.last_position)
            self.positions_of_sequences.append(self.state.position)

    def _apply(self, batch: Batch, sender: str) -> None:
        """Apply a batch, command by command, and note what each changed."""
        for number, command in enumerate(batch.commands):
            position = batch.first_position + number
            keeper = self.state.cluster.keeper
            [reply] = apply(self.state, Batch(position, batch.at, [command]))
            published = isinstance(reply, Placed) and isinstance(command, PublishSegment)
            if published and (keeper is None or keeper.node != sender):
                raise Wrong(f"Node {sender} published a segment at {position} in the tenure of {keeper}.")
            decided = _Decided(position, command, reply)
            if isinstance(command, Append | Create | CreateFork) and command.payload:
                self.by_payload[command.payload].append(decided)
            elif isinstance(command, Delete):
                self.deletes.append(decided)
            self._note_content(command, reply)
            name = getattr(command, "name", None)
            if name is not None:
                facts = self._facts(name)
                changes = self._changes[name]
                if not changes or changes[-1][1] != facts:
                    changes.append((position, facts))

    def _note_content(self, command: Command, reply: Reply) -> None:
        if isinstance(reply, Appended | Created) and isinstance(command, Append | Create | CreateFork):
            content = self.contents[reply.incarnation]
            if isinstance(command, CreateFork):
                origin = command.origin
                content += self.contents[origin.incarnation][: origin.to]
            content += command.payload
            if len(content) != reply.next_offset:
                raise Wrong(f"{command.name} ends at {reply.next_offset}, but has {len(content)} bytes.")

    def _facts(self, name: str) -> Facts:
        stream = self.state.streams.get(name)
        if stream is None:
            return "missing"
        return "gone" if stream.deleted else (stream.incarnation, stream.tail, stream.closed)

    def stored_by(self, seconds: float) -> int:
        """The position up to which commands had been stored by then."""
        index = bisect_right(self._times, seconds)
        return self._positions[index - 1] if index else 0

    def first_with(self, name: str, facts: Facts, low: int, high: int) -> int | None:
        """The first position from low to high behind which a stream was just so; None if there is none."""
        changes = self._changes.get(name, [])
        index = bisect_right(changes, low, key=lambda change: change[0])
        at = changes[index - 1][1] if index else "missing"
        if at == facts:
            return low
        for position, changed in changes[index:]:
            if position > high:
                return None
            if changed == facts:
                return position
        return None


class Checker:
    """Checks every operation against the reference."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._known: list[tuple[float, int]] = [(0.0, 0)]
        """Up to which position clients knew the log at each time."""
        self.counts: Counter[str] = Counter()

    def check(self, operations: list[Operation]) -> None:
        for operation in sorted(operations, key=lambda one: one.ended):
            low = self._known[bisect_right(self._known, operation.began, key=lambda one: one[0]) - 1][1]
            high = self._reference.stored_by(operation.ended)
            position = self._judge(operation, low, high)
            if position is not None and position > self._known[-1][1]:
                self._known.append((operation.ended, position))

    def _judge(self, operation: Operation, low: int, high: int) -> int | None:
        """The position at which an operation took effect; None if that says nothing."""
        answer = operation.answer
        kind = answer.code.value if isinstance(answer, Refusal) else type(answer).__name__
        self.counts[kind] += 1
        if isinstance(operation.asked, Append | Create):
            return self._judge_write(operation, operation.asked, low, high)
        if isinstance(operation.asked, Delete):
            return self._judge_delete(operation, low, high)
        if isinstance(answer, Page):
            self._check_body(operation, answer)
            if not answer.up_to_date:
                return None
        return self._judge_state(operation, low, high)

    def _judge_write(self, operation: Operation, command: Append | Create, low: int, high: int) -> int | None:
        answer = operation.answer
        found = self._reference.by_payload.get(command.payload, [])
        done = [one for one in found if isinstance(one.reply, Appended | Created)]
        if len(done) > 1:
            raise Wrong(f"Doubled at {[one.position for one in found]}: {operation}")
        if isinstance(answer, Lost) or (isinstance(answer, Refusal) and answer.code is Code.OUTCOME_UNKNOWN):
            return None
        if isinstance(answer, Refusal) and answer.code in CHANGED_NOTHING:
            if found and not operation.repeats:
                raise Wrong(f"Refused without a change, but it happened at {found[0].position}: {operation}")
            return None
        for one in found:
            if one.reply == answer and low < one.position <= high:
                return one.position
        if operation.repeats and isinstance(answer, Duplicate | Existed) and done and done[0].position <= high:
            return done[0].position
        if isinstance(answer, Appended | Created | Existed | Duplicate):
            raise Wrong(f"The log from {low} to {high} does not have this, but {found}: {operation}")
        return self._judge_state(operation, low, high)

    def _judge_delete(self, operation: Operation, low: int, high: int) -> int | None:
        answer = operation.answer
        if isinstance(answer, Deleted):
            for one in self._reference.deletes:
                if one.reply == answer and one.position <= high:
                    return one.position if one.position > low else self._wrong(operation, low, high)
            return self._wrong(operation, low, high)
        return self._judge_state(operation, low, high)

    def _judge_state(self, operation: Operation, low: int, high: int) -> int | None:
        """The first position at which the state alone explains an answer."""
        answer, name = operation.answer, operation.name
        facts: Facts
        if isinstance(answer, Described | Page):
            facts = answer.incarnation, answer.next_offset, answer.closed
        elif isinstance(answer, ClosedOnly):
            facts = answer.incarnation, answer.next_offset, True
        elif isinstance(answer, Refusal) and answer.code is Code.STREAM_NOT_FOUND:
            facts = "missing"
        elif isinstance(answer, Refusal) and answer.code is Code.STREAM_GONE:
            facts = "gone"
        else:
            return None
        position = self._reference.first_with(name, facts, low, high)
        return self._wrong(operation, low, high) if position is None else position

    def _wrong(self, operation: Operation, low: int, high: int) -> int:
        raise Wrong(f"Not so at any position from {low} to {high}: {operation}")

    def _check_body(self, operation: Operation, page: Page) -> None:
        content = self._reference.contents[page.incarnation]
        if bytes(content[page.start : page.next_offset]) != page.body:
            raise Wrong(f"Wrong bytes, expected {bytes(content[page.start : page.next_offset])!r}: {operation}")
