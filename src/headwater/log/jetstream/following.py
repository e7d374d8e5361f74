"""Following: every stored message is judged once, in the order of the log, whichever way it arrives.

A message arrives because the stream's leader republished it, or because it was fetched. One that comes too early is
kept while those before it are fetched. One that comes again is compared with what was judged, as far as that is
remembered: a stream that says something else under the same number has lost acknowledged messages.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from crc32c import crc32c

from headwater.log.jetstream.client import NotConnected
from headwater.log.jetstream.fetching import Stored
from headwater.log.jetstream.judging import Judge, Taken
from headwater.log.jetstream.streams import LogChanged

AHEAD_MESSAGES_MAX = 4_096
AHEAD_BYTES_MAX = 16 * 1024 * 1024
"""Messages that are kept while those before them are fetched."""
RECENT_MESSAGES = 4_096
"""Judged messages whose checksums are remembered."""
FETCH_PAUSE_SECONDS = 0.02
FETCH_PAUSE_SECONDS_MAX = 0.5
"""How long to wait before a replica is asked again that has nothing new; doubled each time."""

log = logging.getLogger(__name__)

Judged = Callable[[bytes, Taken | None], None]
"""Receives each message and what it is worth."""


class Follower:
    """Brings the messages of the log into order, and fetches what is missing."""

    def __init__(
        self,
        judge: Judge,
        judged: Judged,
        fetch: Callable[[int], Awaitable[list[Stored]]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._judge, self._judged, self._fetch, self._on_failure = judge, judged, fetch, on_failure
        self.known = judge.sequence
        """How far the log goes, by what any node or server said."""
        self._ahead: dict[int, bytes] = {}
        self._ahead_bytes = 0
        self._recent = [0] * RECENT_MESSAGES
        self._first_recent = judge.sequence + 1
        self._checked = -1
        self._task: asyncio.Task[None] | None = None
        self.fetched = 0
        """Messages that were fetched because they had been missed."""

    def receive(self, sequence: int, data: bytes) -> None:
        """Take in a stored message."""
        following = self._judge.sequence + 1
        if sequence == following:
            self._take(sequence, data)
            while self._ahead and (kept := self._ahead.pop(self._judge.sequence + 1, None)) is not None:
                self._ahead_bytes -= len(kept)
                self._take(self._judge.sequence + 1, kept)
        elif sequence > following:
            self.known = max(self.known, sequence)
            if len(self._ahead) < AHEAD_MESSAGES_MAX and self._ahead_bytes + len(data) <= AHEAD_BYTES_MAX:
                self._ahead_bytes += len(data) - len(self._ahead.get(sequence, b""))
                self._ahead[sequence] = data
            self._fetch_soon()
        else:
            self._compare(sequence, data)

    def learn(self, sequence: int) -> None:
        """The log goes at least up to this sequence."""
        self.known = max(self.known, sequence)

    def check(self) -> None:
        """Called now and then: fetch if messages are known to exist that do not arrive."""
        applied = self._judge.sequence
        if self.known > applied == self._checked:
            self._fetch_soon()
        self._checked = applied

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _take(self, sequence: int, data: bytes) -> None:
        taken = self._judge.take(sequence, data)
        self._recent[sequence % RECENT_MESSAGES] = crc32c(data)
        self.known = max(self.known, sequence)
        self._judged(data, taken)

    def _compare(self, sequence: int, data: bytes) -> None:
        if sequence < max(self._first_recent, self._judge.sequence - RECENT_MESSAGES + 1):
            return
        if self._recent[sequence % RECENT_MESSAGES] != crc32c(data):
            raise LogChanged(
                f"The log has another message {sequence} than before: NATS has lost acknowledged messages."
            )

    def _fetch_soon(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._fetch_all())

    async def _fetch_all(self) -> None:
        """Fetch until nothing is missing."""
        pause = FETCH_PAUSE_SECONDS
        try:
            while self.known > self._judge.sequence:
                found = await self._fetch(self._judge.sequence + 1)
                for stored in found:
                    if stored.sequence > self._judge.sequence:
                        self.fetched += 1
                        self.receive(stored.sequence, stored.data)
                if found:
                    pause = FETCH_PAUSE_SECONDS
                else:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, FETCH_PAUSE_SECONDS_MAX)
        except NotConnected:
            pass  # The next check tries again.
        except Exception as error:
            self._on_failure(error)
        applied = self._judge.sequence
        for sequence in [sequence for sequence in self._ahead if sequence <= applied]:
            self._ahead_bytes -= len(self._ahead.pop(sequence))
