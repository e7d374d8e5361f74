"""Requests about many streams and the lake that say which log their numbers came from."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing import running_server

from ..sockets import Wire

REQUESTS = [
    ("POST", "flush", b""),
    ("PUT", "readers/job", b'{"positions": {"0": 0}}'),
    ("GET", "consumers", None),
    ("POST", "describe", b'{"streams": ["b/s"]}'),
    ("POST", "locate", b'{"records": [["b/s", 1, 0]]}'),
    ("POST", "scan", b'{"ranges": []}'),
    ("DELETE", "readers/job", None),
]


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    data: Path = tmp_path_factory.mktemp("data")
    with running_server(data=data) as server, Wire(server.url) as wire:
        yield wire


def log_of(wire: Wire) -> str:
    found: str = json.loads(wire.ask("GET", "/__headwater/status").body)["log_id"]
    return found


@pytest.mark.parametrize(("method", "what", "body"), REQUESTS)
def test_a_request_about_this_log_is_answered(method: str, what: str, body: bytes | None, wire: Wire) -> None:
    headers = {"Content-Type": "application/json", "Stream-Log-Id": log_of(wire)}
    assert wire.ask(method, f"/__headwater/{what}", headers, body).status in (200, 204)


@pytest.mark.parametrize(("method", "what", "body"), [*REQUESTS, ("POST", "append", b""), ("POST", "swap", b"{}")])
def test_a_request_about_another_log_is_refused_and_changes_nothing(
    method: str, what: str, body: bytes | None, wire: Wire
) -> None:
    headers = {"Content-Type": "application/json", "Stream-Log-Id": "0123456789abcdef"}
    refused = wire.ask(method, f"/__headwater/{what}", headers, body)
    assert (refused.status, refused.problem["code"]) == (410, "incarnation_changed")
    assert f"this server has log '{log_of(wire)}'" in refused.problem["detail"]
    assert json.loads(wire.ask("GET", "/__headwater/consumers").body) == {"consumers": []}
