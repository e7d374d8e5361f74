"""Random commands of every kind, on few names, so that they interact."""

from random import Random

from headwater.log import frames
from headwater.protocol.lifetimes import FOREVER, Lifetime
from headwater.protocol.limits import SECOND_US
from headwater.protocol.producers import Producer
from headwater.streams.commands import Command
from headwater.streams.commands.buckets import DropBucket, OpenBucket, SealBucket, SettleBucket, UnsealBucket
from headwater.streams.commands.forks import Ancestry, Confirm, CreateFork, Origin, Paid, Pin, Settle, Unpin
from headwater.streams.commands.snapshots import Discarded, PublishSnapshot, Retain, Snapshot
from headwater.streams.commands.streams import Append, Create, Delete, Expire, SetAttrs, Touch
from headwater.streams.state import State, Stream

NAMES = [f"bucket-{number % 3}/stream-{number}" for number in range(12)]
SIZES = [0, 1, 20, 150, 400, 900, 2500]
LARGE_BYTES = 20_000
"""More than a journal file of these tests holds."""


class Load:
    """A source of batches; each append says in its payload which one it is."""

    def __init__(self, random: Random, large: bool = True) -> None:
        self._random, self._large = random, large
        self._numbers = 0
        self.now = 1_700_000_000 * SECOND_US

    def batch(self, state: State) -> tuple[int, list[Command]]:
        """The time of the next batch, and its commands."""
        self.now += self._random.randrange(SECOND_US)
        return self.now, [self._command(state) for _ in range(self._random.choice((1, 1, 2, 5)))]

    def _command(self, state: State) -> Command:
        name = self._random.choice(NAMES)
        stream = state.streams.get(name)
        kind = self._random.random()
        if stream is None or kind < 0.05:
            return Create(
                name, self._random.choice(("text/plain", "text/html")), self._lifetime(), payload=self._bytes()
            )
        if kind < 0.70:
            return self._append(stream)
        if kind < 0.75:
            return self._snapshot(state, stream)
        if kind < 0.80:
            return self._bucket()
        if kind < 0.85:
            return Delete(name)
        if kind < 0.90:
            touch = Touch(name, stream.incarnation, stream.touched_at)
            return self._random.choice((touch, Expire(name, stream.incarnation)))
        return self._saga(state, stream)

    def _lifetime(self) -> Lifetime:
        return FOREVER if self._random.random() < 0.7 else Lifetime(ttl_seconds=self._random.randrange(1, 60))

    def _bytes(self) -> bytes:
        self._numbers += 1
        size = self._random.choice(SIZES)
        if self._large and self._random.random() < 0.01:
            size = LARGE_BYTES
        return b"<%d:%b>" % (self._numbers, self._random.randbytes(size))

    def _append(self, stream: Stream) -> Append:
        producer = None
        if self._random.random() < 0.5:
            identity = self._random.choice(("alice", "bob"))
            last = (stream.producers or {}).get(identity)
            # Sometimes the last number once more: a retry.
            seq = 0 if last is None else last.seq + self._random.choice((0, 1, 1))
            producer = Producer(identity, 0, seq)
        payload = self._forgery(stream) if self._random.random() < 0.02 else self._bytes()
        close = self._random.random() < 0.03
        return Append(stream.name, payload, None, stream.content_type, close, None, producer)

    def _forgery(self, stream: Stream) -> bytes:
        """Frames at every alignment, made from everything a client can know."""
        frame = b"".join(frames.encode(b"forged", stream.incarnation, 1, frames.seed("journal", "9f2c")))
        return b"".join(frame + b"\0" for _ in range(16))

    def _snapshot(self, state: State, stream: Stream) -> Command:
        """At the end of an append, where the node would place it."""
        boundaries = [(stream.start, stream.record_start), (stream.tail, stream.record_next)]
        boundaries += [(hot.offset, hot.record) for hot in stream.hot or () if hot.offset > stream.start]
        offset, record = self._random.choice(boundaries)
        self._numbers += 1
        snapshot = Snapshot(offset, record, f"blob-{self._numbers}", "text/plain", 9, self._random.choice("ab"))
        return self._random.choice(
            (
                PublishSnapshot(stream.name, stream.incarnation, snapshot, self._random.random() < 0.7),
                Retain(stream.name, stream.incarnation, offset, record),
                SetAttrs(stream.name, b'{"title":"%d"}' % self._numbers),
                Discarded(next(iter(state.discarded), "nothing")),
            )
        )

    def _bucket(self) -> Command:
        """Steps of openings and drops, in any order."""
        bucket, seal = f"bucket-{self._random.randrange(4)}", self._random.choice(("one", "two"))
        deadline = self.now + self._random.randrange(-5, 10) * SECOND_US
        return self._random.choice(
            (
                OpenBucket(bucket),
                SealBucket(bucket, seal, deadline, self._random.random() < 0.5),
                UnsealBucket(bucket, seal),
                UnsealBucket(bucket, seal),
                DropBucket(bucket, seal, self._random.random() < 0.5),
                SettleBucket(bucket, seal, deadline),
            )
        )

    def _saga(self, state: State, stream: Stream) -> Command:
        pin = f"pin-{self._random.randrange(20)}"
        fork = self._random.choice(NAMES)
        deadline = self.now + self._random.randrange(-5, 30) * SECOND_US
        origin = Origin(stream.name, stream.incarnation, 0, stream.tail, 0, stream.record_next, pin, 1)
        ancestry = Ancestry(stream.name, None, 0, None, None)
        return self._random.choice(
            (
                Pin(stream.name, pin, fork, deadline),
                CreateFork(fork, stream.content_type, FOREVER, False, self._bytes(), None, origin, ancestry, deadline),
                Confirm(stream.name, stream.incarnation, pin),
                Unpin(stream.name, stream.incarnation, pin),
                Settle(fork, pin, deadline),
                Paid(next(iter(state.owed), pin)),
            )
        )
