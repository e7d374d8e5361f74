"""Commits: a table's next metadata file, and the removal of what only snapshots needed that are gone.

    list       of the manifests of the new snapshot, which the caller has stored before
    metadata   created under the next version, which succeeds once; this is the commit
    hint       replaced, so that readers without a server find it
    leftovers  manifests, lists and files of deleted rows that no remaining snapshot lists are deleted

Every object is read back, because the next commit builds on it. If any call fails, whether the commit happened is
unknown; the next one begins with `load`, which finds out.
"""

import logging
import re
import secrets
import uuid
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from crc32c import crc32c

from headwater.lake.damage import LakeDamaged
from headwater.lake.iceberg.manifests import Manifest, Stamp, TableLocation, list_of
from headwater.lake.iceberg.metadata import (
    PREVIOUS_MAX,
    Snapshot,
    Table,
    decode,
    encode,
    hint_key,
    hint_of,
    parse_metadata_key,
    thinned,
)
from headwater.lake.iceberg.reading import manifests_of, read_newest
from headwater.storage.store import KeyExists, KeyMissing, Store, StoreFailed

log = logging.getLogger(__name__)

NO_HISTORY_MS = -1
"""Of a history this long, only the current snapshot remains."""

_NUMBER = re.compile(r"(\d{10})-")
"""How the names of all objects begin: with the sequence number of their snapshot, or with their version."""


class Leftover(NamedTuple):
    """An object that snapshots list from one sequence number on, and no longer from another one on."""

    key: str
    added: int
    removed: int


class Outdated(KeyExists):
    """The table describes a later state than this server has: another server has taken over."""


class Commits:
    """Commits to one table of one log; for one thread at a time."""

    def __init__(
        self,
        store: Store,
        name: str,
        location: TableLocation,
        log_id: str,
        *,
        history_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._store, self._name, self._location, self._log_id = store, name, location, log_id
        self._history_ms, self._now_ms = history_ms, now_ms
        self._version = self._sequence = 0
        self.table: Table | None = None
        """The table as of the last commit; None before the first."""
        self._leftovers: list[Leftover] = []
        self._searched = False
        self._unreadable: int | None = None
        """A snapshot whose manifests are damaged, so that the objects it needs are unknown."""

    # -- Before a commit ----------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Find the newest commit in the store; a damaged one is passed over, and its version is not used again."""
        self.table, self._leftovers, self._searched = None, [], False
        newest = read_newest(self._store, self._name)
        if newest is None:
            return
        self._version = _version(newest[0])
        self.table = self._decoded(*newest) or self._older(newest[0])
        if self.table is not None:
            self._sequence = self.table.current.sequence
            self._correct_hint(self.table)

    def _correct_hint(self, newest: Table) -> None:
        """Have the hint name the newest metadata, which a commit that failed may have stored without the hint."""
        key, hint = hint_key(self._name), hint_of(newest.version, newest.log_id).encode()
        try:
            found = self._store.read(key)
        except KeyMissing:
            found = b""
        if found != hint:
            self._store.replace(key, hint)

    def _older(self, damaged: str) -> Table | None:
        keys = [item.key for item in self._store.items(f"{self._name}/metadata/") if _version(item.key)]
        for key in sorted(keys, reverse=True):
            self._version = max(self._version, _version(key))
            if key != damaged and (table := self._decoded(key, self._store.read(key))) is not None:
                return table
        return None

    def _decoded(self, key: str, data: bytes) -> Table | None:
        try:
            table = decode(key, data)
        except ValueError as problem:
            log.error("the object %s is damaged and will be replaced: %s", key, problem)
            return None
        # Paths in manifests are absolute: those of a lake that was moved or belonged to another log are of no use.
        return table if (table.log_id, table.url) == (self._log_id, self._location.url) else None

    def new_stamp(self) -> Stamp:
        """The identity of the next snapshot, if it is committed."""
        return Stamp(secrets.randbits(62) + 1, self._sequence + 1)

    def new_key(self, kind: str) -> str:
        """The key of a new object of the next snapshot; kinds are `m0`, `list` and so on."""
        return f"{self._name}/metadata/{self._sequence + 1:010}-{secrets.token_hex(8)}-{kind}.avro"

    def put(self, key: str, data: bytes) -> None:
        """Create an object, and read it back."""
        self._store.create(key, data)
        try:
            stored = self._store.read(key)
        except KeyMissing:
            stored = None
        if stored != data:
            raise StoreFailed(f"The store does not return what was stored under {key}.")

    # -- The commit ---------------------------------------------------------------------------------------------------

    def commit(
        self, stamp: Stamp, manifests: list[Manifest], summary: dict[str, str], keep: Collection[int] = ()
    ) -> Snapshot:
        """Make these manifests the current snapshot. Snapshots in `keep` stay, whatever their age. KeyExists if
        another server was first."""
        before = None if self.table is None else self.table.current
        now = max(self._now_ms(), 0 if self.table is None else self.table.updated_ms + 1)
        parent = None if before is None else before.id
        content = list_of(manifests, self._location, stamp, parent)
        list_key = self.new_key("list")
        self.put(list_key, content)
        summary = {**summary, "headwater.list-crc": str(crc32c(content))}
        snapshot = Snapshot(stamp.snapshot_id, parent, stamp.sequence, now, list_key, summary)
        earlier = () if self.table is None else self.table.snapshots
        self._store_metadata((*earlier, snapshot), now, keep)
        self._sequence = stamp.sequence
        return snapshot

    def expire(self, keep: Collection[int] = ()) -> bool:
        """Write metadata without the snapshots whose time has come; return whether there were any."""
        table = self.table
        now = self._now_ms()
        if table is None or len(self._remaining(table.snapshots, now, keep)) == len(table.snapshots):
            return False
        self._store_metadata(table.snapshots, max(now, table.updated_ms + 1), keep)
        return True

    def expire_all(self) -> None:
        """Write metadata with the current snapshot alone, and have leftovers looked for again."""
        self._searched = False
        if self.table is not None and len(self.table.snapshots) > 1:
            now = max(self._now_ms(), self.table.updated_ms + 1)
            self._store_metadata(self.table.snapshots, now, (), history_ms=NO_HISTORY_MS)

    def _remaining(
        self, snapshots: tuple[Snapshot, ...], now: int, keep: Collection[int], history_ms: int | None = None
    ) -> tuple[Snapshot, ...]:
        by_age = thinned(snapshots, now, self._history_ms if history_ms is None else history_ms)
        return tuple(one for one in snapshots if one.id in by_age or one.id in keep)

    def _store_metadata(
        self, snapshots: tuple[Snapshot, ...], now: int, keep: Collection[int], *, history_ms: int | None = None
    ) -> None:
        table = self.table
        previous = () if table is None else (*table.previous, (table.updated_ms, table.key))
        remaining = self._remaining(snapshots, now, keep, history_ms)
        new = Table(
            self._name,
            self._version + 1,
            str(uuid.uuid4()) if table is None else table.uuid,
            self._log_id,
            self._location.url,
            now,
            remaining,
            previous[-PREVIOUS_MAX:],
        )
        self.put(new.key, encode(new, self._location))
        self.table, self._version = new, new.version
        self._store.replace(hint_key(self._name), hint_of(new.version, new.log_id).encode())
        kept = {one.id for one in remaining}
        self._leftovers += [
            Leftover(one.list_key, one.sequence, one.sequence + 1) for one in snapshots if one.id not in kept
        ]
        self._leftovers += [Leftover(key, 0, 0) for _, key in previous[:-PREVIOUS_MAX]]

    # -- After a commit -----------------------------------------------------------------------------------------------

    def leave(self, leftovers: Iterable[Leftover]) -> None:
        """Take note of objects that the current snapshot no longer lists."""
        self._leftovers += leftovers

    def find_leftovers(self, files_in: Callable[[Manifest], Iterable[str]]) -> None:
        """Find what earlier processes and failed commits have left in the table's folder; once after a load.

        If a snapshot is damaged, that waits until it has expired.
        """
        if self.table is None or self._searched or any(one.id == self._unreadable for one in self.table.snapshots):
            return
        needed = {self.table.key, hint_key(self._name), *(key for _, key in self.table.previous)}
        for snapshot in self.table.snapshots:
            try:
                self._add_needed(needed, snapshot, files_in)
            except LakeDamaged as damage:
                log.error("a snapshot of %s cannot be read any more; it expires in time: %s", self._name, damage)
                self._unreadable = snapshot.id
                return
        for item in self._store.items(f"{self._name}/"):
            number = _NUMBER.match(item.key.rpartition("/")[2])
            limit = self.table.version if parse_metadata_key(item.key) else self._sequence
            # Those of later numbers may belong to a commit that another server is making.
            if item.key not in needed and number is not None and int(number[1]) <= limit:
                self._leftovers.append(Leftover(item.key, 0, 0))
        self._searched = True

    def _add_needed(self, needed: set[str], snapshot: Snapshot, files_in: Callable[[Manifest], Iterable[str]]) -> None:
        """Add the objects that a snapshot lists."""
        needed.add(snapshot.list_key)
        for manifest in manifests_of(self._store, snapshot):
            if manifest.key not in needed:
                needed.update((manifest.key, *files_in(manifest)))

    def needs(self, added: int, removed: int) -> bool:
        """Whether a remaining snapshot lists an object that was added and removed with these sequence numbers."""
        snapshots = () if self.table is None else self.table.snapshots
        at = bisect_left(snapshots, added, key=lambda one: one.sequence)
        return at < len(snapshots) and snapshots[at].sequence < removed

    def sweep(self, needed: Collection[str] = ()) -> int:
        """Delete what no remaining snapshot lists, except for keys that others need; the number of objects."""
        gone = [one for one in self._leftovers if not self.needs(one.added, one.removed) and one.key not in needed]
        for one in gone:
            self._store.delete(one.key)
        unneeded = set(gone)
        self._leftovers = [one for one in self._leftovers if one not in unneeded]
        return len(gone)


def _version(key: str) -> int:
    """The version of a metadata file, 0 if it is another object."""
    named = parse_metadata_key(key)
    return 0 if named is None else named.version
