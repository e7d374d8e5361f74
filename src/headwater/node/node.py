"""The node: every change goes in by `submit`, every look by `read`."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import NamedTuple

from headwater.log.images import ImageFiles
from headwater.log.journal.journal import end_process
from headwater.log.seam import CommandLog
from headwater.node.chores.blob_sweeper import Sweeper
from headwater.node.chores.debts import Debts
from headwater.node.chores.imager import Imager
from headwater.node.chores.reaper import Reaper
from headwater.node.clock import Clock
from headwater.node.committer import Committer, Done
from headwater.node.lake.lake import LAKE_LIMITS, Lake, LakeLimits
from headwater.node.metrics import Metrics
from headwater.node.reads.cold import ColdReads, Stretch
from headwater.node.reads.queries import Queries
from headwater.node.reads.tails import Tails, Waiter
from headwater.node.scans.scans import Scans
from headwater.protocol.content_types import is_json
from headwater.protocol.lifetimes import FOREVER, touch_interval_us
from headwater.protocol.limits import PIN_DEADLINE_US, SEAL_DEADLINE_US
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.blobs import BlobStore
from headwater.storage.store import Store
from headwater.streams import appending, buckets, forking, lifecycle, reading
from headwater.streams.buckets import BucketSaga, To
from headwater.streams.cold import ALL
from headwater.streams.commands import Append, Command, Create, CreateFork, Delete, PublishSnapshot, SetAttrs, Touch
from headwater.streams.forking import ForkRequest, Saga
from headwater.streams.queries import Head, Listing, Query
from headwater.streams.reading import NotFetched, Slice
from headwater.streams.replies import Created, Described, Listed, Reply
from headwater.streams.state import State, Stream

PAGE_BYTES = 1024 * 1024
STOP_SECONDS = 10.0
"""How long the last commands may take to become durable; on a full disk they may never."""
BLOB_THREADS = 2
"""How many snapshots are read or written at a time."""
SHARDS = 1

NEEDS_ROOM = frozenset({Append, Create, CreateFork, PublishSnapshot, SetAttrs})
"""Commands that take space; all others free some, or take next to none."""
SETTLES = frozenset({Create, CreateFork, Delete})
"""Commands that begin or end a life: while one is under way, nothing is final about its name."""


class Bootstrap(NamedTuple):
    """A stream as of one instant: what it is, and where the bytes behind its snapshot are, in memory or in the lake."""

    described: Described
    stretches: list[Slice | Stretch]


class Node:
    """One shard, its log, its live readers and its chores."""

    def __init__(
        self,
        state: State,
        command_log: CommandLog,
        images: ImageFiles | None,
        blobs: BlobStore,
        *,
        image_log_bytes: int,
        page_bytes: int = PAGE_BYTES,
        clock: Clock | None = None,
        store: Store | None = None,
        lake_limits: LakeLimits = LAKE_LIMITS,
    ) -> None:
        self.state = state
        self.log_id = state.log_id
        self.tails = Tails()
        self.metrics = Metrics()
        self._clock = clock or Clock()
        self._log = command_log
        self.blobs = blobs
        self.threads = ThreadPoolExecutor(BLOB_THREADS, "blobs")
        self._looks = Queries(state, self.now, self.touch, page_bytes)
        self._committer = Committer(
            state, command_log, self.tails, self.metrics, now=self._clock.now, on_failure=end_process
        )
        self._unsettled: dict[str, int] = {}
        self._touching: set[str] = set()
        self._reaper = Reaper(state, self.now, self.submit, self.touch, self.tails)
        self._debts = Debts(state, self.now, self.submit, self.settle_bucket)
        self._sweeper = Sweeper(state, blobs, self.submit, self.threads)
        self._imager = None if images is None else Imager(state, command_log, images, image_log_bytes)
        self.lake: Lake | None = None
        if store is not None:
            self.lake = Lake(
                state,
                store,
                look=self._looks.read,
                submit=self.submit,
                now=self.now,
                command_log=command_log,
                limits=lake_limits,
            )
        self.scans = Scans(state, self.now, self.touch, None if self.lake is None else self.lake.reads)
        self._hot_bytes_max = lake_limits.hot_bytes_max if self.lake is not None else ALL
        self._committer.after_batch = self._after_batch

    # -- Life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to decide commands; call it on the event loop."""
        self._committer.start()
        self._reaper.start()
        self._debts.start()
        self._sweeper.start()
        if self.lake is not None:
            self.lake.start()

    async def stop(self) -> None:
        """Finish what was submitted, as far as the disk has room for it, then let go of the log."""
        self._reaper.stop()
        self._debts.stop()
        await self._sweeper.stop()
        self.scans.stop()
        if self.lake is not None:
            await self.lake.stop()
        until = time.monotonic() + STOP_SECONDS
        while not self._committer.idle and time.monotonic() < until:
            await asyncio.sleep(0.005)
        if self._imager is not None:
            await self._imager.stop()
        self._log.close()
        self.threads.shutdown()

    def _after_batch(self) -> None:
        if self.state.owed:
            self._debts.pay()
        if self.state.discarded:
            self._sweeper.sweep()
        if self._imager is not None:
            self._imager.begin_if_due()
        if self.lake is not None:
            self.lake.after_batch()

    @property
    def queued_bytes(self) -> int:
        """What waits for a commit."""
        return self._committer.queued_bytes

    @property
    def journal_bytes(self) -> int:
        """What the log has taken since it was opened."""
        return self._log.size_bytes

    def now(self) -> int:
        """The time that reads are judged against: never behind the shard's own."""
        return max(self._clock.now(), self.state.now)

    # -- Changing -------------------------------------------------------------------------------------------------

    def submit(self, command: Command, done: Done) -> None:
        """Have a command decided; where the applied state already gives a final answer, that is given at once."""
        kind = type(command)
        if kind is Append or kind is Delete:
            early = self._early(command)  # type: ignore[arg-type]
            if early is not None:
                done(early)
                return
        if kind in NEEDS_ROOM and (
            self._committer.full or not self._log.has_room or self.state.hot_bytes >= self._hot_bytes_max
        ):
            done(self._no_room())
            return
        if kind in SETTLES:
            done = self._settling(command.name, done)  # type: ignore[union-attr]
        self._committer.submit(command, done)

    def _no_room(self) -> Refusal:
        self.metrics.refused_writes += 1
        if self._committer.full:
            return Refusal(Code.OVERLOADED, "Too many writes are waiting for the disk; try again in a second.")
        if not self._log.has_room:
            return Refusal(Code.OVERLOADED, "The disk is full; make room, or delete streams, and try again.")
        return Refusal(Code.OVERLOADED, "The lake does not keep up with what is written; try again in a second.")

    def judge_standing(self, command: Append) -> Reply | None:
        """What the applied state says of an append whose body was refused: missing, gone, closed or of another type."""
        standing = appending.judge_standing(self.state, command, self.now())
        if not isinstance(standing, Stream):
            return standing
        mismatch = is_json(command.content_type) and not is_json(standing.content_type)
        return appending.content_type_mismatch(standing, command.content_type) if mismatch else None

    def _early(self, command: Append | Delete) -> Reply | None:
        """An answer that nothing in flight can change: missing, gone, or closed for good."""
        stream = self.state.streams.get(command.name)
        open_for_good = stream is not None and stream.lifetime is FOREVER and not (stream.closed or stream.deleted)
        if open_for_good and command.incarnation is None:
            return None  # As it is nearly always, and found out without a look at the clock.
        outcome: Stream | Reply
        if isinstance(command, Append):
            outcome = appending.judge_standing(self.state, command, self.now())
        else:
            outcome = lifecycle.judge_delete(self.state, command, self.now())
        if isinstance(outcome, Stream) or command.name in self._unsettled:
            return None
        if stream is not None and stream.closed and not stream.deleted:
            self.touch(stream)  # A write that changes nothing is still a use.
        return outcome

    def _settling(self, name: str, done: Done) -> Done:
        """Count a birth or an end of this name until it has been applied."""
        self._unsettled[name] = self._unsettled.get(name, 0) + 1

        def settled(reply: Reply) -> None:
            left = self._unsettled.pop(name) - 1
            if left:
                self._unsettled[name] = left
            stream = self.state.streams.get(name)
            if isinstance(reply, Created) and stream is not None:  # A delete in the same batch has it already.
                self._reaper.watch(stream)
            done(reply)

        return settled

    def fork(self, request: ForkRequest, done: Done) -> None:
        """Run the fork saga; what it asks after its answer goes on by itself."""
        saga = forking.fork(request, secrets.token_hex(8), self.now() + PIN_DEADLINE_US)
        self._step(saga, self._settling(request.name, done), None)

    def open_bucket(self, bucket: str, done: Done) -> None:
        self._step(buckets.open_everywhere(SHARDS, bucket), done, None)

    def drop_bucket(self, bucket: str, done: Done) -> None:
        deadline = self.now() + SEAL_DEADLINE_US
        self._step(buckets.drop_everywhere(SHARDS, bucket, secrets.token_hex(8), deadline), done, None)

    def look_at_bucket(self, bucket: str, done: Done) -> None:
        self._step(buckets.inspect(SHARDS, bucket), done, None)

    def settle_bucket(self, bucket: str, seal: str, deadline: int) -> None:
        self._step(buckets.settle_everywhere(SHARDS, bucket, seal, deadline), lambda _: None, None)

    def _step(self, saga: Saga | BucketSaga, done: Done, sent: Reply | None) -> None:
        """Drive a saga as far as it goes without waiting; there is one shard, so everything is asked of it."""
        while True:
            try:
                asked = saga.send(sent)
            except StopIteration:
                return
            if isinstance(asked, To):
                asked = asked.asked
            if isinstance(asked, Query):
                looked = self.read(asked)
                if isinstance(looked, asyncio.Task):
                    looked.add_done_callback(lambda task: self._step(saga, done, task.result()))
                    return
                sent = looked
            elif isinstance(asked, Command):
                self.submit(asked, lambda reply: self._step(saga, done, reply))
                return
            else:
                done(asked)
                sent = None

    # -- Looking --------------------------------------------------------------------------------------------------

    def read(self, query: Query) -> Reply | asyncio.Task[Reply]:
        """The answer to a query, from applied state only; a task where it takes bytes from the lake."""
        try:
            return self._looks.read(query)
        except NotFetched as need:
            return self._cold.read(query, need)

    @property
    def _cold(self) -> ColdReads:
        assert self.lake is not None, "what is in the lake got there by one"
        return self.lake.reads

    def describe(self, query: Head) -> Described | Refusal:
        """What a stream is; never takes more than memory has."""
        described = self._looks.read(query)
        assert isinstance(described, Described | Refusal)
        return described

    def list_bucket(self, query: Listing) -> Listed | Refusal:
        """A page of a bucket's streams."""
        listed = self._looks.read(query)
        assert isinstance(listed, Listed | Refusal)
        return listed

    def bootstrap(self, name: str, incarnation: int | None) -> Bootstrap | Refusal:
        """Everything a new reader needs, as of now: the snapshot and what lies behind it, whatever happens later."""
        described = self.describe(Head(name, incarnation))
        if isinstance(described, Refusal):
            return described
        stream = self.state.streams[name]
        self.touch(stream)
        start = stream.start if stream.snapshot is None else stream.snapshot.offset
        stretches: list[Slice | Stretch] = []
        for owner, limit in reading.owners(stream, start, self._looks.source_of):
            border = min(owner.hot_start, limit)
            if start < border:
                stretches.append(self._cold.stretch(owner, start, border))
                start = border
            if start < limit:
                stretches.append(reading.slice_of(owner, start, limit))
                start = limit
        return Bootstrap(described, stretches)

    async def slices(self, found: Bootstrap) -> AsyncIterator[Slice]:
        """What a bootstrap tells of, a part at a time."""
        for stretch in found.stretches:
            if isinstance(stretch, Slice):
                yield stretch
            else:
                async with aclosing(self._cold.slices(stretch)) as slices:
                    async for slice_ in slices:
                        yield slice_

    def touch(self, stream: Stream) -> None:
        """Renew a sliding lifetime when the last renewal in the log has become old; nobody waits for it."""
        ttl = stream.lifetime.ttl_seconds
        if ttl is None or stream.name in self._touching or self.now() - stream.touched_at < touch_interval_us(ttl):
            return
        self._touching.add(stream.name)
        self.submit(Touch(stream.name, stream.incarnation), lambda _: self._touching.discard(stream.name))

    def wait(self, stream_name: str, waiter: Waiter) -> None:
        """Wake `waiter` whenever this stream changes; as long as anybody waits, a sliding lifetime is renewed."""
        self.tails.watch(stream_name, waiter)
        stream = self.state.streams.get(stream_name)
        if stream is not None:
            self._reaper.renew_while_read(stream)
