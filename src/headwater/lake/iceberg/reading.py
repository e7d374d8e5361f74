"""Reading tables: the newest metadata file, found by its hint, and what a snapshot lists."""

from typing import TypeVar

from headwater.lake.damage import LakeDamaged
from headwater.lake.iceberg.manifests import Content, DeletesEntry, Manifest, SegmentEntry, Status, unpack
from headwater.lake.iceberg.metadata import (
    Snapshot,
    Table,
    decode,
    hint_key,
    metadata_key,
    parse_metadata_key,
)
from headwater.storage.store import KeyMissing, Store

T = TypeVar("T")


def read_newest(store: Store, table: str) -> tuple[str, bytes] | None:
    """The current metadata file of a table: its key and its bytes; None if there is no such table.

    The hint may be older than the file, because it is written after it; the next versions are looked for by their keys.
    """
    found = _hinted(store, table) or _listed(store, table)
    while found is not None:
        named = parse_metadata_key(found[0])
        assert named is not None
        later = metadata_key(table, named.version + 1, named.log_id)
        try:
            found = later, store.read(later)
        except KeyMissing:
            return found
    return None


def _hinted(store: Store, table: str) -> tuple[str, bytes] | None:
    try:
        hint = store.read(hint_key(table)).decode(errors="replace")
        key = f"{table}/metadata/{hint}.metadata.json"
        return (key, store.read(key)) if parse_metadata_key(key) is not None else None
    except KeyMissing:
        return None


def _listed(store: Store, table: str) -> tuple[str, bytes] | None:
    keys = [item.key for item in store.items(f"{table}/metadata/") if parse_metadata_key(item.key) is not None]
    return (max(keys), store.read(max(keys))) if keys else None


def newest_table(store: Store, table: str) -> Table | None:
    """A table as of its current metadata file; None if there is none. LakeDamaged if that file cannot be decoded."""
    found = read_newest(store, table)
    if found is None:
        return None
    try:
        return decode(*found)
    except ValueError as problem:
        raise LakeDamaged(found[0], str(problem)) from problem


def manifests_of(store: Store, snapshot: Snapshot) -> list[Manifest]:
    """The manifests of a snapshot."""
    return _unpacked(store, snapshot.list_key, snapshot.list_crc, Manifest)


def segments_in(store: Store, manifest: Manifest) -> list[SegmentEntry]:
    """The segments that a manifest lists, without those that it says were removed."""
    found = _unpacked(store, manifest.key, manifest.crc, SegmentEntry)
    return [entry for entry in found if entry.status != Status.REMOVED]


def deletes_in(store: Store, manifest: Manifest) -> list[DeletesEntry]:
    """The files of deleted rows that a manifest lists, without those that it says were removed."""
    found = _unpacked(store, manifest.key, manifest.crc, DeletesEntry)
    return [entry for entry in found if entry.status != Status.REMOVED]


def of_content(manifests: list[Manifest], content: Content) -> list[Manifest]:
    """The manifests with data, or those with deletes."""
    return [one for one in manifests if one.content == content]


def _unpacked(store: Store, key: str, crc: int, kind: type[T]) -> list[T]:
    try:
        return unpack(store.read(key), crc, kind)
    except KeyMissing as problem:
        raise LakeDamaged(key, "it is missing") from problem
    except ValueError as problem:
        raise LakeDamaged(key, str(problem)) from problem
