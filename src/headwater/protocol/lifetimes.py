"""Lifetimes: a sliding TTL that every read and write renews, or a fixed instant; never both.

A read logs a renewal only when the last logged one is older than a tenth of the TTL (at most a minute). The deadline
allows for that tenth, so a stream expires no earlier than its TTL after its last use, and at most a tenth later.
"""

import re
from datetime import UTC, datetime, timedelta

import msgspec

from headwater.protocol.limits import SECOND_US, TOUCH_US_MAX, TTL_SECONDS_MAX
from headwater.protocol.refusals import Code, Refusal


class Lifetime(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How long a stream lives: at most one of the two; `expires_at_text` is the instant as the client wrote it."""

    ttl_seconds: int | None = None
    expires_at: int | None = None
    expires_at_text: str | None = None

    def same_as(self, other: "Lifetime") -> bool:
        """Whether two lifetimes mean the same, however the instant was written."""
        return self.ttl_seconds == other.ttl_seconds and self.expires_at == other.expires_at


FOREVER = Lifetime()

_TENTH_US = SECOND_US // 10
_TOUCH_TTL_MAX = TOUCH_US_MAX // _TENTH_US
"""From this TTL on, renewals are logged at most once a minute."""

_TTL = re.compile(r"0|[1-9][0-9]*")
_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
    r"([Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def touch_interval_us(ttl_seconds: int) -> int:
    """How old the last logged renewal may be before a read logs another."""
    return ttl_seconds * _TENTH_US if ttl_seconds < _TOUCH_TTL_MAX else TOUCH_US_MAX


def deadline(lifetime: Lifetime, touched_at: int) -> int | None:
    """When the stream expires, in microseconds since 1970; None if never.

    >>> deadline(Lifetime(ttl_seconds=10), touched_at=0), deadline(FOREVER, 0)
    (11000000, None)
    """
    if lifetime.ttl_seconds is not None:
        return touched_at + lifetime.ttl_seconds * SECOND_US + touch_interval_us(lifetime.ttl_seconds)
    return lifetime.expires_at


def parse(ttl: str | None, expires_at: str | None) -> Lifetime | Refusal:
    """The lifetime that a create requests."""
    if ttl is not None and expires_at is not None:
        return Refusal(
            Code.INVALID_HEADER, "Stream-TTL and Stream-Expires-At are mutually exclusive; send one of them."
        )
    if ttl is not None:
        if _TTL.fullmatch(ttl) is None or int(ttl[:20]) > TTL_SECONDS_MAX:
            return Refusal(
                Code.INVALID_HEADER,
                f"Stream-TTL is {ttl[:40]!r}; it must be whole seconds from 0 to {TTL_SECONDS_MAX}, no leading zeros.",
            )
        return Lifetime(ttl_seconds=int(ttl))
    if expires_at is None:
        return FOREVER
    instant = _instant_us(expires_at)
    if instant is None:
        return Refusal(
            Code.INVALID_HEADER,
            f"Stream-Expires-At is {expires_at[:40]!r}; it must be a timestamp like 2030-01-31T12:00:00Z.",
        )
    return Lifetime(expires_at=instant, expires_at_text=expires_at)


def _instant_us(text: str) -> int | None:
    match = _INSTANT.fullmatch(text)
    if match is None:
        return None
    *parts, fraction, zone = match.groups()
    year, month, day, hour, minute, second = map(int, parts)
    leap = second == 60
    try:
        moment = datetime(year, month, day, hour, minute, 59 if leap else second, tzinfo=UTC)
        if zone not in "Zz":
            shift = timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
            moment = moment - shift if zone[0] == "+" else moment + shift
    except (ValueError, OverflowError):
        return None
    microseconds = int((fraction or "0").ljust(6, "0")[:6]) + (SECOND_US if leap else 0)
    return (moment - _EPOCH) // timedelta(microseconds=1) + microseconds
