"""The restore drill: a server made of a backup is the old one, byte for byte, and goes on where it was."""

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.backup import backups
from headwater.backup.backups import BackupFailed
from headwater.storage.folder import FolderStore
from headwater.streams.images import image_of
from headwater.testing import RunningServer, running_server

from ..http.sockets import Wire

TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
PRODUCER = {"Producer-Id": "p", "Producer-Epoch": "0"}
FACTS = ("stream-incarnation", "stream-next-offset", "stream-closed", "stream-snapshot-offset", "stream-ttl", "etag")
PATHS = [f"/{bucket}/{name}" for bucket in ("team", "other") for name in ("text", "json", "trimmed", "fork", "closed")]


def no_progress(what: str, done: int, total: int) -> None:
    pass


def fill(wire: Wire) -> None:
    """Streams of every kind, some of whose bytes are in the lake and some not."""
    for bucket in ("team", "other"):
        assert wire.ask("PUT", f"/{bucket}").status == 201
        wire.ask("PUT", f"/{bucket}/text", {**TEXT, "Stream-TTL": "3600"}, b"cold ")
        wire.ask("PUT", f"/{bucket}/json", JSON)
        wire.ask("POST", f"/{bucket}/json", {**JSON, **PRODUCER, "Producer-Seq": "0"}, b'[1, {"a": 2}]')
        wire.ask("PUT", f"/{bucket}/trimmed", TEXT, b"old and ")
        wire.ask("POST", f"/{bucket}/trimmed", TEXT, b"new")
        wire.ask("PUT", f"/{bucket}/trimmed/snapshot/{8:020}", TEXT, b"snapshot of " + bucket.encode())
        wire.ask("PUT", f"/{bucket}/fork", {"Stream-Forked-From": f"/{bucket}/text"})
        wire.ask("PUT", f"/{bucket}/closed", TEXT, b"closed for good")
        wire.ask("POST", f"/{bucket}/closed", {"Stream-Closed": "true"})
    wire.ask("PUT", "/other/gone", TEXT, b"gone")
    assert wire.ask("POST", "/__headwater/flush").status == 200
    wire.ask("DELETE", "/other/gone")
    for bucket in ("team", "other"):
        wire.ask("POST", f"/{bucket}/text", TEXT, b"and hot")
        wire.ask("POST", f"/{bucket}/json", {**JSON, **PRODUCER, "Producer-Seq": "1"}, b"[3]")


def look(url: str, paths: list[str]) -> dict[str, object]:
    """All there is to see of some streams."""
    seen: dict[str, object] = {}
    with Wire(url) as wire:
        for path in paths:
            head = wire.ask("HEAD", path).headers
            seen[path] = [head.get(name) for name in FACTS]
            parts = wire.ask("GET", f"{path}/bootstrap")
            boundary = parts.headers["content-type"].rpartition("=")[2].encode()
            seen[f"{path} bootstrap bytes"] = parts.body.replace(boundary, b"")
            page = wire.ask("GET", f"{path}?offset={head.get('stream-snapshot-offset') or -1}")
            seen[f"{path} bytes"] = page.status, page.body
    return seen


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def server(data: Path) -> Iterator[RunningServer]:
    with running_server(data=data) as server:
        with Wire(server.url) as wire:
            fill(wire)
        yield server


def bodies(seen: dict[str, object]) -> dict[str, object]:
    return {path: value for path, value in seen.items() if path.endswith("bytes")}


def test_a_server_made_of_a_backup_is_the_old_one_and_goes_on_above_it(
    server: RunningServer, data: Path, tmp_path: Path
) -> None:
    place, again = FolderStore(tmp_path / "backup"), tmp_path / "again"
    manifest = backups.create(data, FolderStore(data / "lake"), place, None, no_progress)
    before = look(server.url, PATHS)
    backups.restore_into(place, again, FolderStore(again / "lake"), no_progress)
    with running_server(data=again) as restored, Wire(restored.url) as wire:
        after = look(restored.url, PATHS)
        assert after == before
        repeated = wire.ask("POST", "/team/json", {**JSON, **PRODUCER, "Producer-Seq": "1"}, b"[3]")
        assert (repeated.status, repeated.headers["producer-seq"]) == (204, "1")
        assert wire.ask("GET", "/team/trimmed?offset=-1").status == 410
        made = wire.ask("PUT", "/team/new", TEXT)
        assert int(made.headers["stream-incarnation"].rpartition("-")[2]) > manifest.position
        assert json.loads(wire.ask("GET", "/team/streams").body)["stream_count"] == 6


def test_a_backup_of_a_bucket_holds_that_bucket_and_no_row_of_another(
    server: RunningServer, data: Path, tmp_path: Path
) -> None:
    place, again = FolderStore(tmp_path / "backup"), tmp_path / "again"
    backups.create(data, FolderStore(data / "lake"), place, "team", no_progress)
    assert not [path for path in (tmp_path / "backup").rglob("*") if path.is_file() and b"other" in path.read_bytes()]
    before = look(server.url, PATHS[:5])
    backups.restore_into(place, again, FolderStore(again / "lake"), no_progress)
    with running_server(data=again) as restored, Wire(restored.url) as wire:
        assert bodies(look(restored.url, PATHS[:5])) == bodies(before)
        assert wire.ask("GET", "/other/text").status == 404
        assert wire.ask("POST", "/__headwater/flush").status == 200
        assert bodies(look(restored.url, PATHS[:5])) == bodies(before)


def test_a_backup_of_a_busy_server_is_exact_as_of_one_position(data: Path, tmp_path: Path) -> None:
    flags = ("--flush-bytes-max", "2000", "--lake-grace-seconds", "0.01", "--image-log-bytes", "5000")
    with running_server(*flags, "--segment-bytes", "65536", data=data) as server:
        with Wire(server.url) as wire:
            wire.ask("PUT", "/v1/stream/count", TEXT)
        ended = threading.Event()
        thread = threading.Thread(target=_write, args=(server.url, ended))
        thread.start()
        try:
            for number in range(3):
                place = FolderStore(tmp_path / f"backup{number}")
                manifest = backups.create(data, FolderStore(data / "lake"), place, None, no_progress)
                checked = backups.verify(place, no_progress)
                assert checked.state.position == manifest.position
                again = tmp_path / f"again{number}"
                backups.restore_into(place, again, FolderStore(again / "lake"), no_progress)
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


@pytest.mark.parametrize("kind", ["image", "lake", "snapshots", "backup.json"])
def test_a_damaged_backup_is_found_out_and_not_restored(
    kind: str, server: RunningServer, data: Path, tmp_path: Path
) -> None:
    backups.create(data, FolderStore(data / "lake"), FolderStore(tmp_path / "backup"), None, no_progress)
    victim = next(path for path in sorted((tmp_path / "backup").rglob("*")) if path.is_file() and kind in str(path))
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    with pytest.raises(BackupFailed):
        backups.verify(FolderStore(tmp_path / "backup"), no_progress)
    with pytest.raises(BackupFailed):
        backups.restore_into(
            FolderStore(tmp_path / "backup"), tmp_path / "again", FolderStore(tmp_path / "lake"), no_progress
        )
    assert not (tmp_path / "again").exists()


def test_the_state_of_a_backup_is_that_of_the_server_when_it_stops(data: Path, tmp_path: Path) -> None:
    with running_server(data=data) as server, Wire(server.url) as wire:
        fill(wire)
    place = FolderStore(tmp_path / "backup")
    backups.create(data, FolderStore(data / "lake"), place, None, no_progress)
    assert image_of(backups.verify(place, no_progress).state) == image_of(backups._state_of(data))


def test_the_command_line_copies_checks_and_restores(server: RunningServer, data: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headwater", "backup", *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    place, again = str(tmp_path / "backup"), str(tmp_path / "again")
    made = run("create", place, "--data", str(data), "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["streams"] == 10
    assert run("verify", place).returncode == 0
    assert run("create", place, "--data", str(data)).stderr.startswith("Error: There is a backup in")
    assert run("restore", place, "--data", again).returncode == 0
    assert "not empty" in run("restore", place, "--data", again).stderr
    shutil.rmtree(tmp_path / "backup" / "image")
    failed = run("verify", place)
    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
    assert run("verify").returncode == 2
