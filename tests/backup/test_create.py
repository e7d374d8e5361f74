"""Backups of servers that are busy, stopped, or missing, and of attempts that were interrupted."""

import threading
from pathlib import Path

import pytest

from headwater.backup.create import create_backup, state_of
from headwater.backup.manifest import MANIFEST, BackupFailed, verify_backup
from headwater.backup.restore import restore_backup
from headwater.storage.folder import FolderStore
from headwater.storage.store import StoreFailed
from headwater.streams.images import image_of
from headwater.testing import RunningServer, running_server

from ..doubles.faulty_store import FaultyStore
from ..http.sockets import Wire
from .servers import TEXT, fill, no_progress, origin


def test_a_backup_of_a_busy_server_is_exact_as_of_one_position(data: Path, tmp_path: Path) -> None:
    flags = ("--flush-bytes-max", "2000", "--lake-history-seconds", "0.01", "--image-log-bytes", "5000")
    with running_server(*flags, "--journal-file-bytes", "65536", data=data) as server:
        with Wire(server.url) as wire:
            wire.ask("PUT", "/v1/stream/count", TEXT)
        ended = threading.Event()
        thread = threading.Thread(target=_write, args=(server.url, ended))
        thread.start()
        try:
            for number in range(3):
                place = FolderStore(tmp_path / f"backup{number}")
                manifest = create_backup(origin(data), place, no_progress)
                verified = verify_backup(place, no_progress)
                assert verified.state.position == manifest.position
                again = tmp_path / f"again{number}"
                restore_backup(place, again, FolderStore(again / "lake"), no_progress)
                with running_server(data=again) as restored, Wire(restored.url) as wire:
                    counts = wire.ask("GET", "/v1/stream/count").body.split()
                    assert counts == [b"%d" % value for value in range(len(counts))]
            assert counts, "nothing was ever written before a backup"
        finally:
            ended.set()
            thread.join()


def _write(url: str, ended: threading.Event) -> None:
    with Wire(url) as wire:
        value = 0
        while not ended.is_set():
            wire.ask("POST", "/v1/stream/count", TEXT, b"%d " % value)
            value += 1


def test_the_state_of_a_backup_is_that_of_the_server_when_it_stops(data: Path, tmp_path: Path) -> None:
    with running_server(data=data) as server, Wire(server.url) as wire:
        fill(wire)
    place = FolderStore(tmp_path / "backup")
    create_backup(origin(data), place, no_progress)
    assert image_of(verify_backup(place, no_progress).state) == image_of(state_of(data))


def test_a_backup_that_was_interrupted_can_be_created_again(server: RunningServer, data: Path, tmp_path: Path) -> None:
    place = FaultyStore(FolderStore(tmp_path / "backup"))
    place.fail_next("create", in_key=MANIFEST)
    with pytest.raises(StoreFailed):
        create_backup(origin(data), place, no_progress)
    with Wire(server.url) as wire:
        wire.ask("POST", "/team/text", TEXT, b"more")
    manifest = create_backup(origin(data), place, no_progress)
    assert verify_backup(place, no_progress).state.position == manifest.position


def test_a_complete_backup_is_not_replaced(server: RunningServer, data: Path, tmp_path: Path) -> None:
    place = FolderStore(tmp_path / "backup")
    create_backup(origin(data), place, no_progress)
    with pytest.raises(BackupFailed, match="already contains a backup"):
        create_backup(origin(data), place, no_progress)


def test_a_folder_without_a_journal_has_no_backup(tmp_path: Path) -> None:
    with pytest.raises(BackupFailed, match="is not a server's data directory"):
        create_backup(origin(tmp_path), FolderStore(tmp_path / "backup"), no_progress)
