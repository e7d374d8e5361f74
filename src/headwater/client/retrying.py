"""Trying again: when, how often, and when not.

A request that failed is sent again only if that cannot do harm. A refusal with 429 or 503 is an answer: nothing
happened. So is 500 on a server that commits before it answers. A connection that could not be made did nothing either.
But a write that was sent and got no answer may have happened, and is sent again only if it is of a kind that happens
once however often it is sent.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import random

from headwater.client.errors import OutcomeUnknown, TransportFailed, refusal, seconds
from headwater.client.wire import RETRY_AFTER, Pause, Program, Request, Response, send

Dice = Callable[[], float]
"""A number in [0, 1), drawn anew at each call."""

ANSWERED_STATUSES = frozenset({408, 429, 500, 503})
"""The server took part and did nothing; also a write may be sent again."""
UNKNOWN_STATUSES = frozenset({502, 504})
"""Something in between lost the server's answer."""
RETRIED_STATUSES = ANSWERED_STATUSES | UNKNOWN_STATUSES


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to try, and how long to wait in between: doubling, with full jitter, never above the maximum.

    >>> policy = RetryPolicy(first_delay_seconds=1, delay_seconds_max=5, dice=lambda: 0.5)
    >>> [policy.delay_seconds(failures) for failures in (1, 2, 3, 4)]
    [0.75, 1.5, 3.0, 3.75]
    """

    attempts_max: int = 8
    first_delay_seconds: float = 0.1
    delay_seconds_max: float = 10.0
    multiplier: float = 2.0
    retry_after_seconds_max: float = 60.0
    dice: Dice = field(default=random, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.attempts_max < 1:
            raise ValueError(f"attempts_max is {self.attempts_max}; at least one attempt is made.")
        if self.first_delay_seconds <= 0:
            raise ValueError(f"first_delay_seconds is {self.first_delay_seconds}; it must be above 0.")
        if self.delay_seconds_max < self.first_delay_seconds:
            raise ValueError(f"delay_seconds_max is {self.delay_seconds_max}; it must not be below the first delay.")
        if self.multiplier < 1:
            raise ValueError(f"multiplier is {self.multiplier}; a delay must not shrink.")

    def delay_seconds(self, failures: int, retry_after_seconds: float | None = None) -> float:
        """How long to wait after so many failures in a row; what the server asks for is the least."""
        exponent = min(failures - 1, 64)
        longest = min(self.delay_seconds_max, self.first_delay_seconds * self.multiplier**exponent)
        # Half of it at least: a delay of nothing is no delay.
        delay = longest * (0.5 + 0.5 * self.dice())
        asked = min(retry_after_seconds or 0.0, self.retry_after_seconds_max)
        return max(delay, asked)


@dataclass(slots=True)
class Failures:
    """Failures in a row, against a policy; progress begins the count anew."""

    policy: RetryPolicy
    count: int = 0

    def reset(self) -> None:
        self.count = 0

    def next_delay(self, retry_after_seconds: float | None = None) -> float | None:
        """Count one more; the time to wait before the next attempt, None if there is none left."""
        self.count += 1
        if self.count >= self.policy.attempts_max:
            return None
        return self.policy.delay_seconds(self.count, retry_after_seconds)


@dataclass(frozen=True, slots=True)
class Answer:
    """The response that ended the attempts, and whether an earlier attempt may have had an effect."""

    response: Response
    in_doubt: bool


def attempt(request: Request, policy: RetryPolicy, *, repeatable: bool) -> Program[Answer]:
    """Send a request until it is answered for good; `repeatable` says that sending it twice does no harm."""
    failures = Failures(policy)
    in_doubt = False
    while True:
        retry_after: float | None = None
        try:
            response = yield from send(request)
        except TransportFailed as error:
            if error.sent and not repeatable:
                raise OutcomeUnknown(
                    f"{error} It is not known whether the write happened; look, or write through a producer.", sent=True
                ) from error
            in_doubt = in_doubt or error.sent
            delay = failures.next_delay()
            if delay is None:
                raise
        else:
            retried = RETRIED_STATUSES if repeatable else ANSWERED_STATUSES
            if response.status not in retried:
                return Answer(response, in_doubt)
            in_doubt = in_doubt or response.status in UNKNOWN_STATUSES
            retry_after = seconds(response.headers.get(RETRY_AFTER))
            delay = failures.next_delay(retry_after)
            if delay is None:
                raise refusal(request, response)
        yield Pause(delay)
