"""Verify a backup: every object is as it was copied, and nothing that the state refers to is missing."""

from typing import NamedTuple

from headwater.backup.manifest import (
    LAKE,
    SNAPSHOTS,
    BackupFailed,
    Manifest,
    Progress,
    blobs_of,
    read_manifest,
    read_object,
    read_state,
)
from headwater.lake.format import parse_segment_key
from headwater.storage.store import Store
from headwater.streams.state import State


class Verified(NamedTuple):
    """A backup that is complete and undamaged."""

    manifest: Manifest
    state: State


def verify_backup(source: Store, progress: Progress) -> Verified:
    """Read every object of a backup, compare it with the manifest, and check that the state refers to nothing else."""
    manifest = read_manifest(source)
    for done, copied in enumerate(manifest.objects):
        progress("checking", done, len(manifest.objects))
        read_object(source, copied)
    state = read_state(source, manifest)
    keys = {copied.key for copied in manifest.objects}
    segments = {parsed.id for key in keys if (parsed := parse_segment_key(key.removeprefix(LAKE))) is not None}
    missing = [f"snapshot {blob}" for blob in blobs_of(state) if f"{SNAPSHOTS}{blob}" not in keys]
    missing += [
        f"segment {held.segment.id}" for held in state.cold.segments.values() if held.segment.id not in segments
    ]
    if missing:
        more = f" and {len(missing) - 1} more objects" if len(missing) > 1 else ""
        raise BackupFailed(f"The backup in {source.url} lacks {missing[0]}{more}.")
    return Verified(manifest, state)
