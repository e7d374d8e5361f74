"""Renewals of sliding lifetimes: a stream that is used while the log is slow does not expire meanwhile."""

from typing import TypeVar

import msgspec

from headwater.node.committer import Done, Now, Submit
from headwater.protocol.lifetimes import touch_interval_us
from headwater.streams.commands.streams import Append, SetAttrs, Touch
from headwater.streams.replies import Reply
from headwater.streams.state import Stream

W = TypeVar("W", Append, SetAttrs)


class Renewals:
    """The renewals that have been asked for and not yet applied, by the name of their stream."""

    def __init__(self, now: Now, submit: Submit) -> None:
        self._now, self._submit = now, submit
        self._pending: dict[str, tuple[int, int]] = {}
        """How many there are, and when the first was asked for."""
        self._touching: dict[str, int] = {}
        """When a stream was last read whose renewal by a read is on its way."""

    def are_due(self, stream: Stream, now: int) -> bool:
        """Whether a read of a stream with a sliding lifetime would renew it, or prolong a renewal on its way."""
        ttl = stream.lifetime.ttl_seconds
        return ttl is not None and (now - stream.touched_at >= touch_interval_us(ttl) or stream.name in self._touching)

    def time_for(self, name: str) -> int:
        """The time by which a stream is alive or expired: that of a renewal which is still on its way, or now."""
        pending = self._pending.get(name)
        return self._now() if pending is None else pending[1]

    def touch(self, stream: Stream) -> None:
        """Renew a sliding lifetime when its last renewal in the log is old enough; no client waits for it."""
        ttl = stream.lifetime.ttl_seconds
        if ttl is None:
            return
        name, now = stream.name, self._now()
        if name in self._touching:
            self._touching[name] = now
        elif now - stream.touched_at >= touch_interval_us(ttl):
            self._touch(Touch(name, stream.incarnation, now), touch_interval_us(ttl))

    def _touch(self, touch: Touch, interval_us: int) -> None:
        """Log one renewal at a time, and another one after it for reads that came much later than what it says."""
        name, read_at = touch.name, touch.asked_at
        alive_at = read_at if touch.alive_at is None else touch.alive_at
        self._touching[name] = read_at

        def touched(_: Reply) -> None:
            last_read_at = self._touching.pop(name)
            if last_read_at - read_at >= interval_us:
                # Those reads found the stream alive because of this renewal, however long it took.
                self._touch(Touch(name, touch.incarnation, last_read_at, read_at), interval_us)

        self._submit(touch, self.renewing(name, alive_at, touched))

    def ask(self, write: W, done: Done) -> tuple[W, Done]:
        """A write that renews its stream, from now until it has been applied."""
        alive_at = self.time_for(write.name)
        return msgspec.structs.replace(write, asked_at=alive_at), self.renewing(write.name, alive_at, done)

    def renewing(self, name: str, alive_at: int, done: Done) -> Done:
        """Until a renewal has been applied, the stream is as alive as it was when that was asked for."""
        self.begin(name, alive_at)

        def renewed(reply: Reply) -> None:
            self.end(name)
            done(reply)

        return renewed

    def begin(self, name: str, alive_at: int) -> None:
        """A renewal is on its way, which was asked for when the stream was alive at this time."""
        count, first = self._pending.get(name, (0, alive_at))
        self._pending[name] = count + 1, first

    def end(self, name: str) -> None:
        """A renewal has been applied."""
        left, since = self._pending.pop(name)
        if left > 1:
            self._pending[name] = left - 1, since
