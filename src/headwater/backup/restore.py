"""Restore a backup into a new data directory and a new lake.

The journal's identity is written last: no server starts on a directory whose restore was interrupted.
"""

import secrets
from pathlib import Path
from typing import NamedTuple

from headwater.backup.manifest import LAKE, SNAPSHOTS, BackupFailed, Manifest, Progress, read_object, verify_backup
from headwater.lake.ownership import claim
from headwater.log.images.files import ImageFiles
from headwater.log.journal import files as journal_files
from headwater.log.journal import identity
from headwater.storage.disk import Disk, RealDisk, make_directory
from headwater.storage.store import Store
from headwater.streams.images import image_of
from headwater.streams.state import State

GENERATION_POSITIONS = 2**40
"""How far ahead a generation begins: four months of a hundred thousand commands a second, eight million times."""


class Restored(NamedTuple):
    """A backup, and the id of the log that continues it."""

    manifest: Manifest
    log_id: str


def restore_backup(source: Store, data: Path, lake: Store, progress: Progress) -> Restored:
    """Restore a data directory and a lake from a backup; both must be empty or missing."""
    if data.exists() and any(data.iterdir()):
        raise BackupFailed(f"The directory {data} is not empty; choose a new one.")
    if next(iter(lake.items("")), None) is not None:
        raise BackupFailed(f"The lake at {lake.url} is not empty; choose a new one.")
    manifest, state = verify_backup(source, progress)
    begin_generation(state)
    disk, total = RealDisk(), len(manifest.objects)
    claim(lake, state.log_id)
    for folder in ("journal", "images", "snapshots"):
        make_directory(data / folder)
    for done, copied in enumerate(manifest.objects):
        progress("restoring", done, total)
        if copied.key.startswith(LAKE):
            lake.create(copied.key.removeprefix(LAKE), read_object(source, copied))
        elif copied.key.startswith(SNAPSHOTS):
            _write_file(disk, data / copied.key, read_object(source, copied))
    _write_state(disk, data, state)
    progress("restored", total, total)
    return Restored(manifest, state.log_id)


def _write_file(disk: Disk, path: Path, content: bytes) -> None:
    file = disk.create(path)
    file.write([content], 0)
    file.sync()
    file.close()


def _write_state(disk: Disk, data: Path, state: State) -> None:
    """An image of the state, and an empty journal file that begins above it: new positions continue from there."""
    ours = identity.new(state.log_id)
    image = ImageFiles(data / "images", disk, state.log_id).begin(state.position, b"")
    for piece in image_of(state):
        image.write([piece])
    image.finish()
    first = state.position + 1
    file = disk.create(data / "journal" / journal_files.name_of(first), journal_files.FIRST_FRAME)
    journal_files.write_header(file, state.log_id, ours.seed, first)
    file.close()
    identity.save(ours, data / "journal", disk)


def begin_generation(state: State) -> None:
    """Turn the state of a backup into the beginning of a new log.

    Nothing that the old log said after the backup can be mistaken for the new one's. The old server may have gone on,
    and one backup may be restored twice. So a generation has a random id of its own, which every printed incarnation,
    entity tag and event id carries, and begins far above every position that the old log can have reached. Incarnations
    of streams in the backup keep their numbers, because segments name them.
    """
    state.log_id = secrets.token_hex(8)
    state.position += GENERATION_POSITIONS
    # A consumer's position is a promise about rows of the old log; what it read there may differ from what is here.
    state.cold.consumers.clear()
