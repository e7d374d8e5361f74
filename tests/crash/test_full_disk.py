"""A server on a real file system that is full."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.backup.create import Origin, create_backup
from headwater.backup.restore import restore_backup
from headwater.storage.folder import FolderStore
from headwater.testing import running_server

from ..http.sockets import Wire

TEXT = {"Content-Type": "text/plain"}
DISK_BYTES = 4 * 1024 * 1024
FILE_BYTES = 512 * 1024
DEADLINE_SECONDS = 90.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little space."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_full_disk_refuses_appends_and_recovers_after_one_delete(small_disk: Path, tmp_path: Path) -> None:
    data = small_disk / "data"
    flags = ("--journal-file-bytes", str(FILE_BYTES), "--image-log-bytes", "65536", "--lake", str(tmp_path / "lake"))
    never = ("--flush-bytes-max", "1GiB", "--flush-journal-bytes", "1GiB", "--flush-seconds", "3600")
    with running_server(*flags, *never, data=data) as server, Wire(server.url) as wire:
        for name in ("large", "small"):
            assert wire.ask("PUT", f"/v1/stream/{name}", TEXT).status == 201
        while (refused := wire.ask("POST", "/v1/stream/large", TEXT, b"x" * 20_000)).status == 204:
            pass
        assert (refused.status, "The disk is full" in refused.problem["detail"]) == (503, True)
        assert wire.ask("DELETE", "/v1/stream/large").status == 204
        until(lambda: wire.ask("POST", "/v1/stream/small", TEXT, b"there is room").status == 204)
    with running_server(*flags, data=data) as server, Wire(server.url) as wire:
        assert wire.ask("GET", "/v1/stream/large").status == 404
        assert b"there is room" in wire.ask("GET", "/v1/stream/small").body


def test_a_restored_server_refuses_appends_on_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    with running_server(data=tmp_path / "old") as server, Wire(server.url) as wire:
        assert wire.ask("PUT", "/v1/stream/text", TEXT, b"kept").status == 201
    place, lake = FolderStore(tmp_path / "place"), tmp_path / "lake"
    create_backup(Origin(tmp_path / "old", FolderStore(tmp_path / "old" / "lake")), place, lambda *_: None)
    restore_backup(place, small_disk / "data", FolderStore(lake), lambda *_: None)
    flags = ("--journal-file-bytes", str(FILE_BYTES), "--lake", str(lake))
    with running_server(*flags, data=small_disk / "data") as server, Wire(server.url) as wire:
        with pytest.raises(OSError, match="No space left"), (small_disk / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(b"x" * 4096)
        while (refused := wire.ask("POST", "/v1/stream/text", TEXT, b"x" * 20_000)).status == 204:
            pass
        assert refused.status == 503
        assert wire.ask("GET", "/v1/stream/text").body.startswith(b"kept")
