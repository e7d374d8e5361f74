"""The server's log: the start and the stop line, JSON for machines, levels."""

import json
import logging
import signal
from pathlib import Path
from typing import Any

import pytest

from headwater import __version__
from headwater.cli.logs import HumanFormatter, JsonFormatter
from headwater.testing import ServerNotStarted, running_server

ACCESS = {"method": "GET", "path": "/x", "status": 200, "milliseconds": 0.5, "bytes": 3, "request_id": "abc"}


def record(name: str, message: str, **facts: Any) -> logging.LogRecord:
    return logging.makeLogRecord({"name": name, "msg": message, "levelno": 20, "levelname": "INFO", **facts})


def test_in_json_every_line_is_an_object_the_first_and_the_last_too(tmp_path: Path) -> None:
    with running_server("--log-format", "json", "--access-log", data=tmp_path / "data") as server:
        assert server.stop() == 0
        lines = [json.loads(line) for line in server.output().splitlines()]
    started, *_, stopped = lines
    assert (started["message"], started["url"], started["pid"]) == ("started", server.url, server.pid)
    assert (started["data"], started["lake"]) == (str(tmp_path / "data"), str(tmp_path / "data" / "lake"))
    assert started["limits"]["hot_bytes_max"] == 512 * 2**20
    assert (stopped["message"], stopped["signal"]) == ("stopped", "SIGTERM")
    assert stopped["drain_seconds"] >= 0


def test_for_people_the_log_has_the_same_facts() -> None:
    with running_server() as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(30) == 0
        assert f" INFO started version={__version__} url={server.url} pid={server.pid} " in server.output()
        assert " INFO stopped signal=SIGINT drain_seconds=" in server.output()


def test_a_level_hides_what_is_less_severe() -> None:
    with running_server("--log-level", "warning") as server:
        assert server.stop() == 0
        assert "INFO" not in server.output()


def test_a_failed_start_is_an_object_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(ServerNotStarted) as caught,
        running_server("--log-format", "json", data=tmp_path / "file" / "data"),
    ):
        pass
    line = json.loads(str(caught.value).splitlines()[-1])
    assert line["level"] == "critical"
    assert line["message"] == f"The server cannot use {tmp_path / 'file'} (File exists); check --data and --lake."


def test_an_access_record_is_members_in_json_and_a_line_for_people() -> None:
    found = json.loads(JsonFormatter().format(record("headwater.access", "request", **ACCESS)))
    assert found.items() >= ACCESS.items()
    line = HumanFormatter("%(asctime)s %(levelname)s %(message)s").format(record("headwater.access", "", **ACCESS))
    assert line.endswith(" INFO GET /x 200 0.5ms 3B request_id=abc")


def test_other_facts_follow_the_message() -> None:
    formatter = HumanFormatter("%(levelname)s %(message)s")
    assert formatter.format(record("headwater.x", "flushed", rows=3)) == "INFO flushed rows=3"
