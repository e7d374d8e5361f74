"""A server whose lake is on S3 is backed up to S3 and restored from there."""

from pathlib import Path

from headwater.backup.create import Origin, create_backup
from headwater.backup.restore import restore_backup
from headwater.storage.opening import open_store
from headwater.testing import running_server

from ..http.sockets import Wire
from .servers import TEXT, no_progress


def test_a_server_with_its_lake_on_s3_is_copied_to_s3_and_restored(s3_url: str, tmp_path: Path) -> None:
    lake, place, again = (f"{s3_url}/{name}" for name in ("lake", "backup", "again"))
    with running_server("--lake", lake, data=tmp_path / "data") as server, Wire(server.url) as wire:
        wire.ask("PUT", "/v1/stream/s", TEXT, b"cold ")
        assert wire.ask("POST", "/__headwater/flush").status == 200
        wire.ask("POST", "/v1/stream/s", TEXT, b"and hot")
        create_backup(Origin(tmp_path / "data", open_store(lake)), open_store(place), no_progress)
    restore_backup(open_store(place), tmp_path / "restored", open_store(again), no_progress)
    with running_server("--lake", again, data=tmp_path / "restored") as server, Wire(server.url) as wire:
        assert wire.ask("GET", "/v1/stream/s").body == b"cold and hot"
