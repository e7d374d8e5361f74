"""Create a backup of a server that may be running.

A backup is recovered as after a crash: the newest image and the journal after it are copied and replayed, so it is
exact as of one position. Then everything that this state refers to is copied: snapshots and segments of the lake.
If the server has deleted one of them since, the backup starts over and finds most objects copied already.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

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
from headwater.lake.segments.reader import SegmentDamaged, read_all
from headwater.lake.segments.writer import SegmentWriter
from headwater.log.directory import recover
from headwater.log.journal import identity
from headwater.log.journal.files import JournalDamaged
from headwater.protocol.names import bucket_of
from headwater.storage.store import KeyMissing, Store
from headwater.streams.cold import Held
from headwater.streams.segments import DeadRows, Extent, Segment
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


# -- One bucket of a server --------------------------------------------------------------------------------------------


def only_bucket(state: State, bucket: str) -> State:
    """A state with the streams of one bucket and the streams of other buckets that they are forks of.

    Takes over the streams of the given state and changes them.
    """
    names = _names_of(state, bucket)
    kept = State(state.log_id)
    kept.position, kept.now = state.position, state.now
    kept.buckets = {name: entry for name, entry in state.buckets.items() if name == bucket}
    held_by = {origin.pin for name in names if (origin := state.streams[name].origin) is not None}
    for name in sorted(names):
        stream = state.streams[name]
        stream.pins = {pin: hold for pin, hold in (stream.pins or {}).items() if pin in held_by} or None
        if stream.deleted and stream.pins is None:
            continue  # Only forks in other buckets kept it.
        kept.add(stream)
        for extent in stream.extents:
            held = kept.cold.segments.get(extent.segment)
            live_rows = extent.rows + (held.live_rows if held else 0)
            kept.cold.keep(extent.segment, Held(state.cold.segments[extent.segment].segment, live_rows))
    known = {producer for stream in kept.streams.values() for producer in stream.producers or ()}
    kept.finished = {producer: None for producer in state.finished if producer in known}
    for incarnation in {stream.incarnation for stream in kept.streams.values()} & set(state.cold.tombstones):
        tombstone = state.cold.tombstones[incarnation]
        dead = [rows for rows in tombstone.dead if rows.segment in kept.cold.segments]
        kept.cold.hide(tombstone.name, incarnation, tombstone.below, dead)
    kept.cold.next_number, kept.cold.changed_at = state.cold.next_number, state.position
    # The rows of other buckets are missing: a consumer that reads by positions must not miss that.
    kept.cold.dropped = kept.cold.flushed = state.cold.flushed
    kept.hot_bytes = sum(stream.hot_bytes for stream in kept.streams.values())
    return kept


def _names_of(state: State, bucket: str) -> set[str]:
    """The streams of a bucket, their sources, the sources of these, and so on."""
    names = {name for name in state.streams if bucket_of(name) == bucket}
    if not names and bucket not in state.buckets:
        raise BackupFailed(f"There is no bucket {bucket!r}.")
    added = names
    while added:
        origins = {state.streams[name].origin for name in added}
        added = {origin.name for origin in origins if origin is not None} - names
        names = names | added
    return names


def only_rows_of(state: State, number: int, segment: Segment, tables: Iterable[pa.Table]) -> tuple[Segment, bytes]:
    """Rewrite a segment with only the rows of the state's streams; the state then refers to the new segment."""
    holders = {
        stream.incarnation: stream
        for stream in state.streams.values()
        if any(extent.segment == number for extent in stream.extents)
    }
    # Another bucket's rows of this segment, or this bucket's rows later on, are another object.
    rest = crc32c(f"{state.log_id}/{state.position}/{sorted(holders)}".encode())
    writer = SegmentWriter(f"{segment.id}{rest:08x}", segment.first_position, segment.last_position)
    incarnations = pa.array(list(holders), pa.int64())
    for table in tables:
        writer.add_table(table.filter(pc.is_in(table["incarnation"], value_set=incarnations)))
    written = writer.finish()
    for rows in written.rows:
        stream = holders[rows.incarnation]
        extent = Extent(number, rows.row, rows.rows, rows.start, rows.end, rows.record)
        stream.extents = tuple(extent if old.segment == number else old for old in stream.extents)
        tombstone = state.cold.tombstones.get(rows.incarnation)
        if tombstone is not None:
            state.cold.tombstones[rows.incarnation] = msgspec.structs.replace(
                tombstone,
                dead=tuple(
                    DeadRows(number, rows.row, dead.rows) if dead.segment == number else dead for dead in tombstone.dead
                ),
            )
    live_rows = sum(rows.rows for rows in written.rows)
    state.cold.keep(number, Held(written.segment, live_rows))
    return written.segment, written.data
