"""A backup of one bucket."""

from pathlib import Path

import pytest

from headwater.backup.create import create_backup
from headwater.backup.manifest import BackupFailed
from headwater.backup.restore import restore_backup
from headwater.storage.folder import FolderStore
from headwater.testing import RunningServer, running_server

from ..http.sockets import Wire
from .servers import JSON, PATHS, PRODUCER, bodies, no_progress, observe, origin


def test_a_backup_of_a_bucket_holds_that_bucket_and_no_row_of_another(
    server: RunningServer, data: Path, tmp_path: Path
) -> None:
    place, again = FolderStore(tmp_path / "backup"), tmp_path / "again"
    create_backup(origin(data, "team"), place, no_progress)
    assert not [path for path in (tmp_path / "backup").rglob("*") if path.is_file() and b"other" in path.read_bytes()]
    before = observe(server.url, PATHS[:5])
    restore_backup(place, again, FolderStore(again / "lake"), no_progress)
    with running_server(data=again) as restored, Wire(restored.url) as wire:
        assert bodies(observe(restored.url, PATHS[:5])) == bodies(before)
        assert wire.ask("GET", "/other/text").status == 404
        assert wire.ask("POST", "/__headwater/flush").status == 200
        assert bodies(observe(restored.url, PATHS[:5])) == bodies(before)


@pytest.mark.usefixtures("server")
def test_the_backups_of_two_buckets_have_no_segment_in_common(data: Path, tmp_path: Path) -> None:
    keys = []
    for bucket in ("team", "other"):
        manifest = create_backup(origin(data, bucket), FolderStore(tmp_path / bucket), no_progress)
        keys.append({copied.key for copied in manifest.objects if "/segments/" in copied.key})
    assert all(keys) and not keys[0] & keys[1]


@pytest.mark.usefixtures("server")
def test_a_bucket_that_does_not_exist_has_no_backup(data: Path, tmp_path: Path) -> None:
    with pytest.raises(BackupFailed, match="There is no bucket 'nothing'"):
        create_backup(origin(data, "nothing"), FolderStore(tmp_path / "backup"), no_progress)


def test_a_producer_that_has_finished_stays_fenced_off_in_the_backup_of_a_bucket(
    server: RunningServer, data: Path, tmp_path: Path
) -> None:
    place, again = FolderStore(tmp_path / "backup"), tmp_path / "again"
    with Wire(server.url) as wire:
        assert wire.ask("DELETE", "/__headwater/producers/p").status == 204
        assert wire.ask("DELETE", "/__headwater/producers/of-other").status == 204
    create_backup(origin(data, "team"), place, no_progress)
    assert not [path for path in (tmp_path / "backup").rglob("*") if path.is_file() and b"other" in path.read_bytes()]
    restore_backup(place, again, FolderStore(again / "lake"), no_progress)
    with running_server(data=again) as restored, Wire(restored.url) as wire:
        assert wire.ask("POST", "/team/json", {**JSON, **PRODUCER, "Producer-Seq": "2"}, b"[4]").status == 403
