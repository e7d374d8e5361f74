"""Shards in memory for tests: no node, no clock, no disk; every command passes through the bytes of a log record."""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise
from typing import TypeVar
from zlib import crc32

from headwater.protocol.content_types import is_json
from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.limits import PAGE_MESSAGES_MAX, PIN_DEADLINE_US, SEAL_DEADLINE_US, SECOND_US
from headwater.protocol.producers import Producer
from headwater.protocol.refusals import Refusal, incarnation_changed
from headwater.streams import buckets, forking, reading
from headwater.streams.apply import apply
from headwater.streams.batches import decode, encode
from headwater.streams.buckets import BucketSaga, To
from headwater.streams.commands import Command
from headwater.streams.commands.forks import Ancestry, Confirm, Origin, Paid, Settle, Unpin
from headwater.streams.commands.lake import Publication, PublishSegment
from headwater.streams.commands.snapshots import Discarded, PublishSnapshot, Snapshot
from headwater.streams.commands.streams import Expire
from headwater.streams.fetched import Fetched, NotFetched, Piece
from headwater.streams.forking import ForkRequest, Saga
from headwater.streams.queries import Anchor, Bucket, ForkTarget, Head, Query, Read
from headwater.streams.reading import Plan, Slice
from headwater.streams.replies import Described, Page, Placed, Reply, Settled
from headwater.streams.state import State, Stream

from .lakes import LATE, Lake, collect, rewrite

T = TypeVar("T")

START_US = 1_700_000_000 * SECOND_US


class Shard:
    """One state, the log that made it, its lake, and how far its clock is ahead."""

    def __init__(self) -> None:
        self.state = State("journal")
        self.lake = Lake()
        self.log: list[bytes] = []
        self.ahead_us = 0

    def submit(self, commands: list[Command], now: int) -> list[Reply]:
        self.log.append(encode(now + self.ahead_us, commands))
        return apply(self.state, decode(self.log[-1], self.state.position + 1))

    def collect(self, names: Collection[str] | None = None, appends_max: int | None = None) -> Publication:
        """A segment with hot appends of all streams or some: all of them, or the first of each stream."""
        rows = collect(self.state, names, appends_max)
        return self.lake.put(rows, self.state.cold.flushed + 1, self.state.position)


def replay(log: list[bytes]) -> State:
    """The state that a log leads to."""
    state = State("journal")
    follow(state, log)
    return state


def follow(state: State, log: Iterable[bytes]) -> None:
    """Apply the next records."""
    for record in log:
        apply(state, decode(record, state.position + 1))


class Task:
    """A saga or a chore in progress: its next step, and the answer to its client."""

    def __init__(self, steps: Saga | BucketSaga, home: Shard | None = None) -> None:
        self.home = home
        self.answer: Reply | None = None
        self.pending: Command | Query | To | Reply | None = next(steps)
        self._steps = steps

    def step(self, shards: "Shards") -> Reply | None:
        """Carry out its pending step, and return the reply that it was sent."""
        assert self.pending is not None
        sent: Reply | None = None
        if isinstance(self.pending, Reply):
            self.answer = self.pending
        else:
            sent = shards.ask(self.pending, self.home)
        try:
            self.pending = self._steps.send(sent)
        except StopIteration:
            self.pending = None
        return sent


class Shards:
    """Some shards and the clock they share; a stream belongs to the one that its name hashes to."""

    def __init__(self, count: int = 1) -> None:
        self.all = [Shard() for _ in range(count)]
        self.now = START_US
        self.blobs: set[str] = set()
        """The blobs on disk."""
        self.meanwhile: Callable[[], None] = lambda: None
        """Called while a query waits for the lake."""
        self._pins = self._seals = self._snapshots = 0

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

    def ask(self, request: Command | Query | To, home: Shard | None = None) -> Reply:
        """The reply of the shard that owns the name; `home` owns a command that has none."""
        if isinstance(request, To):
            home = self.all[request.shard]
            if isinstance(request.request, Bucket):
                return buckets.facts(home.state, request.request)
            request = request.request
        elif isinstance(request, Query):
            return self.query(request)
        if home is None or hasattr(request, "name"):
            assert hasattr(request, "name"), "a command without a name needs a home"
            home = self.owner(request.name)
        return home.submit([request], self.now)[0]

    def query(self, query: Query, bytes_max: int = 1 << 20) -> Reply:
        assert isinstance(query, ForkTarget | Anchor | Head | Read), (
            "the node answers queries of boundaries, and a saga those of buckets"
        )
        shard = self.owner(query.name)
        state, now = shard.state, max(shard.state.now, self.now + shard.ahead_us)
        if isinstance(query, ForkTarget):
            return forking.query_target(state, query, now)
        if isinstance(query, Anchor):
            source = forking.source_of_fork(state, query.name, now)
            return source if isinstance(source, Refusal) else self.anchor(source, query)
        stream = state.present(query.name, now)
        if isinstance(stream, Refusal):
            return stream
        if isinstance(query, Head):
            json = is_json(stream.content_type)
            return Described(
                stream.incarnation,
                stream.content_type,
                stream.tail,
                stream.closed,
                stream.lifetime,
                stream.snapshot,
                stream.record_start if json else None,
                stream.record_next if json else None,
                stream.attrs,
            )
        return self._page(stream, query, bytes_max)

    def fetching(self, query: Callable[[Fetched], T]) -> T:
        """Repeat a query until it has everything that it needs from the lake."""
        fetched = Fetched()
        for _ in range(100):
            try:
                return query(fetched)
            except NotFetched as need:
                shard = self.owner(need.stream.name)
                runs = shard.lake.runs(shard.state, need)
                assert runs, "a query needs bytes that do not exist"
                fetched.add(need.stream, runs)
                self.meanwhile()
        raise AssertionError("a query never has enough")

    def anchor(self, stream: Stream, query: Anchor) -> Reply:
        return self.fetching(lambda fetched: reading.anchor(stream, query, self.source_of, fetched))

    def record_at(self, stream: Stream, offset: int) -> int | None:
        return self.fetching(lambda fetched: reading.record_at(stream, offset, self.source_of, fetched))

    def offset_of(self, stream: Stream, record: int) -> int:
        return self.fetching(lambda fetched: reading.offset_of(stream, record, self.source_of, fetched))

    def plan(self, stream: Stream, offset: int, bytes_max: int, messages_max: int = PAGE_MESSAGES_MAX) -> Plan:
        return self.fetching(
            lambda fetched: reading.plan(stream, offset, bytes_max, self.source_of, fetched, messages_max=messages_max)
        )

    def _page(self, stream: Stream, query: Read, bytes_max: int) -> Reply:
        if query.incarnation is not None and query.incarnation != stream.incarnation:
            return incarnation_changed(stream.name, stream.incarnation)
        start = stream.tail if query.from_now else query.offset

        def attempt(fetched: Fetched) -> Refusal | Plan:
            refusal = reading.judge(stream, start, self.source_of, fetched)
            return refusal or reading.plan(stream, start, bytes_max, self.source_of, fetched)

        plan = self.fetching(attempt)
        if isinstance(plan, Refusal):
            return plan
        end = plan.next_offset
        body = b"".join(hot.payload[lo:hi] for piece in plan.slices for hot, lo, hi in piece.parts())
        return Page(stream.incarnation, stream.content_type, start, end, end == stream.tail, stream.closed, body)

    def messages(self, name: str, offset: int = 0, bytes_max: int = 1 << 20) -> Iterator[list[bytes]]:
        """The messages of each page from `offset`, which is retained, to the tail."""
        stream = self.stream(name)
        while offset < stream.tail:
            plan = self.plan(stream, offset, bytes_max)
            yield [message for piece in plan.slices for message in messages_of(piece)]
            offset = plan.next_offset

    def body(self, name: str) -> bytes:
        """Every byte of a stream."""
        page = self.query(Read(name))
        assert isinstance(page, Page), page
        return page.body

    # -- The lake -----------------------------------------------------------------------------------------------------

    def flush(self, *names: str, appends_max: int | None = None) -> None:
        """Flush all hot appends, or those of some streams, into one segment for each shard."""
        for shard in self.all:
            warm = [name for name in names or shard.state.warm if name in shard.state.warm]
            if warm:
                flushed = 0 if names or appends_max else shard.state.position
                publication = shard.collect(warm, appends_max)
                assert shard.submit([PublishSegment(publication, LATE, flushed)], self.now) == [Placed()]

    def compact(self, *numbers: int, cuts: int = 1) -> None:
        """Merge neighbouring segments of the only shard."""
        [shard] = self.all
        assert shard.submit([rewrite(shard.lake, shard.state, numbers, cuts=cuts)], self.now) == [Placed()]

    # -- Snapshots ----------------------------------------------------------------------------------------------------

    def snapshot(self, name: str, offset: int, text: str = "folded") -> Snapshot:
        """A snapshot whose blob is on disk, and which no command refers to yet."""
        stream = self.stream(name)
        inside = stream.start <= offset <= stream.tail
        record = self.record_at(stream, offset) if inside else stream.record_next
        assert record is not None, "a snapshot is placed at a boundary"
        self._snapshots += 1
        blob = f"blob-{self._snapshots}"
        self.blobs.add(blob)
        return Snapshot(offset, record, blob, "text/plain", len(text), text)

    def publish(self, name: str, offset: int, text: str = "folded", *, trims: bool = True) -> Reply:
        snapshot = self.snapshot(name, offset, text)
        return self.ask(PublishSnapshot(name, self.stream(name).incarnation, snapshot, trims))

    # -- Buckets ------------------------------------------------------------------------------------------------------

    def open(self, bucket: str) -> Task:
        return Task(buckets.open_everywhere(len(self.all), bucket))

    def drop(self, bucket: str) -> Task:
        self._seals += 1
        deadline = self.now + SEAL_DEADLINE_US
        return Task(buckets.drop_everywhere(len(self.all), bucket, f"seal-{self._seals}", deadline))

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
        attrs: bytes | None = None,
        needs_bucket: bool = False,
        absent: bool = False,
    ) -> Task:
        """A fork saga before its first step."""
        self._pins += 1
        ancestry = Ancestry(source, offset, sub_offset, content_type, lifetime)
        request = ForkRequest(name, ancestry, closed, body, seq, producer, incarnation, attrs, needs_bucket, absent)
        return Task(forking.fork(request, f"pin-{self._pins}", self.now + PIN_DEADLINE_US))

    def finish(self, task: Task) -> Reply:
        """Run a task to its end, and return the answer to its client."""
        while task.pending is not None:
            task.step(self)
        assert task.answer is not None
        return task.answer

    def chores(self) -> list[Task]:
        """The chores that are due now: expired streams, pins and seals past their deadline, debts, blobs."""
        return [
            *(Task(_reap(stream)) for stream in self.streams if stream.expired(self.now) and not stream.deleted),
            *(
                Task(_settle(pin, self.owner(opened.source).state))
                for shard in self.all
                for pin, opened in shard.state.unconfirmed.items()
                if self.now > opened.deadline
            ),
            *(Task(_pay(pin, shard.state), shard) for shard in self.all for pin in shard.state.owed),
            *(
                Task(buckets.settle_everywhere(len(self.all), name, bucket.seal, bucket.seal_deadline))
                for shard in self.all
                for name, bucket in shard.state.buckets.items()
                if bucket.seal is not None and self.now > bucket.seal_deadline
            ),
            *(Task(self._delete(blob), shard) for shard in self.all for blob in shard.state.discarded),
        ]

    def _delete(self, blob: str) -> Saga:
        self.blobs.discard(blob)
        yield Discarded(blob)

    def tidy(self) -> None:
        """Do all chores, including those that result from others."""
        for _ in range(100):
            chores = self.chores()
            if not chores:
                return
            for chore in chores:
                while chore.pending is not None:
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


def _messages(hot: Piece, lo: int, hi: int) -> list[bytes]:
    boundaries = [lo, *(end for end in hot.message_ends if lo < end < hi), hi]
    return [hot.payload[start:end] for start, end in pairwise(boundaries)]
