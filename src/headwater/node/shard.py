"""A shard: one log, one order, one state, and its chores. Changes enter by `submit`, questions by `read`."""

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor

from headwater.log.seam import Reached
from headwater.node.chores.blob_sweeper import BlobSweeper
from headwater.node.chores.chores import ChoreParts, Chores
from headwater.node.chores.debts import SettleBucket
from headwater.node.chores.imager import Imager
from headwater.node.chores.reaper import Reaper
from headwater.node.committer import QUEUE_BYTES_MAX, Committer, Done, Now, Submit
from headwater.node.lake.lake import Lake
from headwater.node.metrics import Metrics
from headwater.node.reads.bootstrap import Bootstrap
from headwater.node.reads.cold import ColdReads, Stretch
from headwater.node.reads.queries import Queries
from headwater.node.reads.tails import Tails, Waiter
from headwater.node.renewals import Renewals
from headwater.node.scans.scans import Scans
from headwater.node.shard_parts import ShardLimits, ShardParts
from headwater.protocol.lifetimes import FOREVER
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.store import Store
from headwater.streams import appending, reading, snapshots
from headwater.streams.batches import NEEDS_ROOM, SETTLES
from headwater.streams.cold import ALL
from headwater.streams.commands import Command
from headwater.streams.commands.snapshots import PublishSnapshot
from headwater.streams.commands.streams import Append, Delete, SetAttrs
from headwater.streams.fetched import NotFetched
from headwater.streams.queries import Boundary, Head, Listing, Query
from headwater.streams.reading import Slice
from headwater.streams.replies import Anchored, Created, Described, Listed, Reply
from headwater.streams.state import Stream

STOP_SECONDS = 10.0
"""How long the last commands may take to become durable; on a full disk they may never."""


class Shard:
    """One of a node's shards; `number` is its place among them, and in the keys of its objects in the lake."""

    def __init__(
        self,
        number: int,
        parts: ShardParts,
        *,
        limits: ShardLimits,
        store: Store | None,
        clock: Now,
        tails: Tails,
        metrics: Metrics,
        threads: ThreadPoolExecutor,
    ) -> None:
        state, command_log, self.images, blobs, self.node = parts
        self.number, self.state, self.blobs = number, state, blobs
        self.command_log, self._clock, self._tails, self._metrics = command_log, clock, tails, metrics
        self.renewals = Renewals(self.now, self.submit)
        """Streams whose sliding lifetime is being renewed: how often, and when that was first asked for."""
        self.queries = Queries(state, self.now, self.renewals.time_for, self.renewals.touch, limits.page_bytes)
        self.committer = Committer(state, command_log, tails, metrics, now=clock, on_failure=_end_process)
        self._unsettled: dict[str, int] = {}
        self._finish_until = 0.0
        self._reaper = Reaper(state, self.now, self.submit, self.renewals, tails)
        self._sweeper = BlobSweeper(
            state, blobs, self.submit, threads, command_log, now=clock, grace_seconds=limits.lake.grace_seconds
        )
        self.lake: Lake | None = None
        if store is not None:
            self.lake = Lake(
                number,
                state,
                store,
                answer=self.queries.read,
                submit=self.submit,
                now=self.now,
                command_log=command_log,
                limits=limits.lake,
                node=self.node.name,
            )
        self.scans = Scans(state, self.now, self.renewals.touch, None if self.lake is None else self.lake.reads)
        self._chore_parts = ChoreParts(
            state, command_log, self.images, limits.image, self._sweeper, self.lake, self.submit, self.now
        )
        self.chores: Chores | None = None
        """While this node does the chores."""
        self.hot_bytes_max = limits.lake.hot_bytes_max if self.lake is not None else ALL
        """How much memory hot appends may take before others are refused."""
        self.committer.after_batch = self._after_batch
        self.committer.on_foreign = self._watch_foreign

    # -- Life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to decide commands; call it on the event loop."""
        self.committer.start()

    def start_chores(self, route: Submit, settle_bucket: SettleBucket) -> None:
        """Watch what expires, and do the chores. Debts of forks are paid on the shards that `route` finds."""
        self._route, self._settle_bucket = route, settle_bucket
        self._reaper.start()
        self.begin_chores(None)

    def begin_chores(self, epoch: int | None) -> None:
        self.chores = Chores(self._chore_parts)
        self.chores.start(self._route, self._settle_bucket, epoch)

    async def stop_chores(self) -> None:
        """End every chore but the imager, which must outlive the last batch."""
        if self.lake is not None:
            await self.lake.flush_before_stop()
        self._reaper.stop()
        self.scans.stop()
        if self.chores is not None:
            await self.chores.stop()
        if self.lake is not None:
            await self.lake.stop()

    async def stop(self) -> None:
        """Finish what was submitted, as far as the disk has room for it, then release the log."""
        await self.finish()
        self.committer.stop()
        if self.chores is not None:
            await self.chores.stop_imager()
        self.command_log.close()

    async def finish(self) -> None:
        """Wait until everything that was submitted has been decided, for as long as that may take."""
        self._finish_until = self._finish_until or time.monotonic() + STOP_SECONDS
        while not self.committer.idle and time.monotonic() < self._finish_until:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0)  # What the last batch left to the next turn.

    @property
    def imager(self) -> Imager | None:
        return None if self.chores is None else self.chores.imager

    @property
    def outage(self) -> str | None:
        """Why this node cannot decide anything, as one sentence; None while it can."""
        return self.command_log.outage

    def barrier(self, reached: Reached) -> None:
        """Go on when everything that any node had acknowledged before this call is applied here."""
        reached(True)

    def _after_batch(self) -> None:
        if self.chores is not None:
            self.chores.after_batch()
        if self.lake is not None:
            self.lake.after_batch()

    def _watch_foreign(self, commands: list[Command], replies: list[Reply]) -> None:
        """Watch the lives that another proposer began; those of our own clients are watched when they are answered."""
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, Created):
                self._watch(command.name)  # type: ignore[attr-defined]

    def _watch(self, name: str) -> None:
        if (stream := self.state.streams.get(name)) is not None:  # A delete in the same batch may have ended it.
            self._reaper.watch(stream)

    @property
    def shortage(self) -> str | None:
        """What the log lacks to take commands that need space, as one sentence; None if there is room."""
        return None if self.command_log.has_room else self.command_log.shortage

    @property
    def queued_bytes(self) -> int:
        """The size of the commands that wait for a commit."""
        return self.committer.queued_bytes

    @property
    def log_bytes(self) -> int:
        """How much the log has grown since it was opened."""
        return self.command_log.size_bytes

    def now(self) -> int:
        """The time that reads are judged by, never earlier than the shard's own."""
        clock, state = self._clock(), self.state.now
        return clock if clock > state else state

    # -- Changes --------------------------------------------------------------------------------------------------

    def submit(self, command: Command, done: Done) -> None:
        """Have a command decided; where the applied state already gives a final answer, answer at once."""
        kind = type(command)
        if kind is Append or kind is Delete:
            stream = self.state.streams.get(command.name)  # type: ignore[attr-defined]
            open_for_good = stream is not None and stream.lifetime is FOREVER and not (stream.closed or stream.deleted)
            if not open_for_good or command.incarnation is not None:  # type: ignore[attr-defined]
                early = self.early(command)  # type: ignore[arg-type]
                if early is not None:
                    done(early)
                    return
                if kind is Append and stream is not None and stream.lifetime.ttl_seconds is not None:
                    command, done = self.renewals.ask(command, done)  # type: ignore[type-var]
        elif isinstance(command, SetAttrs):
            stream = self.state.streams.get(command.name)
            if stream is not None and stream.lifetime.ttl_seconds is not None:
                command, done = self.renewals.ask(command, done)
        elif isinstance(command, PublishSnapshot):
            done = self._sweeper.watch(command.snapshot.blob, done)
        if kind in NEEDS_ROOM and (no_room := self._no_room()) is not None:
            self._metrics.refused_writes += 1
            done(no_room)
            return
        if kind is not Append and kind in SETTLES:
            done = self.settling(command.name, done)  # type: ignore[attr-defined]
        self.committer.submit(command, done)

    def _no_room(self) -> Refusal | None:
        has_queue = self.committer.queued_bytes < QUEUE_BYTES_MAX
        if has_queue and self.command_log.has_room and self.state.hot_bytes < self.hot_bytes_max:
            return None
        if not has_queue:
            return Refusal(Code.OVERLOADED, "Too many writes are waiting for the disk; try again in a second.")
        if not self.command_log.has_room:
            return Refusal(Code.OVERLOADED, self.command_log.shortage)
        return Refusal(Code.OVERLOADED, "The lake cannot keep up with the writes; try again in a second.")

    def judge_target(self, name: str) -> Refusal | None:
        """Why an append would be refused whatever it is: there is no such stream, or no room."""
        if name not in self.state.streams and name not in self._unsettled:
            missing = self.present(name)
            return missing if isinstance(missing, Refusal) else None
        return self._no_room()

    def judge_snapshot(self, boundary: Boundary, *, trims: bool) -> Refusal | None:
        """Why a snapshot would be refused, as far as that is known without its bytes and without the lake's."""
        try:
            found = self.queries.read(boundary)
        except NotFetched:
            return self._no_room()
        if isinstance(found, Refusal):
            return found
        assert isinstance(found, Anchored)
        refusal = snapshots.judge_publish(self.state.streams[boundary.name], found.to, trims=trims)
        return refusal or self._no_room()

    def judge_append(self, command: Append) -> Reply | None:
        """The answer to an append with a bad body that takes precedence over what is wrong with the body."""
        outcome = appending.judge(self.state, command, self.renewals.time_for(command.name))
        return None if isinstance(outcome, Stream) else outcome

    def early(self, command: Append | Delete) -> Reply | None:
        """An answer that nothing in flight can change: missing, gone or closed."""
        stream = self.state.streams.get(command.name)
        outcome: Stream | Reply
        if isinstance(command, Append):
            outcome = appending.judge_standing(self.state, command, self.renewals.time_for(command.name))
        else:
            outcome = self.state.find(command.name, command.incarnation, self.renewals.time_for(command.name))
        if isinstance(outcome, Stream) or command.name in self._unsettled:
            return None
        if stream is not None and stream.closed and not stream.deleted:
            self.renewals.touch(stream)  # A write that changes nothing still counts as use.
        return outcome

    def settling(self, name: str, done: Done) -> Done:
        """Count a beginning or an end of this name's life until it has been applied."""
        self._unsettled[name] = self._unsettled.get(name, 0) + 1

        def settled(reply: Reply) -> None:
            left = self._unsettled.pop(name) - 1
            if left:
                self._unsettled[name] = left
            if isinstance(reply, Created):
                self._watch(name)
            done(reply)

        return settled

    # -- Questions ------------------------------------------------------------------------------------------------

    def read(self, query: Query) -> Reply | asyncio.Task[Reply]:
        """The answer to a query, from applied state only; a task where it needs bytes from the lake."""
        try:
            return self.queries.read(query)
        except NotFetched as need:
            return self._cold.read(query, need)

    def read_hot(self, query: Query) -> Reply | None:
        """The answer to a query, as far as memory has it; None where it needs bytes from the lake."""
        try:
            return self.queries.read(query)
        except NotFetched:
            return None

    @property
    def _cold(self) -> ColdReads:
        assert self.lake is not None, "only a server with a lake has bytes in it"
        return self.lake.reads

    def present(self, name: str) -> Stream | Refusal:
        """The living stream of that name, or why there is none."""
        return self.state.present(name, self.renewals.time_for(name))

    def describe(self, query: Head) -> Described | Refusal:
        """What a stream is; always answered from memory."""
        described = self.queries.read(query)
        assert isinstance(described, Described | Refusal)
        return described

    def list_streams(self, query: Listing) -> Listed | Refusal:
        """A page of this shard's streams."""
        listed = self.queries.read(query)
        assert isinstance(listed, Listed | Refusal)
        return listed

    def bootstrap(self, name: str, incarnation: int | None) -> Bootstrap | Refusal:
        """The snapshot and the bytes after it as of now, unaffected by later changes."""
        described = self.describe(Head(name, incarnation))
        if isinstance(described, Refusal):
            return described
        stream = self.state.streams[name]
        self.renewals.touch(stream)
        start = stream.start if stream.snapshot is None else stream.snapshot.offset
        stretches: list[Slice | Stretch] = []
        for owner, limit in reading.owners(stream, start, self.queries.source_of):
            boundary = min(owner.hot_start, limit)
            if start < boundary:
                stretches.append(self._cold.stretch(owner, start, boundary))
                start = boundary
            if start < limit:
                stretches.append(reading.slice_of(owner, start, limit))
                start = limit
        return Bootstrap(described, stretches, None if self.lake is None else self.lake.reads)

    def wait(self, name: str, waiter: Waiter) -> None:
        """Wake `waiter` whenever this stream changes; while any waits, a sliding lifetime is renewed."""
        self._tails.watch(name, waiter)
        if (stream := self.state.streams.get(name)) is not None:
            self._reaper.renew_while_read(stream)


def _end_process(error: BaseException) -> None:
    """End at once: after a batch that cannot be applied, no answer could be trusted."""
    os._exit(1)
