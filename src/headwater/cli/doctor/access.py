"""The checks of `headwater doctor` on the access file."""

import time
from collections.abc import Iterator, Sized
from pathlib import Path

from headwater.access.grants import CHANGING
from headwater.access.policy import Policy, PolicyError, load
from headwater.cli.doctor.findings import Finding

DAYS_ENOUGH = 14
DAY_SECONDS = 86_400


def access_file(path: Path) -> Iterator[Finding]:
    """Check that a server can use the file, what it grants to anonymous clients, and which tokens expire soon."""
    try:
        policy = load(path)
    except PolicyError as error:
        problem, _, advice = str(error).rstrip(".").rpartition("; ")
        yield Finding("access file", "problem", problem or advice, advice if problem else "correct the file")
        return
    counts: dict[str, Sized] = {
        "tokens": policy.tokens,
        "keys": policy.keys,
        "issuers": policy.issuers,
        "names": policy.certificates,
    }
    detail = ", ".join(f"{len(entries)} {what}" for what, entries in counts.items())
    yield Finding("access file", "ok", detail)
    yield _anonymous(policy)
    yield from _ending(policy)


def _anonymous(policy: Policy) -> Finding:
    allowed = [action.word for action in CHANGING if policy.anonymous.may_some(action)]
    if allowed:
        fix = "remove these grants from [anonymous] unless every client that can reach the server may do that"
        return Finding("strangers", "warning", f"they may {', '.join(allowed)} without a credential", fix)
    return Finding("strangers", "ok", "they may change nothing")


def _ending(policy: Policy) -> Iterator[Finding]:
    for token in policy.tokens.values():
        if token.expires_wall_seconds is None:
            continue
        days = int((token.expires_wall_seconds - time.time()) // DAY_SECONDS)
        if days < DAYS_ENOUGH:
            ends = f"token {token.identity.name!r} " + (f"ends in {days} days" if days >= 0 else "has expired")
            yield Finding("tokens", "warning", ends, "make a new one with headwater token create, and revoke it")
