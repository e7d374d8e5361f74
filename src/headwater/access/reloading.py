"""Load the access file again, and say which of its entries have changed: work for a thread, since it takes time."""

from collections.abc import Iterable
from typing import NamedTuple

from headwater.access.identifying import Policy
from headwater.access.policy import load

LISTED_MAX = 100
"""How many entries are listed by their ids."""

Changes = dict[str, list[str]]
"""Which entries were added, removed and changed, by their kinds and ids."""


class Reloaded(NamedTuple):
    """The new rules, and in what they differ from the old ones."""

    policy: Policy
    changes: Changes


def reload(before: Policy) -> Reloaded:
    """Read the access file again, or raise `PolicyError`."""
    after = load(before.path, before)
    return Reloaded(after, _differences(_entries(before), _entries(after)))


def _entries(policy: Policy) -> dict[str, object]:
    entries: dict[str, object] = {"anonymous": policy.anonymous_grants}
    for token in policy.tokens.values():
        identity = token.identity
        rights = identity.exact, identity.prefixes, identity.limits
        entries[f"token {identity.name}"] = rights, token.expires_wall_seconds
    entries |= {f"key {key.id}": key[2:] for key in policy.keys.values()}
    entries |= {f"issuer {issuer.url}": (issuer.rules, issuer.audiences) for issuer in policy.issuers.values()}
    for name, identity in policy.certificates.items():
        entries[f"certificate {name}"] = identity.exact, identity.prefixes, identity.limits
    return entries | {"revoked": policy.revocations}


def _differences(before: dict[str, object], after: dict[str, object]) -> Changes:
    both = before.keys() & after.keys()
    return {
        "added": _some(after.keys() - before.keys()),
        "removed": _some(before.keys() - after.keys()),
        "changed": _some(name for name in both if before[name] != after[name]),
    }


def _some(entries: Iterable[str]) -> list[str]:
    found = sorted(entries)
    more = [f"and {len(found) - LISTED_MAX} more"] if len(found) > LISTED_MAX else []
    return found[:LISTED_MAX] + more
