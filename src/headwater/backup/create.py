"""Create a backup of a server that may be running.

A backup is recovered as after a crash: the newest image and the journal after it are copied and replayed, so it is
exact as of one position. Then everything that this state refers to is copied: snapshots and segments of the lake.
If the server has deleted one of them meanwhile, the backup starts over and finds most objects copied already.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from headwater.backup.bucket import only_bucket, only_rows_of
from headwater.backup.manifest import (
    LAKE,
    MANIFEST,
    SNAPSHOTS,
    BackupFailed,
    CopiedObject,
    Manifest,
    Progress,
    blobs_of,
    put_object,
    put_state,
    write_manifest,
)
from headwater.lake.format import segment_key
from headwater.lake.reader import SegmentDamaged, read_all
from headwater.log.directory import recover
from headwater.log.journal import identity
from headwater.log.journal.files import JournalDamaged
from headwater.storage.store import KeyMissing, Store
from headwater.streams.segments import Segment
from headwater.streams.state import State

ATTEMPTS_MAX = 5
JOURNAL_FILE_BYTES = 64 * 1024
"""The size of the journal file that recovery begins in the scratch copy; nothing is written to it."""


class Origin(NamedTuple):
    """What to copy: one shard of a server, or one bucket of it."""

    data: Path
    lake: Store
    bucket: str | None = None
    shard: int = 0

    def key_of(self, segment: Segment) -> str:
        """The key of a segment in the lake."""
        return segment_key(self.shard, segment.first_position, segment.last_position, segment.id)


class _Gone(Exception):
    """The server deleted an object between the recovery of the state and the copy of the object."""


def create_backup(origin: Origin, target: Store, progress: Progress) -> Manifest:
    """Copy a server's data directory and its lake; both may be in use."""
    with suppress(KeyMissing):
        target.read(MANIFEST)
        raise BackupFailed(f"{target.url} already contains a backup; choose another location.")
    for _ in range(ATTEMPTS_MAX):
        state = state_of(origin.data)
        if origin.bucket is not None:
            state = only_bucket(state, origin.bucket)
        try:
            objects = list(_copied_objects(origin, state, target, progress))
        except _Gone:
            continue
        return write_manifest(target, state, origin.bucket, objects)
    raise BackupFailed(f"The server replaces its files faster than they can be copied; tried {ATTEMPTS_MAX} times.")


def state_of(data: Path) -> State:
    """The state of a data directory, which may be in use, as of its last durable command."""
    if not (data / "journal" / identity.NAME).exists():
        raise BackupFailed(f"{data} is not a server's data directory.")
    for _ in range(ATTEMPTS_MAX):
        try:
            return _recover_copy(data)
        except (FileNotFoundError, JournalDamaged) as error:
            problem: Exception = error
    raise BackupFailed(f"The data directory {data} cannot be read: {str(problem).rstrip('.')}.")


def _recover_copy(data: Path) -> State:
    with tempfile.TemporaryDirectory(prefix="headwater-backup-") as scratch:
        copy = Path(scratch)
        for folder in ("images", "journal"):
            (copy / folder).mkdir()
            # Images first: the server keeps the journal after the newest image at least until two newer images exist.
            for path in sorted((data / folder).iterdir(), reverse=folder == "images"):
                if path.is_file() and path.suffix in (".image", ".journal", ".json"):
                    shutil.copyfile(path, copy / folder / path.name)
        recovered = recover(copy, journal_file_bytes=JOURNAL_FILE_BYTES)
        recovered.journal.close()
        return recovered.state


def _copied_objects(origin: Origin, state: State, target: Store, progress: Progress) -> Iterator[CopiedObject]:
    """Copy snapshots and segments, then the state, which copying the segments of one bucket changes."""
    blobs, segments = blobs_of(state), list(state.cold.segments.items())
    total = len(blobs) + len(segments)
    shown = [stream.snapshot for stream in state.streams.values() if stream.snapshot is not None]
    digests = {snapshot.blob: snapshot.digest for snapshot in shown}
    for done, blob in enumerate(blobs):
        progress("snapshots", done, total)
        yield put_object(target, f"{SNAPSHOTS}{blob}", _snapshot(origin, blob, digests.get(blob)))
    for done, (number, held) in enumerate(segments, len(blobs)):
        progress("history", done, total)
        segment, content = _segment(origin, state, number, held.segment)
        yield put_object(target, f"{LAKE}{origin.key_of(segment)}", content)
    progress("state", total, total)
    yield from put_state(target, state)


def _snapshot(origin: Origin, blob: str, digest: str | None) -> bytes:
    try:
        content = (origin.data / "snapshots" / blob).read_bytes()
    except FileNotFoundError as error:
        raise _Gone from error
    if digest not in (None, hashlib.sha256(content).hexdigest()):
        raise BackupFailed(f"No backup was created: the snapshot {blob} is damaged. Publish a new one first.")
    return content


def _segment(origin: Origin, state: State, number: int, segment: Segment) -> tuple[Segment, bytes]:
    """A segment and its bytes; of one bucket's streams only if the backup is of one bucket."""
    try:
        content = origin.lake.read(origin.key_of(segment))
        tables = list(read_all(partial(_range, content), segment))
    except KeyMissing as error:
        raise _Gone from error
    except SegmentDamaged as error:
        raise BackupFailed(f"No backup was created: the lake is damaged. {error}") from error
    return (segment, content) if origin.bucket is None else only_rows_of(state, number, segment, tables)


def _range(content: bytes, start: int, size: int) -> bytes:
    return content[start : start + size]
