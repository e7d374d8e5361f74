"""The restore drill: a restored server equals the old one, byte for byte, and continues where it stopped."""

import json
from pathlib import Path

import pytest

from headwater.backup.create import create_backup
from headwater.backup.manifest import BackupFailed
from headwater.backup.restore import restore_backup
from headwater.storage.folder import FolderStore
from headwater.testing import RunningServer, running_server

from ..http.sockets import Wire
from .servers import JSON, PATHS, PRODUCER, TEXT, no_progress, observe, origin


def test_a_restored_server_is_the_old_one_and_continues_above_it(
    server: RunningServer, data: Path, tmp_path: Path
) -> None:
    place, again = FolderStore(tmp_path / "backup"), tmp_path / "again"
    manifest = create_backup(origin(data), place, no_progress)
    before = observe(server.url, PATHS)
    restore_backup(place, again, FolderStore(again / "lake"), no_progress)
    with running_server(data=again) as restored, Wire(restored.url) as wire:
        after = observe(restored.url, PATHS)
        assert after == before
        repeated = wire.ask("POST", "/team/json", {**JSON, **PRODUCER, "Producer-Seq": "1"}, b"[3]")
        assert (repeated.status, repeated.headers["producer-seq"]) == (204, "1")
        assert wire.ask("GET", "/team/trimmed?offset=-1").status == 410
        made = wire.ask("PUT", "/team/new", TEXT)
        assert int(made.headers["stream-incarnation"].rpartition("-")[2]) > manifest.position
        assert json.loads(wire.ask("GET", "/team/streams").body)["stream_count"] == 6


def test_a_backup_is_restored_only_where_nothing_is(tmp_path: Path) -> None:
    place, used = FolderStore(tmp_path / "backup"), FolderStore(tmp_path / "used")
    used.create("object", b"data")
    with pytest.raises(BackupFailed, match=r"directory .* is not empty"):
        restore_backup(place, tmp_path / "used", FolderStore(tmp_path / "lake"), no_progress)
    with pytest.raises(BackupFailed, match=r"lake .* is not empty"):
        restore_backup(place, tmp_path / "again", used, no_progress)
