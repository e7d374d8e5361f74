"""The claims of a token: check its validity period and audience, and match it with the rules of an issuer."""

from collections.abc import Collection, Mapping
from typing import TypeAlias

from headwater.access.identities import Denied, Moment, Reason
from headwater.access.jws import Claims

LEEWAY_SECONDS = 30
"""How far the issuer's clock may be ahead, for `nbf` and `iat`. `exp` is exact, for requests and for tails alike."""
SECONDS_MAX = 2**53
"""Later times are not exact as a float, and no issuer means them."""

Value: TypeAlias = str | int | bool


def check_claims(claims: Claims, now: Moment, audiences: Collection[str]) -> Denied | None:
    """Judge the registered claims of RFC 7519; `iss` is the caller's, who chose the keys by it.

    A claim that is there must be of its type, also where nothing depends on it: a `jti` that is a number could not be
    revoked.
    """
    if not _is_time(claims.get("exp")):
        return Denied(Reason.INVALID, "It has no exp, or one that is not a number.")
    if not all(_is_time(claims[name]) for name in ("nbf", "iat") if name in claims):
        return Denied(Reason.INVALID, "Its nbf or iat is not a number.")
    if not all(isinstance(claims[name], str) and claims[name] for name in ("sub", "jti") if name in claims):
        return Denied(Reason.INVALID, "Its sub or jti is not text.")
    if not _is_for(claims, audiences):
        return Denied(Reason.INVALID, "It is for another audience.")
    if now.wall_seconds >= claims["exp"]:
        return Denied(Reason.EXPIRED, "It has expired.")
    latest = now.wall_seconds + LEEWAY_SECONDS
    if claims.get("nbf", latest) > latest or claims.get("iat", latest) > latest:
        return Denied(Reason.INVALID, "It is not valid yet.")
    return None


def _is_time(value: object) -> bool:
    """Whether a value is a time; `True` is an integer to Python, but not here."""
    return type(value) in (int, float) and 0 <= value <= SECONDS_MAX  # type: ignore[operator]


def _is_for(claims: Claims, audiences: Collection[str]) -> bool:
    """Whether one of these audiences is meant; a token for an audience is not for a reader without one (RFC 7519)."""
    if "aud" not in claims:
        return not audiences
    named = claims["aud"]
    listed = [named] if isinstance(named, str) else named
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        return False
    return any(one in audiences for one in listed)


def holds(when: Mapping[str, Value], claims: Claims) -> bool:
    """Whether every claim that a rule names is the value, a list that has it, or a `scope` with that word.

    >>> holds({"scope": "a:read"}, {"scope": "b a:read"}), holds({"roles": "x"}, {"roles": ["y"]}), holds({}, {})
    (True, False, True)
    """
    return all(_has(name, claims.get(name), value) for name, value in when.items())


def _has(name: str, claimed: object, value: Value) -> bool:
    if isinstance(claimed, list):
        return any(_same(one, value) for one in claimed)
    if name == "scope" and isinstance(claimed, str):
        return value in claimed.split(" ")
    return _same(claimed, value)


def _same(claimed: object, value: Value) -> bool:
    return type(claimed) is type(value) and claimed == value
