"""The restore drill: a restored server has every byte of the old one, and is a new generation of it."""

import json
from pathlib import Path

import pytest

from headwater.backup.create import create_backup
from headwater.backup.manifest import BackupFailed
from headwater.backup.restore import GENERATION_POSITIONS, restore_backup
from headwater.lake.catalog import read_catalog
from headwater.lake.ownership import OWNER_KEY
from headwater.log.journal import identity
from headwater.storage.folder import FolderStore
from headwater.testing import RunningServer, running_server
from headwater.testing.servers import ServerNotStarted

from ..http.sockets import Wire
from .servers import JSON, PATHS, PRODUCER, TEXT, no_progress, observe, origin


def restored_to(data: Path, place: FolderStore) -> Path:
    restore_backup(place, data, FolderStore(data / "lake"), no_progress)
    return data


def lake_log_of(data: Path) -> tuple[str, str]:
    """The logs that the lake's owner file and its newest catalog name."""
    lake = FolderStore(data / "lake")
    catalog = read_catalog(lake)
    assert catalog is not None
    owner: str = json.loads(lake.read(OWNER_KEY))["log_id"]
    return owner, catalog.log_id


def test_a_restored_server_has_every_byte_and_continues_above_the_old_one(
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
        assert int(made.headers["stream-incarnation"].rpartition("-")[2]) > manifest.position + GENERATION_POSITIONS
        assert json.loads(wire.ask("GET", "/team/streams").body)["stream_count"] == 6


def test_a_stream_of_after_the_backup_is_not_taken_for_another_of_its_name(
    server: RunningServer, data: Path, tmp_path: Path
) -> None:
    place = FolderStore(tmp_path / "backup")
    create_backup(origin(data), place, no_progress)
    with Wire(server.url) as wire:
        lost = wire.ask("PUT", "/team/late", TEXT, b"lost").headers["stream-incarnation"]
    with running_server(data=restored_to(tmp_path / "again", place)) as restored, Wire(restored.url) as wire:
        made = wire.ask("PUT", "/team/late", TEXT, b"another").headers["stream-incarnation"]
        assert made != lost
        read = wire.ask("GET", "/team/late?offset=-1", {"Stream-Incarnation": lost})
        assert (read.status, read.problem["code"]) == (410, "incarnation_changed")


def test_everything_that_was_printed_before_a_restore_is_stale_after_it(
    server: RunningServer, data: Path, tmp_path: Path
) -> None:
    place = FolderStore(tmp_path / "backup")
    create_backup(origin(data), place, no_progress)
    with Wire(server.url) as wire:
        head = wire.ask("HEAD", "/team/json").headers
        page = wire.ask("GET", "/team/json?offset=-1").headers
    offset, printed = head["stream-next-offset"], head["stream-incarnation"]
    with running_server(data=restored_to(tmp_path / "again", place)) as restored, Wire(restored.url) as wire:
        for target, headers in (
            (f"?offset={offset}&incarnation={printed}", {}),
            (f"?offset={offset}", {"Stream-Incarnation": printed}),
            ("?offset=-1&live=sse", {"Last-Event-ID": f"{offset}/{printed}"}),
        ):
            stale = wire.ask("GET", f"/team/json{target}", headers)
            assert (stale.status, stale.problem["code"]) == (410, "incarnation_changed"), target
        assert wire.ask("GET", "/team/json?offset=-1", {"If-None-Match": page["etag"]}).status == 200
        assert wire.ask("POST", "/team/json", {**JSON, "If-Match": head["etag"]}, b"[4]").status == 412


def test_two_restores_of_one_backup_are_strangers(server: RunningServer, data: Path, tmp_path: Path) -> None:
    place = FolderStore(tmp_path / "backup")
    create_backup(origin(data), place, no_progress)
    printed = []
    for name in ("one", "two"):
        folder = restored_to(tmp_path / name, place)
        with running_server(data=folder) as restored, Wire(restored.url) as wire:
            wire.ask("PUT", "/team/new", TEXT, name.encode())
            printed.append(wire.ask("HEAD", "/team/new").headers["etag"])
            assert wire.ask("POST", "/__headwater/flush").status == 200
            log_id = json.loads(wire.ask("GET", "/__headwater/status").body)["log_id"]
        assert lake_log_of(folder) == (log_id, log_id)
    assert printed[0] != printed[1]


def test_a_restored_lake_keeps_nothing_for_the_consumers_of_the_old_one(
    server: RunningServer, data: Path, tmp_path: Path
) -> None:
    place = FolderStore(tmp_path / "backup")
    with Wire(server.url) as wire:
        assert wire.ask("PUT", "/__headwater/consumers/job", JSON, b'{"positions": {"0": 3}}').status == 204
        create_backup(origin(data), place, no_progress)
    with running_server(data=restored_to(tmp_path / "again", place)) as restored, Wire(restored.url) as wire:
        assert json.loads(wire.ask("GET", "/__headwater/consumers").body) == {"consumers": []}


def test_a_restore_that_was_interrupted_leaves_nothing_that_a_server_starts_on(
    server: RunningServer, data: Path, tmp_path: Path
) -> None:
    place, again = FolderStore(tmp_path / "backup"), tmp_path / "again"
    create_backup(origin(data), place, no_progress)
    restored_to(again, place)
    (again / "journal" / identity.NAME).unlink()  # It is written last.
    with pytest.raises(ServerNotStarted, match=r"identity.json is missing"), running_server(data=again):
        pass


def test_a_backup_is_restored_only_where_nothing_is(tmp_path: Path) -> None:
    place, used = FolderStore(tmp_path / "backup"), FolderStore(tmp_path / "used")
    used.create("object", b"data")
    with pytest.raises(BackupFailed, match=r"directory .* is not empty"):
        restore_backup(place, tmp_path / "used", FolderStore(tmp_path / "lake"), no_progress)
    with pytest.raises(BackupFailed, match=r"lake .* is not empty"):
        restore_backup(place, tmp_path / "again", used, no_progress)
