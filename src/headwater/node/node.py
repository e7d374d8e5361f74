"""The node: sends each command and query to the shard of its stream, and drives what spans several shards.

There is one shard today. Placement, sagas and listings are written for any number; what still needs a single shard asks
for it by `only`: scans, the lake's endpoints, uploads of snapshots, and the status page. Reads of a fork are planned on
its own shard, so with several a fork would have to be placed with its source.
"""

import asyncio
import heapq
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from itertools import islice
from operator import attrgetter

from headwater.log.seam import Reached
from headwater.node.clock import Clock
from headwater.node.cluster.shared_shard import SharedShard
from headwater.node.committer import Done, Now, Submit
from headwater.node.metrics import Metrics
from headwater.node.reads.bootstrap import Bootstrap
from headwater.node.reads.tails import Tails, Waiter
from headwater.node.shard import Shard
from headwater.node.shard_parts import ShardLimits, ShardParts
from headwater.protocol.limits import PIN_DEADLINE_US, SEAL_DEADLINE_US
from headwater.protocol.refusals import Refusal
from headwater.storage.store import Store
from headwater.streams import buckets, forking
from headwater.streams.buckets import BucketSaga, To
from headwater.streams.commands import Command
from headwater.streams.commands.streams import Append
from headwater.streams.forking import ForkRequest, Saga
from headwater.streams.queries import Boundary, Buckets, Head, Listing, Query, Read
from headwater.streams.replies import BucketsListed, Described, Listed, Reply
from headwater.streams.state import Stream

BLOB_THREADS = 2
"""How many snapshots are read or written at a time."""


class Node:
    """The shards of one process, and what they share: the clock, live tails, metrics, threads."""

    def __init__(
        self,
        parts: Sequence[ShardParts],
        *,
        limits: ShardLimits,
        clock: Clock | None = None,
        store: Store | None = None,
    ) -> None:
        self.tails = Tails()
        self.metrics = Metrics()
        self.threads = ThreadPoolExecutor(BLOB_THREADS, "blobs")
        clock = clock or Clock()
        self.shards = [
            (SharedShard if one.command_log.shared else Shard)(
                number,
                one,
                limits=limits,
                store=store,
                clock=clock.now,
                tails=self.tails,
                metrics=self.metrics,
                threads=self.threads,
            )
            for number, one in enumerate(parts)
        ]
        [self.log_id] = {shard.state.log_id for shard in self.shards}
        self.shared = any(one.command_log.shared for one in parts)
        """Whether other processes write to the same log, so that an answer may need a barrier first."""
        alone = self.only if len(self.shards) == 1 else None
        self._alone = alone
        # With a single shard, its own methods: appends and reads then take no extra step.
        self.submit: Submit = self._submit if alone is None else alone.submit
        self.read = self._read if alone is None else alone.read
        self.now: Now = self._latest if alone is None else alone.now

    def start(self) -> None:
        """Begin to decide commands; call it on the event loop."""
        for shard in self.shards:
            shard.start()
        for shard in self.shards:
            shard.start_chores(self.submit, self.settle_bucket)

    async def stop(self) -> None:
        """Finish what was submitted, as far as the disk has room for it, then release the logs."""
        for shard in self.shards:
            await shard.stop_chores()
        for shard in self.shards:
            await shard.stop()
        self.threads.shutdown()

    # -- Shards ---------------------------------------------------------------------------------------------------

    @property
    def only(self) -> Shard:
        """The single shard, for what cannot span several yet."""
        [shard] = self.shards
        return shard

    def shard_of(self, name: str) -> Shard:
        """The shard that holds a stream."""
        return self._alone or self.shards[place(name, len(self.shards))]

    def _submit(self, command: Command, done: Done) -> None:
        self.shard_of(command.name).submit(command, done)  # type: ignore[attr-defined]

    def _read(self, query: Query) -> Reply | asyncio.Task[Reply]:
        return self.shard_of(query.name).read(query)  # type: ignore[union-attr]

    def _latest(self) -> int:
        return max(shard.now() for shard in self.shards)

    def barrier(self, reached: Reached) -> None:
        """Go on when everything that any node had acknowledged before this call is applied here."""
        self.only.barrier(reached)

    @property
    def outage(self) -> str | None:
        """Why this node can neither write nor answer freshly, as one sentence; None while it can."""
        return next(filter(None, (shard.outage for shard in self.shards)), None)

    def reaches_tail(self, query: Read) -> bool:
        """Whether a page surely reaches the tail, as far as this node knows."""
        return self.shard_of(query.name).queries.reaches_tail(query)

    def may_be_longer(self, query: Read, size: int) -> bool:
        """Whether a page may have more bytes than this, as far as this node knows."""
        return self.shard_of(query.name).queries.may_be_longer(query, size)

    def read_hot(self, query: Read) -> Reply | None:
        """The answer to a read from memory; None where it needs bytes from the lake."""
        return self.shard_of(query.name).read_hot(query)

    @property
    def queued_bytes(self) -> int:
        """The size of the commands that wait for a commit."""
        return sum(shard.queued_bytes for shard in self.shards)

    @property
    def journal_bytes(self) -> int:
        """How much the logs have grown since they were opened."""
        return sum(shard.log_bytes for shard in self.shards)

    # -- One stream -----------------------------------------------------------------------------------------------

    def judge_append(self, command: Append) -> Reply | None:
        """The answer to an append with a bad body that takes precedence over what is wrong with the body."""
        return self.shard_of(command.name).judge_append(command)

    def judge_snapshot(self, boundary: Boundary, *, trims: bool) -> Refusal | None:
        """Why a snapshot would be refused, as far as that is known without its bytes and without the lake's."""
        return self.shard_of(boundary.name).judge_snapshot(boundary, trims=trims)

    def judge_target(self, name: str) -> Refusal | None:
        """Why an append would be refused whatever it is: there is no such stream, or no room."""
        return self.shard_of(name).judge_target(name)

    def early(self, command: Append) -> Reply | None:
        """An answer to an append that nothing in flight can change."""
        return self.shard_of(command.name).early(command)

    def present(self, name: str) -> Stream | Refusal:
        """The living stream of that name, or why there is none."""
        return self.shard_of(name).present(name)

    def describe(self, query: Head) -> Described | Refusal:
        """What a stream is; always answered from memory."""
        return self.shard_of(query.name).describe(query)

    def bootstrap(self, name: str, incarnation: int | None) -> Bootstrap | Refusal:
        """The snapshot and the bytes after it as of now, unaffected by later changes."""
        return self.shard_of(name).bootstrap(name, incarnation)

    def wait(self, name: str, waiter: Waiter) -> None:
        """Wake `waiter` whenever this stream changes; while any waits, a sliding lifetime is renewed."""
        self.shard_of(name).wait(name, waiter)

    # -- Several streams or shards --------------------------------------------------------------------------------

    def list_buckets(self, query: Buckets) -> BucketsListed:
        """A page of all buckets."""
        pages = [buckets.bucket_listing(shard.state, query) for shard in self.shards]
        return buckets.merge_listings(pages, query.limit)

    def list_streams(self, query: Listing) -> Listed | Refusal:
        """A page of streams: the pages of all shards, merged."""
        pages = [shard.list_streams(query) for shard in self.shards]
        found = [page for page in pages if isinstance(page, Listed)]
        if len(found) == 1 or not found:
            return (found or pages)[0]
        merged = heapq.merge(*(page.streams for page in found), key=attrgetter("stream_id"))
        entries = list(islice(merged, query.limit + 1))
        has_more = len(entries) > query.limit or any(page.has_more for page in found)
        return Listed(entries[: query.limit], has_more)

    def fork(self, request: ForkRequest, done: Done) -> None:
        """Run the fork saga; its answer does not wait for the steps that follow."""
        saga = forking.fork(request, secrets.token_hex(8), self.now() + PIN_DEADLINE_US)
        self._drive(saga, self.shard_of(request.name).settling(request.name, done))

    def open_bucket(self, bucket: str, done: Done) -> None:
        self._drive(buckets.open_everywhere(len(self.shards), bucket), done)

    def drop_bucket(self, bucket: str, done: Done) -> None:
        deadline = self.now() + SEAL_DEADLINE_US
        self._drive(buckets.drop_everywhere(len(self.shards), bucket, secrets.token_hex(8), deadline), done)

    def inspect_bucket(self, bucket: str, done: Done) -> None:
        """Whether a bucket exists, and how many streams it holds."""
        self._drive(buckets.inspect(len(self.shards), bucket), done)

    def settle_bucket(self, bucket: str, seal: str, deadline: int) -> None:
        """Roll an interrupted drop forward or back; no client waits for it."""
        self._drive(buckets.settle_everywhere(len(self.shards), bucket, seal, deadline), lambda _: None)

    def _drive(self, saga: Saga | BucketSaga, done: Done, sent: Reply | None = None) -> None:
        """Advance a saga as far as it goes without waiting, and again with each reply."""
        while True:
            try:
                step = saga.send(sent)
            except StopIteration:
                return
            if isinstance(step, Reply):
                done(step)
                sent = None
                continue
            request: Command | Query
            if isinstance(step, To):
                shard, request = self.shards[step.shard], step.request
            else:
                shard, request = self.shard_of(step.name), step  # type: ignore[union-attr]
            if isinstance(request, Command):
                shard.submit(request, lambda reply: self._drive(saga, done, reply))
                return
            answer = shard.read(request)
            if isinstance(answer, asyncio.Task):
                answer.add_done_callback(lambda task: self._drive(saga, done, task.result()))
                return
            sent = answer


def place(name: str, shards: int) -> int:
    """The number of the shard that holds a stream, by rendezvous hashing: one more shard takes its share and moves no
    other stream.

    >>> [place(f"agents/{number}", 3) for number in range(6)]
    [0, 2, 2, 2, 1, 0]
    """
    encoded = name.encode()
    return max(range(shards), key=lambda number: blake2b(b"%d/%b" % (number, encoded), digest_size=8).digest())
