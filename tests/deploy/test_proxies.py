"""Headwater behind Caddy and nginx, with the files of `deploy/`: live reads, large bodies, absolute URLs, restarts."""

import contextlib
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from headwater.client import Client, RetryPolicy
from headwater.protocol.limits import APPEND_BYTES_MAX, SNAPSHOT_BYTES_MAX
from headwater.testing import RunningServer, running_server
from headwater.testing.ports import free_port

from .proxies import PROXIES, Proxy, find

TEXT = {"Content-Type": "text/plain"}
PATIENT = RetryPolicy(attempts_max=400, first_delay_seconds=0.01, delay_seconds_max=0.1)
JOIN_SECONDS = 60.0
START = "0000000000000000_0000000000000000"

_numbers = count(1)


@pytest.fixture(scope="module", params=sorted(PROXIES))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    for program in [name, *(["openssl"] if name == "nginx" else [])]:
        if find(program) is None:
            pytest.skip(f"{program} is not installed")
    return name


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server("--no-auth", "--proxies", "127.0.0.1", data=tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(kind: str, server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with PROXIES[kind](urlsplit(server.url).netloc, tmp_path_factory.mktemp(kind)) as proxy:
        yield proxy


@pytest.fixture
def path(proxy: Proxy) -> str:
    """An empty stream of text that no other test uses."""
    path = f"/v1/stream/s{next(_numbers)}"
    assert proxy.ask("PUT", path, headers=TEXT).status == 201
    return path


def append(proxy: Proxy, path: str, data: bytes) -> None:
    assert proxy.ask("POST", path, data, TEXT).status == 204


def event(response: HTTPResponse) -> tuple[str, str]:
    """The kind and the data of the next event; fails if none arrives in time."""
    kind, data = "", list[str]()
    while line := response.readline():
        text = line.decode().rstrip("\n")
        if not text and kind:
            return kind, "\n".join(data)
        name, _, value = text.partition(":")
        if name == "event":
            kind = value.strip()
        elif name == "data":
            data.append(value.removeprefix(" "))
    raise AssertionError("the stream of events has ended")


def live_readers(server: RunningServer) -> int:
    with urllib.request.urlopen(f"{server.url}/metrics") as response:
        found = re.search(r"^headwater_live_readers (\d+)$", response.read().decode(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_an_event_arrives_while_the_live_read_continues(proxy: Proxy, path: str) -> None:
    with proxy.opened(f"{path}?offset=-1&live=sse") as response:
        assert response.status == 200
        assert event(response)[0] == "control"
        for message in ("one", "two"):
            append(proxy, path, message.encode())
            assert event(response) == ("data", message)
            assert event(response)[0] == "control"


def test_a_reader_that_leaves_is_released_by_the_server(proxy: Proxy, server: RunningServer, path: str) -> None:
    before = live_readers(server)
    with proxy.opened(f"{path}?offset=now&live=sse") as response:
        event(response)
        assert live_readers(server) == before + 1
    deadline = time.monotonic() + 10
    while live_readers(server) > before:
        assert time.monotonic() < deadline, "the proxy still reads for a client that has left"
        time.sleep(0.05)


def test_a_long_poll_waits_and_returns_what_is_appended(proxy: Proxy, path: str) -> None:
    appending = threading.Timer(0.5, append, (proxy, path, b"late"))
    appending.start()
    response = proxy.ask("GET", f"{path}?offset={START}&live=long-poll")
    assert (response.status, response.body) == (200, b"late")
    appending.join()


def test_a_long_poll_without_news_ends_in_time(proxy: Proxy, path: str) -> None:
    assert proxy.ask("GET", f"{path}?offset={START}&live=long-poll&timeout_ms=200").status == 204


def test_the_location_of_a_new_stream_is_its_public_url(proxy: Proxy) -> None:
    path = f"/v1/stream/s{next(_numbers)}"
    # What a client claims about its own connection does not count.
    response = proxy.ask("PUT", path, headers={**TEXT, "X-Forwarded-Proto": "http"})
    assert response.status == 201
    assert response.headers["Location"] == f"{proxy.url}{path}"


def test_a_name_keeps_its_escapes(proxy: Proxy, server: RunningServer) -> None:
    path = f"/v1/stream/caf%C3%A9%20{next(_numbers)}%2Fmenu"
    assert proxy.ask("PUT", path, b"soup", TEXT).status == 201
    with urllib.request.urlopen(f"{server.url}{path}") as response:
        assert response.read() == b"soup"


def test_a_large_snapshot_passes_in_both_directions(proxy: Proxy) -> None:
    bucket = f"bucket-{next(_numbers)}"
    snapshot = bytes(range(256)) * (24 * 4096)
    assert proxy.ask("PUT", f"/{bucket}").status == 201
    assert proxy.ask("PUT", f"/{bucket}/s", headers=TEXT).status == 201
    assert proxy.ask("PUT", f"/{bucket}/s/snapshot/{START}", snapshot, TEXT).status < 300
    assert proxy.ask("GET", f"/{bucket}/s/snapshot/{START}").body == snapshot


@pytest.mark.parametrize(
    ("method", "below", "limit"), [("POST", "", APPEND_BYTES_MAX), ("PUT", f"/snapshot/{START}", SNAPSHOT_BYTES_MAX)]
)
def test_a_body_that_is_too_large_is_refused_before_all_of_it_is_sent(
    proxy: Proxy, path: str, method: str, below: str, limit: int
) -> None:
    with proxy.connected() as connection:
        connection.putrequest(method, f"{path}{below}")
        connection.putheader("Content-Type", "text/plain")
        connection.putheader("Content-Length", str(limit + 1))
        connection.endheaders()
        connection.sock.settimeout(0.1)
        received = b""
        # Caddy passes on an early answer only after it has read more of the body, so more is sent until it arrives.
        for _ in range(100):
            with contextlib.suppress(OSError):
                connection.send(bytes(1024))
            with contextlib.suppress(TimeoutError):
                received += connection.sock.recv(65536)
            if b"\r\n\r\n" in received:
                break
    assert received.startswith(b"HTTP/1.1 413 "), received
    assert b"application/problem+json" in received


@pytest.mark.parametrize("path", ["/metrics", "/__headwater/status"])
def test_only_this_machine_may_operate_the_server(proxy: Proxy, path: str) -> None:
    assert proxy.ask("GET", path).status == 200
    assert proxy.ask("GET", path, source="127.0.0.2").status == 403


def test_other_machines_may_follow_many_streams_and_ask_who_they_are(proxy: Proxy, path: str) -> None:
    closing = {**TEXT, "Stream-Closed": "true"}
    assert proxy.ask("POST", path, b"all", closing).status == 204
    name = f"_default/{path.rpartition('/')[2]}"
    response = proxy.ask("GET", f"/__headwater/tail?s={name}@-1", source="127.0.0.2")
    assert (response.status, b'"text":"all"' in response.body) == (200, True)
    assert proxy.ask("GET", "/__headwater/whoami", source="127.0.0.2").status == 200


def test_a_client_resumes_behind_the_proxy_when_the_server_was_killed(kind: str, tmp_path: Path) -> None:
    port = free_port()
    seen: list[Any] = []
    (tmp_path / "proxy").mkdir()
    with (
        PROXIES[kind](f"127.0.0.1:{port}", tmp_path / "proxy") as proxy,
        httpx2.Client(verify=proxy.tls) as http,
        Client(f"{proxy.url}/v1/stream", retry=PATIENT, follow_retry=PATIENT, http=http) as client,
    ):
        stream = client.stream("s", content_type="application/json")

        def follow() -> None:
            with stream.follow() as follower:
                seen.extend(follower.messages())

        follower = threading.Thread(target=follow)
        with running_server("--no-auth", "--port", str(port), data=tmp_path / "data") as server:
            stream.create()
            follower.start()
            for number in range(10):
                stream.append_json(number)
            deadline = time.monotonic() + JOIN_SECONDS
            while len(seen) < 5 and time.monotonic() < deadline:
                time.sleep(0.01)
            server.kill()
        with running_server("--no-auth", "--port", str(port), data=tmp_path / "data"):
            for number in range(10, 20):
                stream.append_json(number)
            stream.close_stream()
            follower.join(JOIN_SECONDS)
    assert not follower.is_alive()
    assert seen == list(range(20))
