"""The manifests of a table in memory: which entry is in which, and which of them a change rewrites.

New entries go to the last manifest until it is full. A manifest that loses an entry is rewritten; one that has become
small is emptied into the last one. So a commit rewrites the manifests that it changes and at most a few more.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from headwater.lake.iceberg.manifests import (
    Content,
    DeletesEntry,
    Manifest,
    SegmentEntry,
    Stamp,
    Status,
    TableLocation,
    described,
)

ENTRIES_MAX = 512
"""Entries of a full manifest: encoding them takes about 15 ms."""
ENTRIES_MIN = ENTRIES_MAX // 4
"""A manifest that loses entries and then has fewer is emptied into the last one."""

E = TypeVar("E", SegmentEntry, DeletesEntry)


class Change(NamedTuple, Generic[E]):
    """What a snapshot changes: entries that leave, and entries that are new or take the place of others."""

    removed: Sequence[int]
    """Numbers of segments."""
    written: Sequence[E]


class Rewritten(NamedTuple, Generic[E]):
    """The manifests that a change writes, with their entries, and the keys of those that it replaces."""

    manifests: list[tuple[Manifest, list[E]]]
    replaced: list[Manifest]
    removed: list[E]
    """The entries whose files are no longer in the table."""


class Index(Generic[E]):
    """The entries of one kind, by the numbers of their segments."""

    def __init__(self, content: Content, encode: Callable[[Sequence[E], TableLocation], bytes]) -> None:
        self._content: Content = content
        self._encode: Callable[[Sequence[E], TableLocation], bytes] = encode
        self.entries: dict[int, E] = {}
        self._manifests: dict[str, Manifest] = {}
        self._members: dict[str, set[int]] = {}
        self._home: dict[int, str] = {}

    def add(self, manifest: Manifest, entries: Iterable[E]) -> None:
        """Take in a manifest; one without entries that still count is forgotten."""
        members = {entry.number: entry for entry in entries if entry.status != Status.REMOVED}
        if members:
            self._manifests[manifest.key], self._members[manifest.key] = manifest, set(members)
            self._home |= dict.fromkeys(members, manifest.key)
            self.entries |= members

    @property
    def manifests(self) -> list[Manifest]:
        return list(self._manifests.values())

    def rewrite(
        self,
        change: Change[E],
        location: TableLocation,
        stamp: Stamp,
        *,
        put: Callable[[str, bytes], None],
        new_key: Callable[[], str],
    ) -> Rewritten[E]:
        """Store the manifests that a change needs. The index itself is left as it is, until `accept`."""
        leaving, coming = set(change.removed), {entry.number for entry in change.written}
        touched = {self._home[number] for number in leaving | coming if number in self._home}
        last = next(reversed(self._manifests), None)
        if change.written and last is not None and len(self._members[last]) < ENTRIES_MAX:
            touched.add(last)
        pool: list[E] = []
        lots: list[list[E]] = []
        removed: list[E] = []
        kept_keys = {entry.number: _file_of(entry) for entry in change.written}
        for key in [key for key in self._manifests if key in touched]:
            survivors, gone = [], []
            for number in self._members[key]:
                entry = self.entries[number]
                if number not in leaving and number not in coming:
                    survivors.append(_with_status(entry, Status.EXISTING))
                elif number in leaving or kept_keys[number] != _file_of(entry):
                    gone.append(_gone(entry, stamp.snapshot_id))
                    removed.append(entry)
            if key == last or len(survivors) < ENTRIES_MIN:
                pool += survivors
                pool += gone
            else:
                lots.append(survivors + gone)
        pool += change.written
        pool.sort(key=lambda entry: entry.number)
        lots += [pool[at : at + ENTRIES_MAX] for at in range(0, len(pool), ENTRIES_MAX)]
        stored = []
        for entries in lots:
            data, key = self._encode(entries, location), new_key()
            put(key, data)
            stored.append((described(key, data, self._content, entries, stamp), entries))
        return Rewritten(stored, [self._manifests[key] for key in self._manifests if key in touched], removed)

    def after(self, rewritten: Rewritten[E]) -> list[Manifest]:
        """The manifests of a snapshot with these rewritten ones."""
        replaced = {manifest.key for manifest in rewritten.replaced}
        kept = [manifest for key, manifest in self._manifests.items() if key not in replaced]
        return kept + [manifest for manifest, _ in rewritten.manifests]

    def accept(self, rewritten: Rewritten[E]) -> None:
        """Take over rewritten manifests once they are committed."""
        for manifest in rewritten.replaced:
            del self._manifests[manifest.key]
            for number in self._members.pop(manifest.key):
                del self._home[number], self.entries[number]
        for manifest, entries in rewritten.manifests:
            self.add(manifest, entries)


def _file_of(entry: SegmentEntry | DeletesEntry) -> str:
    return entry.segment.id if isinstance(entry, SegmentEntry) else entry.key


def _with_status(entry: E, status: Status) -> E:
    return entry if entry.status == status else msgspec.structs.replace(entry, status=int(status))


def _gone(entry: E, snapshot_id: int) -> E:
    """The entry that says in which snapshot a file was removed."""
    return msgspec.structs.replace(entry, status=int(Status.REMOVED), snapshot_id=snapshot_id)
