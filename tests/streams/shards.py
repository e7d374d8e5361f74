"""Shards in memory for tests: no node, no clock, no disk; every command passes through the bytes of a log record."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from zlib import crc32

from headwater.protocol.commands import (
    Ancestry,
    Command,
    Confirm,
    Expire,
    Origin,
    Paid,
    Settle,
    Unpin,
    decode,
    encode,
)
from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.limits import PIN_DEADLINE_US, SECOND_US
from headwater.protocol.producers import Producer
from headwater.protocol.queries import Anchor, Head, Query, Read, Target
from headwater.protocol.refusals import Refusal, incarnation_changed
from headwater.protocol.replies import Described, Page, Reply, Settled
from headwater.streams import forking, reading
from headwater.streams.apply import apply
from headwater.streams.forking import ForkRequest, Saga
from headwater.streams.reading import Slice
from headwater.streams.state import Hot, State, Stream

START_US = 1_700_000_000 * SECOND_US


class Shard:
    """One state, the log that made it, and how far its clock is ahead."""

    def __init__(self) -> None:
        self.state = State("journal")
        self.log: list[bytes] = []
        self.ahead_us = 0

    def submit(self, commands: list[Command], now: int) -> list[Reply]:
        self.log.append(encode(now + self.ahead_us, commands))
        return apply(self.state, decode(self.log[-1], self.state.position + 1))


def replay(log: list[bytes]) -> State:
    """The state that a log leads to."""
    state = State("journal")
    follow(state, log)
    return state


def follow(state: State, log: Iterable[bytes]) -> None:
    """Apply the records that come next."""
    for record in log:
        apply(state, decode(record, state.position + 1))


class Task:
    """A saga or a chore under way: what it asks next, and what its client was answered."""

    def __init__(self, steps: Saga, home: Shard | None = None) -> None:
        self.home = home
        self.answer: Reply | None = None
        self.asks: Command | Query | Reply | None = next(steps)
        self._steps = steps

    def step(self, shards: "Shards") -> Reply | None:
        """Carry out what it asks and let it think of the next thing; the reply that it was sent."""
        assert self.asks is not None
        sent: Reply | None = None
        if isinstance(self.asks, Reply):
            self.answer = self.asks
        else:
            sent = shards.ask(self.asks, self.home)
        try:
            self.asks = self._steps.send(sent)
        except StopIteration:
            self.asks = None
        return sent


class Shards:
    """Some shards and the clock they share; a stream belongs to the one that its name hashes to."""

    def __init__(self, count: int = 1) -> None:
        self.all = [Shard() for _ in range(count)]
        self.now = START_US
        self._pins = 0

    def owner(self, name: str) -> Shard:
        return self.all[crc32(name.encode()) % len(self.all)]

    @property
    def streams(self) -> list[Stream]:
        return [stream for shard in self.all for stream in shard.state.streams.values()]

    def stream(self, name: str) -> Stream:
        return self.owner(name).state.streams[name]

    def source_of(self, origin: Origin) -> Stream:
        source = self.stream(origin.name)
        assert source.incarnation == origin.incarnation, "a fork has lost its source"
        return source

    def wait(self, seconds: float) -> None:
        self.now += int(seconds * SECOND_US)

    # -- One command, one query ---------------------------------------------------------------------------------------

    def ask(self, question: Command | Query, home: Shard | None = None) -> Reply:
        """The reply of the shard that owns the name; `home` owns a command that has none."""
        if isinstance(question, Query):
            return self.look(question)
        if isinstance(question, Paid):
            assert home is not None
            return home.submit([question], self.now)[0]
        return self.owner(question.name).submit([question], self.now)[0]

    def look(self, query: Query, bytes_max: int = 1 << 20) -> Reply:
        shard = self.owner(query.name)
        state, now = shard.state, max(shard.state.now, self.now + shard.ahead_us)
        if isinstance(query, Target):
            return forking.look_at_target(state, query, now)
        if isinstance(query, Anchor):
            source = forking.source_of_fork(state, query.name, now)
            return source if isinstance(source, Refusal) else reading.anchor(source, query, self.source_of)
        stream = state.present(query.name, now)
        if isinstance(stream, Refusal):
            return stream
        if isinstance(query, Head):
            return Described(stream.incarnation, stream.content_type, stream.tail, stream.closed, stream.lifetime)
        return self._page(stream, query, bytes_max)

    def _page(self, stream: Stream, query: Read, bytes_max: int) -> Reply:
        if query.incarnation is not None and query.incarnation != stream.incarnation:
            return incarnation_changed(stream.name, stream.incarnation)
        start = stream.tail if query.from_now else query.offset
        refusal = reading.judge(stream, start, self.source_of)
        if refusal is not None:
            return refusal
        plan = reading.plan(stream, start, bytes_max, self.source_of)
        end = plan.next_offset
        body = b"".join(hot.payload[lo:hi] for piece in plan.slices for hot, lo, hi in piece.parts())
        return Page(stream.incarnation, stream.content_type, start, end, end == stream.tail, stream.closed, body)

    def messages(self, name: str, offset: int = 0, bytes_max: int = 1 << 20) -> Iterator[list[bytes]]:
        """The messages of each page from `offset` to the tail."""
        stream = self.stream(name)
        while offset < stream.tail:
            plan = reading.plan(stream, offset, bytes_max, self.source_of)
            yield [message for piece in plan.slices for message in messages_of(piece)]
            offset = plan.next_offset

    def body(self, name: str) -> bytes:
        """Every byte of a stream that is there."""
        page = self.look(Read(name))
        assert isinstance(page, Page), page
        return page.body

    # -- Forks and chores ---------------------------------------------------------------------------------------------

    def fork(
        self,
        name: str,
        source: str,
        offset: int | None = None,
        *,
        sub_offset: int = 0,
        content_type: str | None = None,
        lifetime: Lifetime | None = None,
        closed: bool = False,
        body: bytes = b"",
        seq: str | None = None,
        producer: Producer | None = None,
        incarnation: int | None = None,
    ) -> Task:
        """A fork that has not been asked anything yet."""
        self._pins += 1
        ancestry = Ancestry(source, offset, sub_offset, content_type, lifetime)
        request = ForkRequest(name, ancestry, closed, body, seq, producer, incarnation)
        return Task(forking.fork(request, f"pin-{self._pins}", self.now + PIN_DEADLINE_US))

    def finish(self, task: Task) -> Reply:
        """Run it to its end; what the client was answered."""
        while task.asks is not None:
            task.step(self)
        assert task.answer is not None
        return task.answer

    def chores(self) -> list[Task]:
        """What there is to tidy up now: expired streams, pins past their deadline, debts."""
        return [
            *(Task(_reap(stream)) for stream in self.streams if stream.expired(self.now) and not stream.deleted),
            *(
                Task(_settle(pin, self.owner(opened.source).state))
                for shard in self.all
                for pin, opened in shard.state.unconfirmed.items()
                if self.now > opened.deadline
            ),
            *(Task(_pay(pin, shard.state), shard) for shard in self.all for pin in shard.state.owed),
        ]

    def tidy(self) -> None:
        """Do all chores, and those that come of them."""
        for _ in range(100):
            chores = self.chores()
            if not chores:
                return
            for chore in chores:
                while chore.asks is not None:
                    chore.step(self)
        raise AssertionError("the chores never end")


def _reap(stream: Stream) -> Saga:
    yield Expire(stream.name, stream.incarnation)


def _settle(pin: str, state: State) -> Saga:
    opened = state.unconfirmed[pin]
    settled = yield Settle(opened.fork, pin, opened.deadline)
    if isinstance(settled, Settled):
        answer = Confirm if settled.held else Unpin
        yield answer(opened.source, opened.incarnation, pin)


def _pay(pin: str, state: State) -> Saga:
    debt = state.owed[pin]
    yield Unpin(debt.source, debt.incarnation, pin)
    yield Paid(pin)


def messages_of(piece: Slice) -> list[bytes]:
    """The messages in a slice; its first and last may be parts of one."""
    return [message for hot, lo, hi in piece.parts() for message in _messages(hot, lo, hi)]


def _messages(hot: Hot, lo: int, hi: int) -> list[bytes]:
    borders = [lo, *(end for end in hot.ends or () if lo < end < hi), hi]
    return [hot.payload[start:end] for start, end in pairwise(borders)]
