"""Debts: pins that ended forks owe their sources, pins that no fork confirmed, and seals of interrupted drops."""

import asyncio
from collections.abc import Callable
from itertools import takewhile

from headwater.node.committer import Done, Now, Submit
from headwater.streams.commands.forks import Confirm, Paid, Settle, Unpin
from headwater.streams.replies import Reply, Settled
from headwater.streams.state import State

CHECK_SECONDS = 1.0
"""How often pins and seals are checked for a deadline that has passed."""

SettleBucket = Callable[[str, str, int], None]
"""Rolls an interrupted drop forward or back, given its bucket, seal and deadline."""


class Debts:
    """Pays debts at once and checks for lost pins and seals every second. Every command is idempotent."""

    def __init__(self, state: State, now: Now, submit: Submit, check_seconds: float = CHECK_SECONDS) -> None:
        self._state, self._now, self._submit = state, now, submit
        self._check_seconds = check_seconds
        self._paying: set[str] = set()
        self._settling: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, route: Submit, settle_bucket: SettleBucket) -> None:
        """Begin; `route` submits to the shard of the command's stream, which may be another one."""
        self._route, self._settle_bucket = route, settle_bucket
        self.pay()
        self._check()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def pay(self) -> None:
        """Have every source release the pin of an ended fork, then forget the debt."""
        for pin in reversed(list(takewhile(self._is_new, reversed(self._state.owed)))):
            debt = self._state.owed[pin]
            self._paying.add(pin)
            self._route(Unpin(debt.source, debt.incarnation, pin), self._paid(pin))

    def _is_new(self, pin: str) -> bool:
        """Whether a debt is not being paid yet; new ones come after all others, so these need not be looked at."""
        return pin not in self._paying

    def _paid(self, pin: str) -> Done:
        return lambda _: self._submit(Paid(pin), lambda _: self._paying.discard(pin))

    def _check(self) -> None:
        now = self._now()
        for pin, held in self._state.unconfirmed.items():
            if now > held.deadline and pin not in self._settling:
                self._settling.add(pin)
                self._route(Settle(held.fork, pin, held.deadline), self._settled(pin))
        for bucket in list(self._state.sealed):
            entry = self._state.buckets[bucket]
            if entry.seal is not None and now > entry.seal_deadline:
                self._settle_bucket(bucket, entry.seal, entry.seal_deadline)
        self._timer = asyncio.get_running_loop().call_later(self._check_seconds, self._check)

    def _settled(self, pin: str) -> Done:
        def settled(reply: Reply) -> None:
            self._settling.discard(pin)
            held = self._state.unconfirmed.get(pin)
            if held is None or not isinstance(reply, Settled):
                return
            verdict = Confirm if reply.held else Unpin
            self._submit(verdict(held.source, held.incarnation, pin), lambda _: None)

        return settled
