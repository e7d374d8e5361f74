"""Ownership of a lake: one server claims it, and every other server refuses to write to it."""

import msgspec

from headwater.storage.store import KeyExists, Store

OWNER_KEY = "owner.json"
OWNER_VERSION = 2


class LakeOwned(Exception):
    """The lake belongs to another server."""


class Owner(msgspec.Struct, frozen=True):
    """The owner of a lake: the log that everything in it came from."""

    version: int
    log_id: str


def claim(store: Store, log_id: str) -> None:
    """Claim the lake for a log. LakeOwned if it belongs to another; of two concurrent claims one succeeds."""
    mine = msgspec.json.encode(Owner(OWNER_VERSION, log_id))
    try:
        store.create(OWNER_KEY, mine)
    except KeyExists as error:
        found = _log_id(store.read(OWNER_KEY))
        if found == log_id:
            return
        owner = "something else" if found is None else f"another server (log {found})"
        raise LakeOwned(f"The lake at {store.url} belongs to {owner}; use another prefix.") from error


def _log_id(data: bytes) -> str | None:
    """The log id in an owner file; None if the file cannot be decoded."""
    try:
        owner = msgspec.json.decode(data, type=Owner)
    except msgspec.DecodeError:
        return None
    return owner.log_id if owner.version == OWNER_VERSION else None
