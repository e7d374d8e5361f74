"""Retrying: what is sent again, how often, and how long to wait in between.

A request that failed is sent again only if that is safe. A refusal with 429 or 503 is an answer: the server did
nothing. So is 500 from a server that commits before it answers. A request without a connection did nothing either. But
a write that was sent and got no answer may have happened, and so may one that was answered with 503 and the code
`outcome_unknown`; it is sent again only if it is idempotent.

A client with several URLs sends it to the next one at once (`nodes` says which), and waits only when each URL has
failed: that is one failure of the policy.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import random

from headwater.client.errors import (
    ClientError,
    OutcomeUnknown,
    TransportFailed,
    is_unknown,
    refusal,
    retry_after_seconds,
)
from headwater.client.pages import whole
from headwater.client.wire import Pause, Program, Request, Response, now, open_response, send

Dice = Callable[[], float]
"""Returns a random number in [0, 1) at each call."""

ANSWERED_STATUSES = frozenset({408, 429, 500, 503})
"""The server answered and did nothing; even a write may be sent again."""
UNKNOWN_STATUSES = frozenset({502, 504})
"""A proxy lost the server's answer."""
RETRIED_STATUSES = ANSWERED_STATUSES | UNKNOWN_STATUSES
BUSY_STATUSES = frozenset({429, 503})
"""The server asks to wait for a turn."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to try, and how long to wait in between: the delay doubles up to a maximum, with jitter.

    `attempts_max` counts attempts without progress in between. `connect_attempts_max` is the limit while no connection
    has been made at all, so that a wrong URL or a dead server is reported in about a second; followers and producers do
    not have it. For `busy_seconds` after the first attempt, a server may answer 429 or 503 without that being counted.

    >>> policy = RetryPolicy(first_delay_seconds=1, delay_seconds_max=5, dice=lambda: 0.5)
    >>> [policy.delay_seconds(failures) for failures in (1, 2, 3, 4)]
    [0.75, 1.5, 3.0, 3.75]
    """

    attempts_max: int = 8
    first_delay_seconds: float = 0.1
    delay_seconds_max: float = 10.0
    multiplier: float = 2.0
    retry_after_seconds_max: float = 60.0
    connect_attempts_max: int = 5
    busy_seconds: float = 0.0
    dice: Dice = field(default=random, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.attempts_max < 1:
            raise ValueError(f"attempts_max is {self.attempts_max}; at least one attempt is made.")
        if self.connect_attempts_max < 1:
            raise ValueError(f"connect_attempts_max is {self.connect_attempts_max}; at least one attempt is made.")
        if self.first_delay_seconds <= 0:
            raise ValueError(f"first_delay_seconds is {self.first_delay_seconds}; it must be above 0.")
        if self.delay_seconds_max < self.first_delay_seconds:
            raise ValueError(f"delay_seconds_max is {self.delay_seconds_max}; it must not be below the first delay.")
        if self.multiplier < 1:
            raise ValueError(f"multiplier is {self.multiplier}; delays must not shrink.")

    def delay_seconds(self, failures: int, retry_after_seconds: float | None = None) -> float:
        """How long to wait after this many failures in a row; never less than the server asks for."""
        exponent = min(failures - 1, 64)
        longest = min(self.delay_seconds_max, self.first_delay_seconds * self.multiplier**exponent)
        # At least half of it: without a delay, retries would load the server that is failing.
        delay = longest * (0.5 + 0.5 * self.dice())
        # Clients that a server sent away together must not all come back at the same moment.
        requested = min(retry_after_seconds or 0.0, self.retry_after_seconds_max) * (1.0 + 0.5 * self.dice())
        return max(delay, requested)


@dataclass(slots=True)
class Failures:
    """Failures in a row, against a policy; progress resets the count."""

    policy: RetryPolicy
    count: int = 0
    connected: bool = False
    """Whether the server has been reached: from then on `connect_attempts_max` no longer applies."""
    hops: int = 0
    """How many URLs have failed since the last delay, and were followed by another one at once."""

    def reset(self) -> None:
        self.count, self.connected, self.hops = 0, True, 0

    def may_hop(self, others: int) -> bool:
        """Whether to try another of the client's URLs at once; that is not counted as a failure yet."""
        self.hops = self.hops + 1 if self.hops < others else 0
        return self.hops > 0

    def next_delay(
        self, retry_after_seconds: float | None = None, *, connected: bool = True, others: int = 0
    ) -> float | None:
        """Count a failure, and return the delay before the next attempt; None if there is none left.

        `others` is how many other URLs may be tried at once, without a delay: each of them, before the failure counts.
        """
        self.connected = self.connected or connected
        if self.may_hop(others):
            return 0.0
        self.count += 1
        left = self.policy.attempts_max - self.count
        if not self.connected:
            left = min(left, self.policy.connect_attempts_max - self.count)
        return self.policy.delay_seconds(self.count, retry_after_seconds) if left > 0 else None


@dataclass(frozen=True, slots=True)
class Answer:
    """The response that ended the attempts, and whether an earlier attempt may have had an effect."""

    response: Response
    in_doubt: bool


def attempt(request: Request, policy: RetryPolicy, *, repeatable: bool, opened: bool = False) -> Program[Answer]:
    """Send a request until it has a final answer; `repeatable` means that it is idempotent.

    With `opened`, the body of a success is left to the caller, who reads it with `More`.
    """
    failures = Failures(policy)
    in_doubt = False
    busy_until = (yield from now()) + policy.busy_seconds if policy.busy_seconds else None
    while True:
        try:
            response = yield from (_opened(request) if opened else send(request))
        except TransportFailed as error:
            if error.sent and not repeatable:
                raise _unknown(error) from error
            in_doubt = in_doubt or error.sent
            delay = failures.next_delay(connected=error.sent, others=error.others)
            if delay is None:
                raise
        else:
            retried = RETRIED_STATUSES if repeatable else ANSWERED_STATUSES
            if response.status not in retried:
                return Answer(response, in_doubt)
            unknown = is_unknown(response)
            in_doubt = in_doubt or unknown or response.status in UNKNOWN_STATUSES
            retry_after, others = retry_after_seconds(response), response.route.others
            if unknown and not repeatable:
                delay = None
            elif response.status in BUSY_STATUSES and busy_until is not None and (yield from now()) < busy_until:
                delay = 0.0 if failures.may_hop(others) else policy.delay_seconds(failures.count + 1, retry_after)
            else:
                delay = failures.next_delay(retry_after, others=others)
            if delay is None:
                refused = refusal(request, response)
                if unknown:
                    raise _unknown(refused) from refused
                raise refused
        if delay:
            yield Pause(delay)


def _unknown(error: ClientError) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"{error} The write may or may not have happened; check, or write through a producer.", sent=True
    )


def _opened(request: Request) -> Program[Response]:
    response = yield from open_response(request)
    return response if response.ok else (yield from whole(response))
