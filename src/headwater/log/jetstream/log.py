"""The log of a cluster: a JetStream stream that every node proposes to and follows.

    append    numbers the messages of a batch, keeps them, and sends them in order
    follow    the stream's leader republishes each message that a majority has stored, to all nodes at once
    fetch     a node that missed one (it sees the next, or hears from another node how far the log goes) reads what is
              missing from any replica. There is no consumer: it would live and die with one server
    resend    whatever does not come back, in order

What counts is judged by `judging`, alike on every node, so a message may be sent as often as it takes.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any

from headwater.log.jetstream import streams
from headwater.log.jetstream.client import Client, NotConnected
from headwater.log.jetstream.fetching import Fetcher
from headwater.log.jetstream.following import Follower
from headwater.log.jetstream.health import Health, end_process
from headwater.log.jetstream.identity import Established
from headwater.log.jetstream.judging import CHECKPOINT_MESSAGES, Judge, Mark, Record, Taken, decode_mark
from headwater.log.jetstream.liveness import Liveness
from headwater.log.jetstream.publishing import Publisher
from headwater.log.jetstream.pulses import PULSE_SECONDS, Peer
from headwater.log.jetstream.replaying import replay
from headwater.log.jetstream.room import SHORTAGE, Room
from headwater.log.jetstream.streams import ApiRefused, ClusterConfig, LogChanged, LogRefused, sequence_of
from headwater.log.jetstream.wire import Message
from headwater.log.seam import Deliver, GiveBack, Reached, Ticket
from headwater.prometheus import Metric, counter, gauge
from headwater.protocol.limits import SECOND_US
from headwater.streams import batches
from headwater.streams.batches import Batch
from headwater.streams.commands import Command

TICK_SECONDS = 0.02
FULL_SECONDS = 0.5
"""How long to wait before messages are sent again to a stream that is full."""
ROOM_SECONDS = 2.0
"""How often JetStream is asked for the size of a stream that is nearly full, or that this node cannot catch up with."""
CLOSE_SECONDS_MAX = 5.0
"""How long messages in flight may take to come back after the log was closed."""

log = logging.getLogger(__name__)


class JetStreamLog:
    """One node's end of the log: a `MemberLog`."""

    batches_in_flight_max = 4
    shared = True
    shortage = SHORTAGE

    def __init__(
        self,
        config: ClusterConfig,
        established: Established,
        mark: bytes = b"",
        *,
        clock: Callable[[], int],
        on_failure: Callable[[BaseException], None] = end_process,
    ) -> None:
        self.log_id, self.config, self._clock, self._fail = established.log_id, config, clock, on_failure
        self._judge = Judge(self.log_id, config.shard, decode_mark(mark) if mark else None)
        self._room = Room(established.info.state.bytes, established.info.config.max_bytes)
        self.publisher = Publisher(self.log_id, config.shard, self._judge, self._give_back_soon)
        learn, send, heard = self._learn, self._send_barrier, self._measure_clock
        self.liveness = Liveness(config, self._judge, clock=clock, learn=learn, send_barrier=send, heard=heard)
        self.fail_barriers = self.liveness.barriers.fail_all
        self.size_bytes = 0
        self.outage: str | None = None
        self.closing: asyncio.Task[None] | None = None
        """Runs from `close` until everything is released."""
        self._failed = False
        self._clock_offset_us = self._clock_ahead_us = 0
        if mark:
            self._room.marked(self._judge.position, self._judge.sequence)

    # -- What a node asks ------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        return self._room.has_room

    @property
    def applied(self) -> int:
        """The sequence of the last message that was delivered."""
        return self._judge.sequence

    @property
    def known(self) -> int:
        """The sequence up to which the log is known to go."""
        return self.follower.known

    @property
    def peers(self) -> dict[str, Peer]:
        """The other nodes that were heard, by their names."""
        return self.liveness.peers.known

    @property
    def members(self) -> Mapping[str, str]:
        """Who may acknowledge commands, this node among them: name and session. The node sets it as it applies it."""
        return self.liveness.members

    @members.setter
    def members(self, members: Mapping[str, str]) -> None:
        self.liveness.members = members

    def compare(self, checkpoint: str, sha256: str) -> None:
        """Tell the other nodes the hash of the state at a checkpoint; one that has another is an outage."""
        self.liveness.peers.digest = checkpoint, sha256

    def read_mark(self, mark: bytes) -> Mark:
        return decode_mark(mark)

    def clock_offset_us(self) -> int:
        """How far this node's clock is from what others go by: negative if behind, positive if ahead.

        Behind is judged against the log, ahead against the clocks of the other nodes: after a night in which all nodes
        were down, the log's time is old, and no clock is ahead. Measured with every pulse: requests ask for it.
        """
        return self._clock_offset_us

    def metrics(self) -> list[Metric]:
        outage, barriers = int(self.outage is not None), self.liveness.barriers
        help_applied = "Sequence of the last message of the log applied here."
        help_offset = "How far this node's clock is ahead of the cluster's; negative if behind."
        offset_seconds = self._clock_offset_us / SECOND_US
        resends, fetched = self.publisher.resends, self.follower.fetched
        prefix = "headwater_cluster_"
        return [
            gauge(f"{prefix}applied", help_applied, self.applied, join="min"),
            gauge(f"{prefix}known", "Sequence up to which the log is known to go.", self.known, join="max"),
            gauge(f"{prefix}clock_offset_seconds", help_offset, offset_seconds, join="max"),
            gauge(f"{prefix}log_outage", "1 if the log cannot be written or trusted, 0 otherwise.", outage, join="max"),
            counter(f"{prefix}resends_total", "Times that unsettled messages were resent.", resends),
            counter(f"{prefix}fetched_messages_total", "Messages fetched because they were missed.", fetched),
            counter(f"{prefix}barriers_asked_total", "Barriers that all members answered.", barriers.asked),
            counter(f"{prefix}barriers_logged_total", "Barriers sent through the log.", barriers.through_log),
            counter(f"{prefix}barriers_timed_out_total", "Barriers not reached in time.", barriers.timed_out),
        ]

    def _measure_clock(self) -> None:
        offset = self.liveness.peers.clock_offset_us()
        if offset is not None:
            self._clock_ahead_us = max(offset, 0)
        elif not self.liveness.others:
            self._clock_ahead_us = 0  # Members that are silent for a moment have not changed their clocks.
        behind = self._clock() - self._judge.now
        self._clock_offset_us = behind if behind < 0 else self._clock_ahead_us

    # -- Reading back ----------------------------------------------------------------------------------------------

    def replay(self, after: int) -> Iterator[Batch]:
        """Every batch above a position, from the mark on. Blocks; LogBehind if the log begins too late."""
        for data, taken in replay(self.config, self.log_id, self._judge):
            self._count(data)
            if taken is None or taken.record is None or not taken.record.commands:
                continue
            batch = _batch_of(taken.record)
            if batch.last_position > after:
                yield batch

    # -- Life ------------------------------------------------------------------------------------------------------

    def start(self, deliver: Deliver, give_back: GiveBack) -> None:
        self._loop, self._deliver, self._give_back = asyncio.get_running_loop(), deliver, give_back
        self._client = Client(self.config.urls, self.config.node)
        self._client.on_connected = self._connected
        self._fetcher = Fetcher(self._client, self.config)
        self.follower = Follower(self._judge, self._judged, self._fetcher.fetch, self._on_failure)
        self._acks = self._client.inbox(self._guarded(self._on_ack))
        self._client.subscribe(self.config.subject("decided"), self._guarded(self._on_decided))
        self.liveness.connect(self._client, self._guarded)
        self._log_subject = self.config.subject("log")
        self._health = Health(self._client, self.publisher)
        self._pulse_at = self._room_at = time.monotonic()
        self._housekeeping: set[asyncio.Task[None]] = set()
        self._client.start()
        self._tick()

    def close(self) -> None:
        """Release everything once what is in flight has come back; `closing` ends when that is done."""
        self.closing = self._loop.create_task(self._close())

    async def _close(self) -> None:
        until = time.monotonic() + CLOSE_SECONDS_MAX
        while not (self.publisher.idle or self._failed) and time.monotonic() < until:
            await asyncio.sleep(TICK_SECONDS / 10)
        self._timer.cancel()
        self.liveness.barriers.fail_all()
        self.follower.stop()
        for task in self._housekeeping:
            task.cancel()
        await self._client.close()

    def _on_failure(self, error: BaseException) -> None:
        if not self._failed:
            self._failed = True
            self.outage = "This node can no longer follow the log of the cluster; use another one."
            self._fail(error)

    def _guarded(self, handle: Callable[[Message], None]) -> Callable[[Message], None]:
        """A handler whose errors end the node: what it failed to take in would be missing for good."""

        def guarded(message: Message) -> None:
            if not self._failed:
                try:
                    handle(message)
                except Exception as error:
                    self._on_failure(error)

        return guarded

    # -- Proposing -------------------------------------------------------------------------------------------------

    def append(self, at: int, commands: list[Command], ticket: Ticket) -> None:
        self.publisher.append(at, commands, ticket, time.monotonic())
        self._send()

    def _send(self) -> None:
        """Send whatever may be sent now."""
        while self._client.writable and (data := self.publisher.next_message()) is not None:
            # The acknowledgement comes back on a subject that says how far the log was: it must be further then.
            self._client.publish(self._log_subject, data, b"%b.%d" % (self._acks, self.applied))

    def _on_ack(self, message: Message) -> None:
        sequence = streams.acknowledged(message.data)
        if sequence:
            if sequence <= int(message.subject.rsplit(b".", 1)[1]):
                raise LogChanged(
                    f"NATS stored a message as {sequence}, which was taken: it has lost acknowledged messages."
                )
            self.follower.learn(sequence)
        elif b"%d" % streams.FULL in message.data:
            self.publisher.refused(time.monotonic(), FULL_SECONDS)
            self._room.stored_bytes = max(self._room.stored_bytes, self._room.max_bytes)
        else:
            self.publisher.refused(time.monotonic())

    def _give_back_soon(self, ticket: Ticket) -> None:
        self._loop.call_soon(self._give_back, ticket)

    # -- Following -------------------------------------------------------------------------------------------------

    def _learn(self, sequence: int) -> None:
        self.follower.learn(sequence)

    def _connected(self) -> None:
        self.publisher.refused(time.monotonic())
        self._in_background(self._refresh())

    def _on_decided(self, message: Message) -> None:
        self.follower.receive(sequence_of(message), message.data)

    def _count(self, data: bytes) -> None:
        judge = self._judge
        self.size_bytes += len(data)
        self._room.stored(len(data), judge.position, judge.sequence)
        if judge.sequence % CHECKPOINT_MESSAGES == 0:
            self.liveness.peers.note(judge.checkpoint)

    def _judged(self, data: bytes, taken: Taken | None) -> None:
        """Deliver what a message is worth; it was judged just now."""
        self._count(data)
        if taken is None:
            log.error("message %d of %s is not a message of this log", self.applied, self.config.stream)
        else:
            lane = self.publisher.lane_of(taken.session)
            record = taken.record
            if lane is not None:
                proposal = self.publisher.arrived(lane, taken, time.monotonic())
                if proposal is not None:
                    assert record is not None
                    if proposal.ticket is not None:
                        batch = Batch(record.first_position, record.at, proposal.commands)
                        self._deliver(batch, proposal.ticket)
                    elif proposal.arrived is not None:
                        proposal.arrived()
                self._send()
            elif record is not None and record.commands:
                self._deliver(_batch_of(record), None)
        self.liveness.barriers.applied(self.applied)

    # -- Every few milliseconds ------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now = time.monotonic()
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)
        if self._failed:
            return
        self.follower.check()
        self.publisher.resend_if_due(now)
        self._send()
        if now >= self._pulse_at:
            self._pulse_at = now + PULSE_SECONDS
            self.liveness.pulse(self.follower.known)
            self._measure_clock()
            self.outage = self.liveness.divergence() or self._health.judge(now)
        if now >= self._room_at and (self._room.is_doubtful or self.follower.known > self.applied):
            self._room_at = now + ROOM_SECONDS
            self._in_background(self._refresh())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._housekeeping.add(task)
        task.add_done_callback(self._housekeeping.discard)

    async def describe(self) -> streams.StreamInfo | None:
        """What JetStream says of the stream, if anything. That may be out of date, so it decides nothing."""
        try:
            return await streams.stream_info(self._client, self.config)
        except (ApiRefused, NotConnected, TimeoutError) as error:
            log.debug("JetStream does not describe %s: %s", self.config.stream, error)
            return None

    async def _refresh(self) -> None:
        """Learn how large the stream is and where it ends."""
        info = await self.describe()
        if info is not None and info.log_id == self.log_id:
            self._room.stored_bytes, self._room.max_bytes = info.state.bytes, info.config.max_bytes
            self.follower.learn(info.state.last_seq)
            if (behind := info.behind(self.applied)) is not None:
                self._on_failure(behind)

    # -- Barriers, images, purging ---------------------------------------------------------------------------------

    def barrier(self, reached: Reached) -> None:
        if self.outage is not None:
            reached(False)
        else:
            self.liveness.barriers.wait(reached)

    def _send_barrier(self, arrived: Callable[[], None]) -> None:
        # It does not depend on the clock: behind, it would be too old for a new session; ahead, it would push time.
        at = max(self._clock() - self._clock_ahead_us, self._judge.now)
        self.publisher.append_barrier(at, arrived, time.monotonic())
        self._send()

    def mark(self) -> bytes:
        self._room.marked(self._judge.position, self._judge.sequence)
        return self._judge.encoded_mark()

    def forget(self, upto: int) -> None:
        """Purge what images make superfluous; from any thread."""
        if upto and self.closing is None:
            self._loop.call_soon_threadsafe(self._forget, upto)

    def _forget(self, upto: int) -> None:
        sequence = self._room.sequence_upto(upto)
        if sequence:
            self._in_background(self._purge(sequence))

    def cut(self) -> int:
        self._room.marked(self._judge.position, self._judge.sequence)
        return self._room.cut_bytes

    async def has_forgotten(self, upto: int) -> bool:
        info = await self.describe()
        return info is not None and info.state.first_seq > self._room.sequence_upto(upto)

    async def _purge(self, sequence: int) -> None:
        try:
            await streams.purge(self._client, self.config, sequence)
        except (ApiRefused, NotConnected, TimeoutError) as error:
            log.warning("the log was not purged up to message %d; the next image tries again: %s", sequence, error)
        else:
            await self._refresh()


def _batch_of(record: Record) -> Batch:
    """The batch in a record; LogRefused if it has a command that this version does not know."""
    try:
        return batches.decode(record.data, record.first_position)
    except ValueError as error:
        raise LogRefused(
            f"The log has a command at position {record.first_position} that this version does not know"
            f" ({str(error).replace('`', '')}); install the version of Headwater that the other nodes have."
        ) from error
