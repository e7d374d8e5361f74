"""The audit log: one line of JSON for each event, and nothing that goes wrong with it concerns the server."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.access import audit as audit_module
from headwater.access.audit import Audit, Event, Record, Throttle, program_of

pytestmark = pytest.mark.attack

DENIED = Record(Event.DENIED, status=401, code="unauthorized", address="192.0.2.1")
FULL_DISK = Path("/dev/full")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


@pytest.fixture
def audit(path: Path) -> Iterator[Audit]:
    audit = Audit(path)
    yield audit
    audit.close()


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def eventually(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_an_event_is_one_line_with_the_fields_that_are_known(audit: Audit, path: Path) -> None:
    audit.record(
        Record(
            Event.DELETED,
            who="ingest",
            kind="token",
            address="192.0.2.1",
            action="delete",
            name="agents/a",
            status=204,
            request_id="r-1",
            agent="curl/8.5.0 (secret)",
        )
    )
    audit.record(Record(Event.RELOADED, changed=("token ingest", "key app")))
    audit.close()
    first, second = lines_of(path)
    assert first.pop("time").endswith("Z")
    assert first == {
        "event": "deleted",
        "who": "ingest",
        "kind": "token",
        "address": "192.0.2.1",
        "action": "delete",
        "name": "agents/a",
        "status": 204,
        "request_id": "r-1",
        "agent": "curl/8.5.0",
    }
    assert second["changed"] == ["token ingest", "key app"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_says_when_it_was_recorded(path: Path) -> None:
    audit = Audit(path, wall_clock=lambda: 1_780_000_000.25)
    audit.record(Record(Event.STARTED))
    audit.close()
    assert path.read_bytes() == b'{"time":"2026-05-28T20:26:40.250Z","event":"started"}\n'


@pytest.mark.parametrize(
    "name", ['b/new\nline"quote\\', "b/\u2028\u2029\x85\x0b\x0c\r", "b/\x00\x7f\ud800", "b/" + "é" * 60, "b/日本"]
)
def test_no_name_makes_more_than_one_line(audit: Audit, path: Path, name: str) -> None:
    audit.record(Record(Event.CREATED, name=name))
    audit.close()
    text = path.read_bytes().decode("ascii")
    assert len(text.splitlines()) == 1
    assert json.loads(text)["name"] == name


@given(name=st.text())
def test_every_name_is_one_line_of_printable_ascii(name: str) -> None:
    line = audit_module._render(audit_module._Line(0.0, Record(Event.CREATED, name=name, who=name, agent=name)))
    assert line.endswith(b"}\n")
    assert line[:-1].decode("ascii").isprintable()
    assert json.loads(line)["name"] == name[:256]


@pytest.mark.parametrize(
    "agent",
    [
        "hw_ingest_" + "a" * 49,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ1In0.c2lnbmF0dXJl",
        "Bearer=abc def",
        "",
        "/",
        " curl/8",
        "a\nb",
        "x" * 10_000,
    ],
)
def test_a_credential_in_a_user_agent_is_not_written(agent: str) -> None:
    assert program_of(agent) == "other"


def test_what_a_client_chooses_is_cut(audit: Audit, path: Path) -> None:
    audit.record(Record(Event.DENIED, name="b/" + "x" * 100_000))
    audit.close()
    assert len(path.read_bytes()) < 1000


# -- Floods -----------------------------------------------------------------------------------------------------------


def test_of_a_flood_of_denied_requests_a_hundred_a_second_have_a_line_and_the_rest_is_counted(path: Path) -> None:
    now = 1000.0
    audit = Audit(path, clock=lambda: now)
    for _ in range(5_000):
        audit.record(DENIED)
    audit.record(Record(Event.DELETED, name="b/s"))
    audit.close()
    lines = lines_of(path)
    counts = [line["count"] for line in lines if "count" in line]
    single = [line for line in lines if line["event"] == "denied" and "count" not in line]
    assert (len(single), counts) == (100, [4_900])
    assert [line["name"] for line in lines if line["event"] == "deleted"] == ["b/s"], "other events are never held back"
    assert audit.lost == 0


def test_the_count_is_written_soon_after_the_flood_although_nothing_else_happens(audit: Audit, path: Path) -> None:
    for _ in range(150):
        audit.record(DENIED)
    assert eventually(lambda: any("count" in line for line in lines_of(path)))
    assert sum(line.get("count", 1) for line in lines_of(path)) == 150


def test_the_count_is_written_during_a_flood_that_does_not_end(audit: Audit, path: Path) -> None:
    def flood() -> bool:
        for _ in range(200):
            audit.record(DENIED)
        return path.read_bytes().count(b'"count"') >= 2

    assert eventually(flood)


def test_a_throttle_begins_anew_each_second() -> None:
    throttle = Throttle(2)
    assert [throttle.admit(at) for at in (0.0, 0.5, 0.9, 1.0, 1.1, 1.2, 5.0)] == [True, True, False] * 2 + [True]
    assert (throttle.take(), throttle.take()) == (2, 0)


def test_lines_that_do_not_fit_into_the_queue_are_counted_and_nobody_waits(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    audit = Audit(pipe, lines_max=100)
    began = time.monotonic()
    for _ in range(5_000):
        audit.record(Record(Event.CREATED, name="b/" + "x" * 200))
    assert time.monotonic() - began < 10
    assert audit.lost > 1_000
    taken = bytearray()
    ending = Thread(target=audit.close)
    ending.start()
    while chunk := _read(reader, ending):
        taken += chunk
    os.close(reader)
    assert taken.count(b"\n") + audit.lost == 5_000
    assert all(json.loads(line) for line in taken.splitlines())


def _read(reader: int, ending: Thread) -> bytes:
    """Bytes from a pipe; none when the writer is gone."""
    while True:
        try:
            return os.read(reader, 65_536)
        except BlockingIOError:
            ending.join(0.01)


# -- Files ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not FULL_DISK.exists(), reason="there is no /dev/full")
def test_a_full_disk_loses_lines_and_counts_them(caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit(FULL_DISK)
    for _ in range(50):
        audit.record(Record(Event.CREATED, name="b/s"))
    audit.close()
    assert audit.lost == 50
    assert len([record for record in caplog.records if "cannot be written" in record.message]) == 1


def test_a_disk_that_takes_a_part_of_a_line_does_not_spoil_the_next(path: Path) -> None:
    script = (
        "import resource, signal, sys, time\n"
        "from pathlib import Path\n"
        "from headwater.access.audit import Audit, Event, Record\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "path = Path(sys.argv[1])\n"
        "audit = Audit(path)\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))\n"
        "for number in range(100):\n"
        "    audit.record(Record(Event.CREATED, name=f'b/{number}'))\n"
        "deadline = time.monotonic() + 20\n"
        "while not audit._queue.empty() or path.stat().st_size < 1000:\n"
        "    assert time.monotonic() < deadline\n"
        "    time.sleep(0.01)\n"
        "time.sleep(0.2)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))\n"
        "audit.record(Record(Event.STOPPED))\n"
        "audit.close()\n"
        "print(audit.lost)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    whole = []
    for line in path.read_bytes().splitlines():
        try:
            whole.append(json.loads(line))
        except ValueError:
            assert line.startswith(b'{"time"'), "the beginning of a line that was cut"
    assert whole[-1]["event"] == "stopped"
    assert len(whole) + int(done.stdout) == 101


def test_a_file_that_was_moved_away_is_opened_again(audit: Audit, path: Path) -> None:
    moved = path.with_suffix(".1")
    audit.record(Record(Event.CREATED, name="b/before"))
    assert eventually(lambda: b"before" in path.read_bytes())
    path.rename(moved)
    audit.record(Record(Event.CREATED, name="b/between"))
    assert eventually(lambda: b"between" in moved.read_bytes())
    audit.reopen()
    assert eventually(path.exists)
    audit.record(Record(Event.CREATED, name="b/after"))
    audit.close()
    assert [line["name"] for line in lines_of(moved)] == ["b/before", "b/between"]
    assert [line["name"] for line in lines_of(path)] == ["b/after"]
    assert audit.lost == 0


def test_a_file_that_cannot_be_opened_again_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    audit = Audit(folder / "audit.log")
    moved = tmp_path / "moved"
    folder.rename(moved)
    audit.reopen()
    audit.record(Record(Event.STARTED))
    audit.close()
    assert [line["event"] for line in lines_of(moved / "audit.log")] == ["started"]
    assert "cannot be opened again" in caplog.text


def test_a_file_is_only_ever_appended_to(path: Path) -> None:
    for _ in range(2):
        audit = Audit(path)
        audit.record(Record(Event.STARTED))
        audit.close()
    assert len(lines_of(path)) == 2


def test_a_file_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for impossible in (tmp_path / "missing" / "audit.log", tmp_path, tmp_path / "pipe"):
        with pytest.raises(OSError):
            Audit(impossible)


def test_without_a_file_lines_go_to_standard_error() -> None:
    script = (
        "from headwater.access.audit import Audit, Event, Record\n"
        "audit = Audit(None)\n"
        "audit.reopen()\n"
        "audit.record(Record(Event.STARTED))\n"
        "audit.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stderr)["event"] == "started"


def test_closing_gives_up_on_a_pipe_that_nobody_reads(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    audit = Audit(pipe, lines_max=100)
    for _ in range(3_000):
        audit.record(Record(Event.CREATED, name="b/" + "x" * 200))
    audit.close(seconds=0.2)
    os.close(reader)
