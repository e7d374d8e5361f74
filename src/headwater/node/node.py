"""The node: every change goes in by `submit`, every look by `read`."""

import asyncio
import secrets
import time

from headwater.log.images import ImageFiles
from headwater.log.journal import end_process
from headwater.log.seam import CommandLog
from headwater.node.chores.debts import Debts
from headwater.node.chores.imager import Imager
from headwater.node.chores.reaper import Reaper
from headwater.node.clock import Clock
from headwater.node.committer import Committer, Done
from headwater.node.fetcher import fetch
from headwater.node.pages import PageCache
from headwater.node.tails import Tails, Waiter
from headwater.protocol.commands import Append, Command, Create, CreateFork, Delete, Origin, Touch
from headwater.protocol.content_types import is_json
from headwater.protocol.lifetimes import touch_interval_us
from headwater.protocol.limits import PIN_DEADLINE_US
from headwater.protocol.offsets import NOW
from headwater.protocol.queries import Anchor, Query, Read, Target
from headwater.protocol.refusals import Code, Refusal, incarnation_changed
from headwater.protocol.replies import Created, Described, Page, Reply
from headwater.streams import appending, forking, lifecycle, reading
from headwater.streams.forking import ForkRequest, Saga
from headwater.streams.state import State, Stream

PAGE_BYTES = 1024 * 1024
STOP_SECONDS = 10.0
"""How long the last commands may take to become durable; on a full disk they may never."""

NEEDS_ROOM = frozenset({Append, Create, CreateFork})
"""Commands that take space; all others free some, or take next to none."""
SETTLES = frozenset({Create, CreateFork, Delete})
"""Commands that begin or end a life: while one is under way, nothing is final about its name."""


class Node:
    """One shard, its log, its live readers and its chores."""

    def __init__(
        self,
        state: State,
        command_log: CommandLog,
        images: ImageFiles | None,
        *,
        image_log_bytes: int,
        page_bytes: int = PAGE_BYTES,
        clock: Clock | None = None,
    ) -> None:
        self.state = state
        self.journal = state.journal
        self.tails = Tails()
        self._clock = clock or Clock()
        self._log = command_log
        self._page_bytes = page_bytes
        self._pages = PageCache()
        self._committer = Committer(state, command_log, self.tails, self._clock.now, end_process)
        self._unsettled: dict[str, int] = {}
        self._touching: set[str] = set()
        self._reaper = Reaper(state, self.now, self.submit, self.touch, self.tails)
        self._debts = Debts(state, self.now, self.submit)
        self._imager = None if images is None else Imager(state, command_log, images, image_log_bytes)
        self._committer.after_batch = self._after_batch

    # -- Life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to decide commands; call it on the event loop."""
        self._committer.start()
        self._reaper.start()
        self._debts.start()

    async def stop(self) -> None:
        """Finish what was submitted, as far as the disk has room for it, then let go of the log."""
        self._reaper.stop()
        self._debts.stop()
        until = time.monotonic() + STOP_SECONDS
        while not self._committer.idle and time.monotonic() < until:
            await asyncio.sleep(0.005)
        if self._imager is not None:
            await self._imager.stop()
        self._log.close()

    def _after_batch(self) -> None:
        if self.state.owed:
            self._debts.pay()
        if self._imager is not None:
            self._imager.begin_if_due()

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
        if kind in NEEDS_ROOM:
            refusal = self._no_room()
            if refusal is not None:
                done(refusal)
                return
        if kind in SETTLES:
            done = self._settling(command.name, done)  # type: ignore[union-attr]
        self._committer.submit(command, done)

    def _no_room(self) -> Refusal | None:
        if self._committer.full:
            return Refusal(Code.OVERLOADED, "Too many writes are waiting for the disk; try again in a second.")
        if not self._log.has_room:
            return Refusal(Code.OVERLOADED, "The disk is full; make room, or delete streams, and try again.")
        return None

    def judge_standing(self, command: Append) -> Reply | None:
        """What the applied state says of an append whose body was refused: missing, gone, closed or of another type."""
        standing = appending.judge_standing(self.state, command, self.now())
        if not isinstance(standing, Stream):
            return standing
        mismatch = is_json(command.content_type) and not is_json(standing.content_type)
        return appending.content_type_mismatch(standing, command.content_type) if mismatch else None

    def _early(self, command: Append | Delete) -> Reply | None:
        """An answer that nothing in flight can change: missing, gone, or closed for good."""
        outcome: Stream | Reply
        if isinstance(command, Append):
            outcome = appending.judge_standing(self.state, command, self.now())
        else:
            outcome = lifecycle.judge_delete(self.state, command, self.now())
        if isinstance(outcome, Stream) or command.name in self._unsettled:
            return None
        stream = self.state.streams.get(command.name)
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

    def _step(self, saga: Saga, done: Done, sent: Reply | None) -> None:
        while True:
            try:
                asked = saga.send(sent)
            except StopIteration:
                return
            if isinstance(asked, Target | Anchor):
                sent = self.read(asked)
            elif isinstance(asked, Command):
                self.submit(asked, lambda reply: self._step(saga, done, reply))
                return
            else:
                done(asked)  # type: ignore[arg-type]
                sent = None

    # -- Looking --------------------------------------------------------------------------------------------------

    def read(self, query: Query) -> Reply:
        """The answer to a query, from applied state only."""
        now = self.now()
        if isinstance(query, Target):
            return forking.look_at_target(self.state, query, now)
        if isinstance(query, Anchor):
            source = forking.source_of_fork(self.state, query.name, now)
            return source if isinstance(source, Refusal) else reading.anchor(source, query, self._source_of)
        stream = self.state.present(query.name, now)
        if isinstance(stream, Refusal):
            return stream
        if query.incarnation is not None and query.incarnation != stream.incarnation:
            return incarnation_changed(stream.name, stream.incarnation)
        if isinstance(query, Read):
            return self._page(stream, query)
        return Described(stream.incarnation, stream.content_type, stream.tail, stream.closed, stream.lifetime)

    def _page(self, stream: Stream, query: Read) -> Page | Refusal:
        if stream.lifetime.ttl_seconds is not None:
            self.touch(stream)
        start = stream.tail if query.offset == NOW else query.offset
        bytes_max = self._page_bytes if query.bytes_max is None else min(self._page_bytes, query.bytes_max)
        page = self._pages.get(stream.incarnation, start, stream.tail, stream.closed)
        if page is not None and len(page.body) <= bytes_max:
            return page
        refusal = reading.judge(stream, start, self._source_of)
        if refusal is not None:
            return refusal
        plan = reading.plan(stream, start, bytes_max, self._source_of)
        page = Page(
            stream.incarnation,
            stream.content_type,
            start,
            plan.next_offset,
            plan.next_offset == stream.tail,
            stream.closed,
            fetch(plan.slices, json=is_json(stream.content_type)),
        )
        if bytes_max == self._page_bytes:
            self._pages.put(page)
        return page

    def _source_of(self, origin: Origin) -> Stream:
        source = self.state.streams[origin.name]
        assert source.incarnation == origin.incarnation, "a pinned source cannot be replaced"
        return source

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
