"""The data directory: locked by one server at a time, recovered from an image and the log after it."""

import fcntl
import gc
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from headwater.log.images.files import ImageFiles
from headwater.log.images.restoring import newest_good_image
from headwater.log.journal.files import JournalDamaged
from headwater.log.journal.journal import Journal
from headwater.log.journal.writer import JournalWriter, end_process
from headwater.log.seam import CommandLog
from headwater.log.workers.shared_journal import HistoryDropped, SharedJournal
from headwater.storage.blobs import FolderBlobs
from headwater.storage.disk import Disk, RealDisk, make_directory
from headwater.streams.apply import apply
from headwater.streams.state import State

OpenJournal = Callable[[Path, Disk, int, Callable[[BaseException], None]], Journal]
"""Opens the journal in a directory: on this disk, with files of this size, ending the process by this call."""

log = logging.getLogger(__name__)


FOLLOW_TRIES = 10
"""How often a newer image is tried where the files behind one were removed while they were read."""


class DirectoryInUse(Exception):
    """Another server uses the directory; the message says which."""


class Recovered(NamedTuple):
    """The contents of a data directory, ready to serve."""

    state: State
    journal: Journal
    images: ImageFiles
    blobs: FolderBlobs


class Followed(NamedTuple):
    """The contents of a data directory that several processes serve."""

    state: State
    journal: SharedJournal
    images: ImageFiles
    blobs: FolderBlobs


def lock(directory: Path, holder: int | None = None) -> int:
    """Lock the directory for this process, or raise DirectoryInUse; the lock lasts until the descriptor is closed.

    `holder` is the process that others are told to stop: this one, unless another one started it.
    """
    make_directory(directory)
    fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        name = os.pread(fd, 100, 0).decode(errors="replace").strip() or "another process"
        os.close(fd)
        raise DirectoryInUse(
            f"The data directory {directory} is held by {name}; stop it or use another directory."
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"process {holder or os.getpid()}\n".encode(), 0)
    return fd


def recover(
    directory: Path,
    journal_file_bytes: int,
    disk: Disk | None = None,
    on_failure: Callable[[BaseException], None] = end_process,
    *,
    open_journal: OpenJournal = Journal,
) -> Recovered:
    """The state as of the last durable command: the newest good image, then the log after it."""
    disk = disk or RealDisk()
    journal = open_journal(directory / "journal", disk, journal_file_bytes, on_failure)
    images = ImageFiles(directory / "images", disk, journal.log_id)
    positions = images.positions()
    state, image_position = _restore(images, journal)
    _check_complete(directory, state, positions)
    for position in positions:
        if position > image_position:
            images.set_aside(position)
    return Recovered(state, journal, images, FolderBlobs(directory / "snapshots", disk))


def open_for_sequencer(
    directory: Path,
    journal_file_bytes: int,
    disk: Disk | None = None,
    on_failure: Callable[[BaseException], None] = end_process,
) -> JournalWriter:
    """The journal of a locked directory, ready to be appended to, without its state; no other process uses it yet."""
    disk = disk or RealDisk()
    journal = JournalWriter(directory / "journal", disk, journal_file_bytes, on_failure)
    images = ImageFiles(directory / "images", disk, journal.log_id)
    journal.find_end(max(images.positions(), default=0))
    return journal


def follow(directory: Path, open_log: Callable[[Path, Disk], SharedJournal], disk: Disk | None = None) -> Followed:
    """The state of a directory whose journal a sequencer appends to, up to where the sequencer sends the rest."""
    disk = disk or RealDisk()
    for _ in range(FOLLOW_TRIES):
        journal = open_log(directory / "journal", disk)
        images = ImageFiles(directory / "images", disk, journal.log_id, shared=True)
        positions = images.positions()
        try:
            state, image_position = _restore(images, journal)
        except HistoryDropped as error:
            log.info("starting from a newer image: %s", error)
            journal.abandon()
            continue
        _check_complete(directory, state, positions)
        for position in positions:
            # Another process may set it aside, too, or have deleted it because there are newer ones.
            if position > image_position:
                with suppress(FileNotFoundError):
                    images.set_aside(position)
        return Followed(state, journal, images, FolderBlobs(directory / "snapshots", disk))
    raise JournalDamaged(f"The journal in {directory} has no image from which it can be read; restore it from a copy.")


def _restore(images: ImageFiles, journal: CommandLog) -> tuple[State, int]:
    """The state, and the position of the image that it began with."""
    started = time.monotonic()
    collecting = gc.isenabled()
    gc.disable()
    try:
        image = newest_good_image(images)
        state = State(journal.log_id) if image is None else image.state
        image_position = state.position
        for batch in journal.replay(after=state.position):
            apply(state, batch)
    finally:
        if collecting:
            gc.enable()
    if state.position:
        log.info(
            "recovered %d streams at position %d (image at %d) in %.1f s",
            len(state.streams),
            state.position,
            image_position,
            time.monotonic() - started,
        )
    return state, image_position


def _check_complete(directory: Path, state: State, image_positions: list[int]) -> None:
    """Refuse a log that ends before an image: even a damaged image proves by its name how far the log went."""
    newest = max(image_positions, default=0)
    if state.position < newest:
        raise JournalDamaged(
            f"The journal in {directory} ends at position {state.position}, but an image covers position {newest};"
            " restore the journal from a copy."
        )
