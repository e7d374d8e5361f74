"""Whose lake it is: one server claims it, and every other one refuses to write there."""

import msgspec

from headwater.storage.store import KeyExists, Store

OWNER_KEY = "owner.json"
OWNER_VERSION = 1


class LakeOwned(Exception):
    """The lake belongs to another server."""


class Owner(msgspec.Struct, frozen=True):
    """Whose lake it is: the journal from which everything in it came."""

    version: int
    log_id: str


def claim(store: Store, log_id: str) -> None:
    """Make the lake this journal's own, unless it is another's already; of two who claim it at once, one gets it."""
    mine = msgspec.json.encode(Owner(OWNER_VERSION, log_id))
    try:
        store.create(OWNER_KEY, mine)
    except KeyExists as error:
        whose = _log_id(store.read(OWNER_KEY))
        if whose == log_id:
            return
        owner = "something else" if whose is None else f"another server (journal {whose})"
        raise LakeOwned(f"The lake at {store.url} belongs to {owner}; use another prefix.") from error


def _log_id(data: bytes) -> str | None:
    """The journal that an owner's file names; None if it is not one that we understand."""
    try:
        owner = msgspec.json.decode(data, type=Owner)
    except msgspec.DecodeError:
        return None
    return owner.log_id if owner.version == OWNER_VERSION else None
