"""Renewals of sliding lifetimes: a stream that is used while the log is slow does not expire meanwhile."""

from typing import TypeVar

import msgspec

from headwater.node.committer import Done, Now, Submit
from headwater.protocol.lifetimes import touch_interval_us
from headwater.streams.commands import Append, SetAttrs, Touch
from headwater.streams.replies import Reply
from headwater.streams.state import Stream

W = TypeVar("W", Append, SetAttrs)


class Renewals:
    """The renewals that have been asked for and not yet applied, by the name of their stream."""

    def __init__(self, now: Now, submit: Submit) -> None:
        self._now, self._submit = now, submit
        self._pending: dict[str, tuple[int, int]] = {}
        """How many there are, and when the first was asked for."""
        self._touching: set[str] = set()

    def time_for(self, name: str) -> int:
        """The time by which a stream is alive or expired: that of a renewal which is still on its way, or now."""
        pending = self._pending.get(name)
        return self._now() if pending is None else pending[1]

    def touch(self, stream: Stream) -> None:
        """Renew a sliding lifetime when its last renewal in the log is old enough; no client waits for it."""
        ttl = stream.lifetime.ttl_seconds
        if ttl is None or stream.name in self._touching or self._now() - stream.touched_at < touch_interval_us(ttl):
            return
        name, now = stream.name, self._now()
        self._touching.add(name)
        touch = Touch(name, stream.incarnation, now)
        self._submit(touch, self.renewing(name, now, lambda _: self._touching.discard(name)))

    def ask(self, write: W, done: Done) -> tuple[W, Done]:
        """A write that renews its stream, from now until it has been applied."""
        now = self._now()
        return msgspec.structs.replace(write, asked_at=now), self.renewing(write.name, now, done)

    def renewing(self, name: str, asked_at: int, done: Done) -> Done:
        """Until a renewal has been applied, the stream is as alive as it was when that was asked for."""
        count, first = self._pending.get(name, (0, asked_at))
        self._pending[name] = count + 1, first

        def renewed(reply: Reply) -> None:
            left, since = self._pending.pop(name)
            if left > 1:
                self._pending[name] = left - 1, since
            done(reply)

        return renewed
