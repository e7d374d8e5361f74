"""Backups: a copy of a whole server, or of one bucket, in any store, taken while the server works.

A backup is made as a crash would leave things: the newest image and the journal behind it are copied and recovered, so
it is exact as of one position. Then everything that this state names is copied: snapshots, segments of the lake. The
server may have deleted one of them meanwhile; then it begins again, and finds most of it copied.

    backup.json        written last: what there is, with the SHA-256 of every object
    image/<n>          the state, as frames of an image file
    snapshots/<id>     snapshot blobs
    lake/...           segments, under the keys that they have in the lake
"""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.format import segment_key
from headwater.lake.ownership import claim
from headwater.lake.reader import SegmentDamaged, read_all
from headwater.lake.writer import SegmentWriter
from headwater.log.directory import recover
from headwater.log.images import ImageDamaged, ImageFiles
from headwater.log.journal import files as segments
from headwater.log.journal import identity
from headwater.log.journal.files import JournalDamaged
from headwater.protocol.names import bucket_of
from headwater.storage.disk import RealDisk, make_directory
from headwater.storage.store import KeyExists, KeyMissing, Store
from headwater.streams.cold import Held
from headwater.streams.images import image_of, restore
from headwater.streams.segments import Extent, Segment
from headwater.streams.state import State

VERSION = 1
MANIFEST = "backup.json"
PART_BYTES = 64 * 1024 * 1024
"""How much of the image one object holds."""
ATTEMPTS_MAX = 5
SHARD = 0

Progress = Callable[[str, int, int], None]
"""Told what is being copied, how many objects are done, and of how many."""


class BackupFailed(Exception):
    """No backup was made, or restored; the message is one sentence for a person."""


class Copied(msgspec.Struct, frozen=True):
    """One object of a backup."""

    key: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What a backup holds."""

    version: int
    log_id: str
    position: int
    at: int
    bucket: str | None
    streams: int
    objects: list[Copied]


class _Gone(Exception):
    """Something was deleted between the image and its copy."""


# -- Making one -------------------------------------------------------------------------------------------------------


def create(data: Path, lake: Store, target: Store, bucket: str | None, progress: Progress) -> Manifest:
    """Copy a server's data directory and its lake; both may be in use."""
    with suppress(KeyMissing):
        target.read(MANIFEST)
        raise BackupFailed(f"There is a backup in {target.url} already; name another place.")
    for _ in range(ATTEMPTS_MAX):
        try:
            state = _state_of(data)
            break
        except (FileNotFoundError, JournalDamaged) as error:
            problem: Exception = error
    else:
        raise BackupFailed(f"The data directory {data} cannot be read: {problem}.")
    for _ in range(ATTEMPTS_MAX):
        try:
            return _copy(
                state if bucket is None else _only(state, bucket), data, lake, target, bucket, progress=progress
            )
        except _Gone:
            state = _state_of(data)
    raise BackupFailed(f"The server replaces its files faster than they can be copied; tried {ATTEMPTS_MAX} times.")


def _state_of(data: Path) -> State:
    """The state as of the last durable command, from a copy of the files that hold it."""
    if not (data / "journal" / identity.NAME).exists():
        raise BackupFailed(f"There is no server's data in {data}.")
    with tempfile.TemporaryDirectory(prefix="headwater-backup-") as scratch:
        copy = Path(scratch)
        for folder in ("images", "journal"):
            (copy / folder).mkdir()
            # Images first: the journal behind the newest one is kept at least as long as it is the newest but one.
            for path in sorted((data / folder).iterdir(), reverse=folder == "images"):
                if path.is_file() and path.suffix in (".image", ".journal", ".json"):
                    shutil.copyfile(path, copy / folder / path.name)
        recovered = recover(copy, segment_bytes=64 * 1024)
        recovered.journal.close()
        return recovered.state


def _copy(state: State, data: Path, lake: Store, target: Store, bucket: str | None, *, progress: Progress) -> Manifest:
    blobs = _blobs_of(state)
    shown = [stream.snapshot for stream in state.streams.values() if stream.snapshot is not None]
    digests = {snapshot.blob: snapshot.digest for snapshot in shown}
    total = len(blobs) + len(state.cold.segments)
    objects = []
    for done, blob in enumerate(blobs):
        progress("snapshots", done, total)
        try:
            content = (data / "snapshots" / blob).read_bytes()
        except FileNotFoundError as error:
            raise _Gone from error
        if digests.get(blob) not in (None, hashlib.sha256(content).hexdigest()):
            raise BackupFailed(f"The snapshot {blob} is damaged, so there is no backup; publish a new one first.")
        objects.append(_put(target, f"snapshots/{blob}", content))
    for done, (number, held) in enumerate(list(state.cold.segments.items()), len(blobs)):
        progress("history", done, total)
        segment = held.segment
        try:
            content = lake.read(_key(segment))
            rows = list(read_all(lambda start, size, data=content: data[start : start + size], segment))  # type: ignore[misc]
        except KeyMissing as error:
            raise _Gone from error
        except SegmentDamaged as error:
            raise BackupFailed(f"The lake is damaged, so there is no backup: {error}") from error
        if bucket is not None:
            segment, content = _cut_down(state, number, segment, rows)
        objects.append(_put(target, f"lake/{_key(segment)}", content))
    progress("state", total, total)
    objects += [_put(target, f"image/{number:05}", part) for number, part in enumerate(_image_parts(state))]
    manifest = Manifest(VERSION, state.log_id, state.position, state.now, bucket, len(state.streams), objects)
    target.create(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
    return manifest


def _put(target: Store, key: str, content: bytes) -> Copied:
    with suppress(KeyExists):  # From an attempt before this one; a key never has two contents.
        target.create(key, content)
    return Copied(key, len(content), hashlib.sha256(content).hexdigest())


def _key(segment: Segment) -> str:
    return segment_key(SHARD, segment.first_position, segment.last_position, segment.id)


def _blobs_of(state: State) -> list[str]:
    found: dict[str, None] = {}
    for stream in state.streams.values():
        if stream.snapshot is not None:
            found[stream.snapshot.blob] = None
        found |= {hold.blob: None for hold in (stream.pins or {}).values() if hold.blob is not None}
    return list(found)


def _image_parts(state: State) -> Iterator[bytes]:
    """The pieces of the image, each behind its length."""
    part = bytearray()
    for piece in image_of(state):
        part += len(piece).to_bytes(8, "little") + piece
        if len(part) >= PART_BYTES:
            yield bytes(part)
            part.clear()
    yield bytes(part)


# -- One bucket -------------------------------------------------------------------------------------------------------


def _only(state: State, bucket: str) -> State:
    """A state with the streams of one bucket, and whatever streams of others they are forks of."""
    wanted = {name for name in state.streams if bucket_of(name) == bucket}
    if not wanted and bucket not in state.buckets:
        raise BackupFailed(f"There is no bucket {bucket!r}.")
    more = wanted
    while more:
        origins = {state.streams[name].origin for name in more}
        more = {origin.name for origin in origins if origin is not None} - wanted
        wanted = wanted | more
    kept = State(state.log_id)
    kept.position, kept.now = state.position, state.now
    kept.buckets = {name: entry for name, entry in state.buckets.items() if name == bucket}
    held_by = {origin.pin for name in wanted if (origin := state.streams[name].origin) is not None}
    for name in sorted(wanted):
        stream = state.streams[name]
        stream.pins = {pin: hold for pin, hold in (stream.pins or {}).items() if pin in held_by} or None
        if stream.deleted and stream.pins is None:
            continue  # Only forks in other buckets kept it.
        kept.add(stream)
        for extent in stream.extents:
            held = kept.cold.segments.get(extent.segment)
            live_rows = extent.rows + (held.live_rows if held else 0)
            kept.cold.segments[extent.segment] = Held(state.cold.segments[extent.segment].segment, live_rows)
    for incarnation in {stream.incarnation for stream in kept.streams.values()} & set(state.cold.tombstones):
        tombstone = state.cold.tombstones[incarnation]
        numbers = [number for number in tombstone.segments if number in kept.cold.segments]
        kept.cold.hide(tombstone.name, incarnation, tombstone.below, numbers)
    kept.cold.next_number, kept.cold.changed_at = state.cold.next_number, state.position
    # Rows of other buckets are not there: who reads the lake by positions must not take that for nothing.
    kept.cold.dropped = kept.cold.flushed = state.cold.flushed
    kept.hot_bytes = sum(stream.hot_bytes for stream in kept.streams.values())
    return kept


def _cut_down(state: State, number: int, segment: Segment, tables: Iterable[pa.Table]) -> tuple[Segment, bytes]:
    """A segment with the rows of these streams only, which go by it from now on."""
    holders = {
        stream.incarnation: stream
        for stream in state.streams.values()
        if any(extent.segment == number for extent in stream.extents)
    }
    writer = SegmentWriter(f"{segment.id}0", segment.first_position, segment.last_position)
    for table in tables:
        writer.add_table(_filtered(table, list(holders)))
    written = writer.finish()
    for rows in written.rows:
        stream = holders[rows.incarnation]
        extent = Extent(number, rows.row, rows.rows, rows.start, rows.end, rows.record)
        stream.extents = tuple(extent if old.segment == number else old for old in stream.extents)
    live_rows = sum(rows.rows for rows in written.rows)
    state.cold.segments[number] = Held(written.segment, live_rows)
    return written.segment, written.data


def _filtered(table: pa.Table, incarnations: list[int]) -> pa.Table:
    return table.filter(pc.is_in(table["incarnation"], value_set=pa.array(incarnations, pa.int64())))


# -- Checking and restoring -------------------------------------------------------------------------------------------


class Checked(NamedTuple):
    """A backup that is whole."""

    manifest: Manifest
    state: State


def verify(source: Store, progress: Progress) -> Checked:
    """Read every object of a backup and compare it with what was written; check that the state names nothing else."""
    manifest = _manifest(source)
    for done, copied in enumerate(manifest.objects):
        progress("checking", done, len(manifest.objects))
        _read(source, copied)
    state = _read_state(source, manifest)
    have = {copied.key for copied in manifest.objects}
    need = {f"snapshots/{blob}" for blob in _blobs_of(state)}
    need |= {f"lake/{_key(held.segment)}" for held in state.cold.segments.values()}
    if missing := sorted(need - have):
        raise BackupFailed(f"The backup in {source.url} lacks {missing[0]} and {len(missing) - 1} more.")
    return Checked(manifest, state)


def restore_into(source: Store, data: Path, lake: Store, progress: Progress) -> Manifest:
    """Make a data directory and a lake of a backup; neither may hold anything yet."""
    if data.exists() and any(data.iterdir()):
        raise BackupFailed(f"The directory {data} is not empty; name a new one.")
    if next(iter(lake.items("")), None) is not None:
        raise BackupFailed(f"The lake at {lake.url} is not empty; name a new one.")
    manifest, state = verify(source, progress)
    disk, total = RealDisk(), len(manifest.objects)
    claim(lake, manifest.log_id)
    for folder in ("journal", "images", "snapshots"):
        make_directory(data / folder)
    for done, copied in enumerate(manifest.objects):
        progress("restoring", done, total)
        kind, _, name = copied.key.partition("/")
        if kind == "lake":
            lake.create(name, _read(source, copied))
        elif kind == "snapshots":
            file = disk.create(data / kind / name)
            file.write([_read(source, copied)], 0)
            file.sync()
            file.close()
    ours = identity.make(data / "journal", disk, manifest.log_id)
    writer = ImageFiles(data / "images", disk, manifest.log_id).begin(manifest.position)
    for piece in image_of(state):
        writer.write([piece])
    writer.finish()
    # An empty segment that begins above the image: positions go on from there.
    path = data / "journal" / segments.name_of(manifest.position + 1)
    file = disk.create(path, segments.FIRST_FRAME)
    segments.write_header(file, manifest.log_id, ours.seed, manifest.position + 1)
    file.close()
    progress("restored", total, total)
    return manifest


def _manifest(source: Store) -> Manifest:
    try:
        manifest = msgspec.json.decode(source.read(MANIFEST), type=Manifest)
    except KeyMissing as error:
        raise BackupFailed(f"There is no finished backup in {source.url}.") from error
    except msgspec.DecodeError as error:
        raise BackupFailed(f"{MANIFEST} in {source.url} is damaged: {error}.") from error
    if manifest.version != VERSION:
        raise BackupFailed(f"The backup has version {manifest.version}; this version reads {VERSION}.")
    return manifest


def _read(source: Store, copied: Copied) -> bytes:
    try:
        content = source.read(copied.key)
    except KeyMissing as error:
        raise BackupFailed(f"The backup in {source.url} lacks {copied.key}.") from error
    if len(content) != copied.size or hashlib.sha256(content).hexdigest() != copied.sha256:
        raise BackupFailed(f"{copied.key} in {source.url} is damaged: its checksum does not fit.")
    return content


def _read_state(source: Store, manifest: Manifest) -> State:
    def pieces() -> Iterator[bytes]:
        for copied in manifest.objects:
            if copied.key.startswith("image/"):
                part, at = _read(source, copied), 0
                while at < len(part):
                    size = int.from_bytes(part[at : at + 8], "little")
                    yield part[at + 8 : at + 8 + size]
                    at += 8 + size

    try:
        return restore(pieces())
    except (ImageDamaged, ValueError, AssertionError) as error:
        raise BackupFailed(f"The state in {source.url} cannot be understood: {error}.") from error
