"""The parts of a backup and their verification: its manifest, its objects and the image of its state.

backup.json        the manifest, written last: every object with its SHA-256
image/<n>          the state: the pieces of an image, each preceded by its length in 8 bytes
snapshots/<id>     snapshot blobs
lake/...           segments, under the keys that they have in the lake
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from headwater.lake.format import parse_segment_key
from headwater.storage.store import KeyExists, KeyMissing, Store
from headwater.streams.images import image_of, restore
from headwater.streams.state import State

VERSION = 2
MANIFEST = "backup.json"
IMAGE = "image/"
SNAPSHOTS = "snapshots/"
LAKE = "lake/"
PART_BYTES = 64 * 1024 * 1024
"""Approximately how much of the image one object holds."""
LENGTH_BYTES = 8

Progress = Callable[[str, int, int], None]
"""Called with what is being copied, the number of objects done, and their total."""


class BackupFailed(Exception):
    """No backup was created, verified or restored; the message is one sentence for a person."""


class CopiedObject(msgspec.Struct, frozen=True):
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
    objects: list[CopiedObject]


class _Versioned(msgspec.Struct, frozen=True):
    """What manifests of all versions have in common."""

    version: int


def write_manifest(target: Store, state: State, bucket: str | None, objects: list[CopiedObject]) -> Manifest:
    """Store the manifest, which completes a backup."""
    manifest = Manifest(VERSION, state.log_id, state.position, state.now, bucket, len(state.streams), objects)
    target.create(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
    return manifest


def read_manifest(source: Store) -> Manifest:
    """The manifest of a complete backup."""
    try:
        content = source.read(MANIFEST)
        version = msgspec.json.decode(content, type=_Versioned).version
        if version != VERSION:
            raise BackupFailed(f"The backup has version {version}; this version of Headwater reads version {VERSION}.")
        return msgspec.json.decode(content, type=Manifest)
    except KeyMissing as error:
        raise BackupFailed(f"There is no complete backup in {source.url}.") from error
    except ValueError as error:
        raise BackupFailed(f"{MANIFEST} in {source.url} is damaged: {error}.") from error


def put_object(target: Store, key: str, content: bytes) -> CopiedObject:
    """Copy an object into a backup that is not complete yet."""
    try:
        target.create(key, content)
    except KeyExists:
        # An attempt that was interrupted left it; without a manifest nothing refers to it.
        target.delete(key)
        target.create(key, content)
    return CopiedObject(key, len(content), hashlib.sha256(content).hexdigest())


def read_object(source: Store, copied: CopiedObject) -> bytes:
    """An object of a backup, checked against the manifest."""
    try:
        content = source.read(copied.key)
    except KeyMissing as error:
        raise BackupFailed(f"{copied.key} is missing from the backup in {source.url}.") from error
    if len(content) != copied.size or hashlib.sha256(content).hexdigest() != copied.sha256:
        raise BackupFailed(f"{copied.key} in {source.url} is damaged: its checksum does not match.")
    return content


def put_state(target: Store, state: State) -> list[CopiedObject]:
    """Copy the image of a state into a backup."""
    return [put_object(target, image_key(number), part) for number, part in enumerate(_image_parts(state))]


def read_state(source: Store, manifest: Manifest) -> State:
    """The state in a backup, as the manifest describes it."""
    try:
        state = restore(_image_pieces(source, manifest))
    except ValueError as error:
        raise BackupFailed(f"The state in {source.url} cannot be decoded: {error}.") from error
    for fact, expected, found in (
        ("log", manifest.log_id, state.log_id),
        ("position", manifest.position, state.position),
        ("number of streams", manifest.streams, len(state.streams)),
    ):
        if found != expected:
            raise BackupFailed(f"The state in {source.url} has {fact} {found}; {MANIFEST} says {expected}.")
    return state


def image_key(number: int) -> str:
    """The key of one part of the image.

    >>> image_key(7)
    'image/00007'
    """
    return f"{IMAGE}{number:05}"


def blobs_of(state: State) -> list[str]:
    """The snapshot blobs that a state refers to."""
    found: dict[str, None] = {}
    for stream in state.streams.values():
        if stream.snapshot is not None:
            found[stream.snapshot.blob] = None
        found |= {hold.blob: None for hold in (stream.pins or {}).values() if hold.blob is not None}
    return list(found)


def _image_parts(state: State) -> Iterator[bytes]:
    part = bytearray()
    for piece in image_of(state):
        part += len(piece).to_bytes(LENGTH_BYTES, "little") + piece
        if len(part) >= PART_BYTES:
            yield bytes(part)
            part.clear()
    yield bytes(part)


def _image_pieces(source: Store, manifest: Manifest) -> Iterator[bytes]:
    parts = [copied for copied in manifest.objects if copied.key.startswith(IMAGE)]
    if not parts or [copied.key for copied in parts] != [image_key(number) for number in range(len(parts))]:
        raise ValueError("parts of its image are missing")
    for copied in parts:
        part, at = read_object(source, copied), 0
        while at < len(part):
            start = at + LENGTH_BYTES
            at = start + int.from_bytes(part[at:start], "little")
            if at > len(part):
                raise ValueError(f"{copied.key} ends within a piece")
            yield part[start:at]


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
