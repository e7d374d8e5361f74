"""Ownership of a lake: one server claims it, and every other server refuses to write to it."""

import msgspec

from headwater.storage.store import KeyExists, Store

OWNER_KEY = "owner.json"
OWNER_VERSION = 3


class LakeOwned(Exception):
    """The lake belongs to another server."""


class _Versioned(msgspec.Struct, frozen=True):
    """What owner files of all versions have in common."""

    version: int


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
        found = _read(store.read(OWNER_KEY))
        if found == Owner(OWNER_VERSION, log_id):
            return
        raise LakeOwned(f"The lake at {store.url} belongs to {_describe(found)}; use another prefix.") from error


def pass_on(store: Store, log_id: str) -> None:
    """Give the lake to another log, which continues the one that owned it."""
    store.delete(OWNER_KEY)
    claim(store, log_id)


def _read(data: bytes) -> Owner | int | None:
    """The owner in an owner file; of one in another format its version, of anything else None."""
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
        return msgspec.json.decode(data, type=Owner) if version == OWNER_VERSION else version
    except ValueError:
        return None


def _describe(found: Owner | int | None) -> str:
    if isinstance(found, int):
        return f"a server whose lakes have format {found}, where this one has {OWNER_VERSION}"
    return "something else" if found is None else f"another server (log {found.log_id})"
