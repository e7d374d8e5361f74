"""The committer: gathers commands while a batch is being decided, applies what comes back, and answers."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from time import monotonic

from headwater.log.seam import CommandLog
from headwater.node.metrics import Metrics
from headwater.node.reads.tails import Tails
from headwater.streams.apply import apply
from headwater.streams.commands import Batch, Command, cost_bytes
from headwater.streams.replies import Reply
from headwater.streams.state import State

BATCH_BYTES_MAX = 8 * 1024 * 1024
"""What one commit may carry (or one command, if that alone is larger), so that small writes never wait for much."""
QUEUE_BYTES_MAX = 256 * 1024 * 1024
"""What may wait for a commit; beyond it writes are refused until it has drained."""

Done = Callable[[Reply], None]

log = logging.getLogger(__name__)


class Committer:
    """One batch in flight, the next one gathering; no timer and no window."""

    def __init__(
        self,
        state: State,
        command_log: CommandLog,
        tails: Tails,
        metrics: Metrics,
        *,
        now: Callable[[], int],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._state, self._log, self._tails, self._metrics = state, command_log, tails, metrics
        self._now, self._on_failure = now, on_failure
        self._sent_at_seconds = 0.0
        self._queue: deque[tuple[Command, Done, int]] = deque()
        self._in_flight: list[Done] = []
        self._scheduled = False
        self.queued_bytes = 0
        self.after_batch: Callable[[], None] = lambda: None

    @property
    def idle(self) -> bool:
        return not self._queue and not self._in_flight

    @property
    def full(self) -> bool:
        return self.queued_bytes >= QUEUE_BYTES_MAX

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._log.start(self.deliver)

    def submit(self, command: Command, done: Done) -> None:
        """Queue a command; `done` is called when it has been decided and applied."""
        cost = cost_bytes(command)
        self._queue.append((command, done, cost))
        self.queued_bytes += cost
        if not self._in_flight and not self._scheduled:
            # Not at once: whatever else this turn of the loop brings goes into the same batch.
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._in_flight:
            return
        queue, room = self._queue, BATCH_BYTES_MAX
        commands: list[Command] = []
        while queue:
            command, done, cost = queue[0]
            if cost > room and commands:
                break
            queue.popleft()
            commands.append(command)
            self._in_flight.append(done)
            room -= cost
        if commands:
            self.queued_bytes -= BATCH_BYTES_MAX - room
            self._sent_at_seconds = monotonic()
            self._log.append(self._now(), commands)

    def deliver(self, batch: Batch) -> None:
        """A batch was decided: apply it, answer, start the next one, and wake who waits."""
        self._metrics.commit_seconds.observe(monotonic() - self._sent_at_seconds)
        self._metrics.batch_commands.observe(len(batch.commands))
        try:
            replies = apply(self._state, batch)
        except Exception as error:
            # The log says what the state must be, and the state is half way there: nothing after it could be trusted.
            log.critical("a decided command cannot be applied, so the server ends", exc_info=True)
            self._on_failure(error)
            return
        dones, self._in_flight = self._in_flight, []
        for done, reply in zip(dones, replies, strict=True):
            try:
                done(reply)
            except Exception:
                log.exception("an answer could not be given")
        if self._queue:
            self._flush()
        waited_on = self._tails.names
        if waited_on:
            for name in {getattr(command, "name", "") for command in batch.commands}:
                if name in waited_on:
                    self._tails.wake(name)
        self.after_batch()
