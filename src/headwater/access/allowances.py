"""Allowances: rate limits per principal, within this process.

With several worker processes, each grants its share of every limit.

An allowance is a token bucket that reads the clock lazily. Usage lowers its level; only when the level falls below zero
does it read the clock and add what has accrued since, up to the burst. So a request in credit costs a subtraction, and
after a pause the remaining level plus one burst may pass at once: at most two bursts.

    level at least 0                        in credit
    below 0 by less than a second's worth   overdrawn: the request is done, and its connection is muted for that long
    more                                    exceeded: the request is refused, and not charged

A request may cost more than a burst and a second's worth together. It passes when the allowance is full, and those
after it wait until the debt is paid; otherwise it could never pass.

What was used is what has come in so far minus the level, so that the same numbers are the meters of usage.
"""

from collections import OrderedDict
from collections.abc import Callable
from math import ceil
from typing import NamedTuple, TypeAlias

from headwater.access.limits import Limits

APPEND_BURST_BYTES_MIN = 16 * 1024 * 1024
"""As much as the largest append."""
READ_BURST_BYTES_MIN = 1024 * 1024
PRINCIPALS_MAX = 100_000
IDLE_SECONDS = 60.0
"""How long the account of an idle principal is kept."""
LOOKS_PER_TIDY = 250
"""How many principals to examine per turn: about a millisecond of work."""
LOOKS_WHEN_FULL = 16
LIVE_RETRY_SECONDS = 5
"""When to retry if there are too many live reads, since it is unknown when one ends."""

_PLENTY = 1 << 50
"""The level of an allowance without a limit. When it is used up it is filled again, and it is exact as a float."""

_FULL = 1 - 1e-9
"""The part of a burst that counts as all of it: sums of fractions are not exact."""

Clock: TypeAlias = Callable[[], float]
"""The monotonic time in seconds."""


class Overdrawn(NamedTuple):
    """The request is done, and its connection is muted for a while."""

    mute_seconds: float


class Exceeded(NamedTuple):
    """The request is refused with 429; what `Retry-After`, `RateLimit-Policy` and `RateLimit` say."""

    limit: str
    quota: int
    window_seconds: int | None
    """None if the limit is not about time."""
    retry_after_seconds: int


class Usage(NamedTuple):
    """What a principal has used since the process began, or since the principal was forgotten."""

    requests: int
    appended_bytes: int
    read_bytes: int
    creates: int

    def plus(self, other: "Usage") -> "Usage":
        """Return the sum of both."""
        return Usage(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


NO_USAGE = Usage(0, 0, 0, 0)
_NO_LIMITS = Limits(None, None, None, None, None)


class Allowance:
    """One limit of one principal. `level` may be lowered directly; `settle` must follow if it falls below zero."""

    __slots__ = ("_burst", "_clock", "_received", "_seen_at", "level", "limit", "rate")

    def __init__(self, limit: str, rate: float | None, burst: float, clock: Clock) -> None:
        self.limit, self.rate = limit, rate
        self._clock = clock
        self._burst: float = _PLENTY if rate is None else burst
        self.level: float = self._burst
        self._received: float = self._burst
        self._seen_at = 0.0 if rate is None else clock()

    @property
    def used(self) -> int:
        """The amount used so far."""
        return round(self._received - self.level)

    def take(self, cost: float) -> Overdrawn | Exceeded | None:
        """Charge a request, unless it is refused; None if it is in credit."""
        self.level -= cost
        return None if self.level >= 0 else self.settle(cost)

    def settle(self, cost: float) -> Overdrawn | Exceeded | None:
        """Judge a request whose cost was subtracted from the level, which is below zero now."""
        # As it was before the request: a full allowance lets pass whatever it is.
        self.level += cost
        self._refill()
        before = self.level
        self.level -= cost
        if self.level >= 0 or self.rate is None:
            return None
        if -self.level < self.rate or before >= self._burst * _FULL:
            return Overdrawn(min(-self.level / self.rate, 1.0))
        self.level = before
        return self._exceeded(min(cost - before, self._burst - before))

    def spend(self, cost: float) -> float:
        """Charge what is done already, such as bytes that were sent; return for how many seconds to mute."""
        self.level -= cost
        return 0.0 if self.level >= 0 else min(self.debt_seconds(), 1.0)

    def refuse(self) -> Exceeded | None:
        """Refuse a request whose cost is not known yet, if the debt is a second's worth or more."""
        if self.level >= 0 or self.debt_seconds() < 1.0:
            return None
        return self._exceeded(-self.level)

    def debt_seconds(self) -> float:
        """Return the seconds until the debt is paid; 0 in credit."""
        if self.level >= 0:
            return 0.0
        self._refill()
        return 0.0 if self.level >= 0 or self.rate is None else -self.level / self.rate

    def is_full(self) -> bool:
        """Whether the allowance is full."""
        if self.rate is None:
            return True
        self._refill()
        return self.level >= self._burst * _FULL

    def adjust(self, rate: float | None, burst: float) -> None:
        """Change the limit. A debt stays, as the seconds that it takes; credit is what a new burst allows."""
        used = self.used
        debt = self.debt_seconds()
        self._burst, self.rate = (_PLENTY if rate is None else burst), rate
        self.level = self._burst if rate is None or not debt else -debt * rate
        self._received = self.level + used
        self._seen_at = 0.0 if rate is None else self._clock()

    def _refill(self) -> None:
        """Add what has come in since the last look, up to the burst."""
        if self.rate is None:
            added = self._burst - self.level
        else:
            now = self._clock()
            added = min((now - self._seen_at) * self.rate, self._burst - self.level)
            self._seen_at = now
        self.level += added
        self._received += added

    def _exceeded(self, missing: float) -> Exceeded:
        rate = self.rate
        assert rate is not None, "without a limit nothing is exceeded"
        quota, window_seconds = (int(rate), 1) if rate >= 1 else (1, ceil(1 / rate))
        return Exceeded(self.limit, quota, window_seconds, max(1, ceil(missing / rate)))


class LiveReads:
    """How many live reads a principal has; a multiplexed tail counts its streams."""

    __slots__ = ("count", "limit_count")

    def __init__(self, limit_count: int | None) -> None:
        self.limit_count = limit_count
        self.count = 0

    def begin(self, count: int = 1) -> Exceeded | None:
        """Count live reads, unless there would be too many; each call that returns None needs an `end`."""
        if self.limit_count is not None and self.count + count > self.limit_count:
            return Exceeded("live-reads", self.limit_count, None, LIVE_RETRY_SECONDS)
        self.count += count
        return None

    def end(self, count: int = 1) -> None:
        """Live reads have ended."""
        assert self.count >= count, "more live reads ended than began"
        self.count -= count


class Account:
    """All allowances of one principal."""

    __slots__ = (
        *("_processes", "_used", "_used_at", "appends", "creates", "forgotten", "limits"),
        *("live_reads", "reads", "requests"),
    )

    def __init__(self, limits: Limits | None, clock: Clock, processes: int = 1) -> None:
        self._processes = processes
        self.limits = limits
        limits = self._share(limits)
        rates = _rates(limits)
        self.requests, self.appends, self.reads, self.creates = (
            Allowance(name, rate, burst, clock) for name, rate, burst in rates
        )
        self.live_reads = LiveReads(None if limits is None else limits.live_reads)
        self._used = NO_USAGE
        self._used_at = clock()
        self.forgotten = False
        """Whether it is no longer the account of its principal."""

    @property
    def usage(self) -> Usage:
        """The amount used so far."""
        return Usage(self.requests.used, self.appends.used, self.reads.used, self.creates.used)

    def adjust(self, limits: Limits | None) -> None:
        """Go by other limits from now on; what was used stays, and so does a debt."""
        self.limits = limits
        limits = self._share(limits)
        self.live_reads.limit_count = None if limits is None else limits.live_reads
        for allowance, (_, rate, burst) in zip(self._all, _rates(limits), strict=True):
            allowance.adjust(rate, burst)

    def _share(self, limits: Limits | None) -> Limits | None:
        return limits if limits is None or self._processes == 1 else limits.shared(self._processes)

    def is_idle(self, now: float) -> bool:
        """Whether it has been unused for so long that forgetting it loses nothing."""
        used = self.usage
        if used != self._used:
            self._used, self._used_at = used, now
            return False
        return now - self._used_at >= IDLE_SECONDS and self.is_new()

    def is_new(self) -> bool:
        """Whether it has no live reads and its allowances are full, as those of a new one."""
        return not self.live_reads.count and all(allowance.is_full() for allowance in self._all)

    @property
    def _all(self) -> tuple[Allowance, ...]:
        return self.requests, self.appends, self.reads, self.creates


def _rates(limits: Limits | None) -> tuple[tuple[str, float | None, float], ...]:
    """The name, the rate and the burst of each allowance."""
    requests, appends, reads, creates, _ = _NO_LIMITS if limits is None else limits
    return (
        ("requests", requests, max(1.0, requests or 0.0)),
        ("append-bytes", appends, max(APPEND_BURST_BYTES_MIN, 2 * (appends or 0))),
        ("read-bytes", reads, max(READ_BURST_BYTES_MIN, 2 * (reads or 0))),
        ("creates", creates, max(1.0, creates or 0.0)),
    )


class Allowances:
    """The accounts of all principals that used something lately, and what those that were forgotten have used.

    Look a principal up for each request, unless its account is at hand and not forgotten: a forgotten one is no longer
    that of its principal.
    """

    def __init__(self, clock: Clock, principals_max: int = PRINCIPALS_MAX, processes: int = 1) -> None:
        self._clock, self._principals_max, self._processes = clock, principals_max, processes
        self._accounts: OrderedDict[str, Account] = OrderedDict()
        """Those looked at the longest ago are first."""
        self.forgotten = NO_USAGE
        """What all principals that were forgotten have used together."""

    def __len__(self) -> int:
        return len(self._accounts)

    def of(self, principal: str, limits: Limits | None) -> Account:
        """Return the account of a principal, under the limits that apply to it now."""
        found = self._accounts.get(principal)
        if found is not None and found.limits is limits:
            return found
        if found is None:
            if len(self._accounts) >= self._principals_max:
                self._make_room()
            found = self._accounts[principal] = Account(limits, self._clock, self._processes)
        elif found.limits == limits:
            found.limits = limits  # The file was read again, and says the same.
        else:
            found.adjust(limits)
        return found

    def accounts(self) -> list[tuple[str, Account]]:
        """The account of each principal, which knows what it has used."""
        return list(self._accounts.items())

    def tidy(self) -> None:
        """Forget some of those that are idle; to be called about once a second."""
        now = self._clock()
        for _ in range(min(LOOKS_PER_TIDY, len(self._accounts))):
            principal, account = next(iter(self._accounts.items()))
            if account.is_idle(now):
                self._forget(principal)
            else:
                self._accounts.move_to_end(principal)

    def _make_room(self) -> None:
        """Forget a principal that loses nothing; if the next few are all in use, the one seen the longest ago."""
        for _ in range(min(LOOKS_WHEN_FULL, len(self._accounts))):
            principal, account = next(iter(self._accounts.items()))
            if account.is_new():
                break
            self._accounts.move_to_end(principal)
        self._forget(next(iter(self._accounts)))

    def _forget(self, principal: str) -> None:
        account = self._accounts.pop(principal)
        account.forgotten = True
        self.forgotten = self.forgotten.plus(account.usage)
