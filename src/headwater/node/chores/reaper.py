"""The reaper: makes expiry permanent when it is due, and renews streams that have live readers.

It only submits commands; `Expire` is judged again when it is applied, so a renewal that comes first wins.
"""

import asyncio
import heapq
from typing import NamedTuple

from headwater.node.committer import Done, Now, Submit
from headwater.node.reads.tails import Tails
from headwater.node.renewals import Renewals
from headwater.protocol.lifetimes import deadline, touch_interval_us
from headwater.protocol.limits import SECOND_US
from headwater.streams.commands.streams import Expire
from headwater.streams.replies import Reply
from headwater.streams.state import State, Stream

EXPIRES_PER_TURN_MAX = 1_000
SWEEP_ENTRIES_MIN = 1_024
SWEPT_PER_TURN = 1_000
"""A heap with fewer entries is never swept, and how many entries are swept before the loop gets a turn."""
SLEEP_SECONDS_MAX = 60.0
RENEW_SECONDS_MIN = 0.02
RENEWED_US = SECOND_US
"""After this time it is checked again whether a stream has been renewed, or another node has made its end permanent."""


class _Entry(NamedTuple):
    """When a stream is checked."""

    due_at: int
    name: str
    incarnation: int


class Reaper:
    """Keeps deadlines in a heap; an entry may be early, never late, and is checked again when it is due.

    The entry of a stream that is deleted before its deadline is stale. Whenever the heap has doubled since the last
    sweep, it is swept: entries move to a new heap, the earliest first, without the stale ones.
    """

    def __init__(
        self,
        state: State,
        now: Now,
        submit: Submit,
        renewals: Renewals,
        tails: Tails,
    ) -> None:
        self._state, self._now, self._submit, self._renewals, self._tails = state, now, submit, renewals, tails
        self._due: list[_Entry] = []
        self._unswept: list[_Entry] = []
        self._survivors = 0
        self._sweep_at_entries = SWEEP_ENTRIES_MIN
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._renewing: dict[str, asyncio.TimerHandle] = {}
        self._stopped = False
        self.reaps = True
        """Whether it makes expiry permanent. On a shared log one node does, and the others only watch."""

    def start(self) -> None:
        self._sweep_at_entries = max(SWEEP_ENTRIES_MIN, 2 * len(self._state.streams))
        for stream in self._state.streams.values():
            self.watch(stream)

    def stop(self) -> None:
        self._stopped = True
        for timer in (self._timer, *self._renewing.values()):
            if timer is not None:
                timer.cancel()

    # -- Expiry ---------------------------------------------------------------------------------------------------

    def watch(self, stream: Stream) -> None:
        """Check a stream again when its deadline has passed."""
        end = None if stream.deleted else deadline(stream.lifetime, stream.touched_at)
        if end is not None:
            heapq.heappush(self._due, _Entry(end, stream.name, stream.incarnation))
            self._arm()
            if len(self._due) >= self._sweep_at_entries and not self._unswept:
                self._unswept, self._due, self._survivors = self._due, [], 0
                self._sweep()

    def _arm(self) -> None:
        at = self._due[0].due_at
        if self._stopped or (self._timer is not None and self._timer_at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        delay = min(max((at - self._now()) / SECOND_US, 0.0), SLEEP_SECONDS_MAX)
        self._timer = asyncio.get_running_loop().call_later(delay, self._reap)

    def _reap(self) -> None:
        self._timer, now = None, self._now()
        if not self.reaps:
            self._timer_at = now + RENEWED_US
            self._timer = asyncio.get_running_loop().call_later(RENEWED_US / SECOND_US, self._reap)
            return
        for _ in range(EXPIRES_PER_TURN_MAX):
            if not self._due or self._due[0].due_at > now:
                break
            stream = self._life(heapq.heappop(self._due))
            if stream is None:
                continue
            if not stream.expired(now):
                self.watch(stream)
            elif stream.expired(self._renewals.time_for(stream.name)):
                self._submit(
                    Expire(stream.name, stream.incarnation), self._watching_again(stream.name, stream.incarnation)
                )
            else:
                # A renewal is on its way to the log, which is slow.
                heapq.heappush(self._due, _Entry(now + RENEWED_US, stream.name, stream.incarnation))
        if self._due:
            self._arm()

    def _life(self, entry: _Entry) -> Stream | None:
        """The stream of an entry; None if the entry is stale."""
        stream = self._state.streams.get(entry.name)
        return None if stream is None or stream.incarnation != entry.incarnation or stream.deleted else stream

    def _sweep(self) -> None:
        for _ in range(min(len(self._unswept), SWEPT_PER_TURN)):
            entry = heapq.heappop(self._unswept)
            if self._life(entry) is not None:
                heapq.heappush(self._due, entry)
                self._survivors += 1
        if self._due:
            self._arm()
        if not self._unswept:
            self._sweep_at_entries = max(SWEEP_ENTRIES_MIN, 2 * self._survivors)
        elif not self._stopped:
            asyncio.get_running_loop().call_soon(self._sweep)

    def _watching_again(self, name: str, incarnation: int) -> Done:
        def watch_again(_: Reply) -> None:
            stream = self._state.streams.get(name)
            if stream is not None and stream.incarnation == incarnation:
                self.watch(stream)

        return watch_again

    # -- Renewal by live readers ----------------------------------------------------------------------------------

    def renew_while_read(self, stream: Stream) -> None:
        """Keep touching a stream with a sliding lifetime as long as any reader waits on it."""
        if stream.lifetime.ttl_seconds is not None and stream.name not in self._renewing:
            self._renew(stream.name)

    def _renew(self, name: str) -> None:
        self._renewing.pop(name, None)
        stream = self._state.streams.get(name)
        ttl = None if stream is None else stream.lifetime.ttl_seconds
        if stream is None or ttl is None or name not in self._tails.names or self._stopped:
            return
        self._renewals.touch(stream)
        delay = max(touch_interval_us(ttl) / SECOND_US, RENEW_SECONDS_MIN)
        self._renewing[name] = asyncio.get_running_loop().call_later(delay, self._renew, name)
