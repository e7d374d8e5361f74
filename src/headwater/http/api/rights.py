"""Rights to many names at once: requests that name streams in their bodies."""

from collections.abc import Iterable, Sequence
from itertools import islice

from headwater.access.grants import Action
from headwater.access.identities import Identity
from headwater.http.exchange.exchange import Exchange
from headwater.node.scans.pace import Pace
from headwater.protocol.refusals import Refusal

JUDGED_PER_STEP = 5_000
"""How many names are judged at a time: about a millisecond of work."""


async def refuse_names(exchange: Exchange, actions: Sequence[Action], names: Iterable[str]) -> Refusal | None:
    """The refusal of the first name on which one of the actions is not allowed."""
    identity = exchange.identity
    if all(identity.may_all_below(action, "") for action in actions):
        return None
    pace, left = Pace(), iter(names)
    while some := list(islice(left, JUDGED_PER_STEP)):
        for action in actions:
            exact, prefixes = identity.exact[action], identity.prefixes[action]
            for name in some:
                if name not in exact and not name.startswith(prefixes):
                    return exchange.refuse_right(action, name)
        await pace.rest()
    return None


def may_scan_all_below(identity: Identity, prefix: str) -> bool:
    """Whether an identity may read every stream whose name begins so, many at a time."""
    return identity.may_all_below(Action.PIPELINE, prefix) and identity.may_all_below(Action.READ, prefix)
