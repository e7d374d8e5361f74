"""Debts: what ended forks owe their sources, pins whose forks never reported, seals whose drops never ended."""

import asyncio
from collections.abc import Callable

from headwater.node.committer import Done, Now, Submit
from headwater.streams.commands import Confirm, Paid, Settle, Unpin
from headwater.streams.replies import Reply, Settled
from headwater.streams.state import State

LOOK_SECONDS = 1.0


class Debts:
    """Pays at once, looks for lost pins every second; every command is idempotent, so paying twice is no harm."""

    def __init__(
        self,
        state: State,
        now: Now,
        submit: Submit,
        settle_bucket: Callable[[str, str, int], None],
    ) -> None:
        self._state, self._now, self._submit, self._settle_bucket = state, now, submit, settle_bucket
        self._paying: set[str] = set()
        self._settling: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.pay()
        self._look()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def pay(self) -> None:
        """Ask every source that is owed a release to let go, then forget the debt."""
        for pin, debt in self._state.owed.items():
            if pin not in self._paying:
                self._paying.add(pin)
                self._submit(Unpin(debt.source, debt.incarnation, pin), self._paid(pin))

    def _paid(self, pin: str) -> Done:
        return lambda _: self._submit(Paid(pin), lambda _: self._paying.discard(pin))

    def _look(self) -> None:
        now = self._now()
        for pin, held in self._state.unconfirmed.items():
            if now > held.deadline and pin not in self._settling:
                self._settling.add(pin)
                self._submit(Settle(held.fork, pin, held.deadline), self._settled(pin))
        for bucket, entry in list(self._state.buckets.items()):
            if entry.seal is not None and now > entry.seal_deadline:
                self._settle_bucket(bucket, entry.seal, entry.seal_deadline)
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _settled(self, pin: str) -> Done:
        def settled(reply: Reply) -> None:
            self._settling.discard(pin)
            held = self._state.unconfirmed.get(pin)
            if held is None or not isinstance(reply, Settled):
                return
            verdict = Confirm if reply.held else Unpin
            self._submit(verdict(held.source, held.incarnation, pin), lambda _: None)

        return settled
