"""For operators: alive, ready, metrics, status, logs, the flush barrier and the consumers of the lake."""

import asyncio
import json
import re
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from headwater.http.server import Server
from headwater.settings import Settings
from headwater.testing import RunningServer, running_server

from ..processes import eventually
from ..sockets import Ended, Wire, refused, request

LINE = re.compile(r'([a-z_]+)(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? ([0-9.e+-]+|\+Inf)')
TEXT = {"Content-Type": "text/plain"}


@pytest.fixture(scope="module")
def durable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server("--access-log", "--log-format", "json", data=tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.fixture
def wire(durable: RunningServer) -> Iterator[Wire]:
    with Wire(durable.url) as wire:
        yield wire


def samples(wire: Wire) -> dict[str, float]:
    """Every sample on the metrics page, by its name and labels."""
    lines = wire.ask("GET", "/metrics").body.decode().splitlines()
    found = {}
    for line in lines:
        if not line.startswith("#"):
            assert LINE.fullmatch(line), line
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_server_that_works_is_alive_and_ready(path: str, wire: Wire) -> None:
    assert wire.ask("GET", path).status == 200
    assert wire.ask("HEAD", path).status == 200
    assert wire.ask("POST", path).status == 405


def test_requests_are_counted_by_route_and_status(wire: Wire) -> None:
    before = samples(wire)
    wire.ask("PUT", "/v1/stream/counted", TEXT)
    wire.ask("GET", "/v1/stream/counted")
    wire.ask("GET", "/v1/stream/nowhere")
    wire.ask("GET", "/v1/stream/counted?offset=now&live=long-poll&timeout_ms=1")
    after = samples(wire)

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert grown('headwater_requests_total{route="PUT stream",status="201"}') == 1
    assert grown('headwater_requests_total{route="GET stream",status="200"}') == 1
    assert grown('headwater_requests_total{route="GET stream",status="404"}') == 1
    assert grown('headwater_request_seconds_count{route="PUT stream"}') == 1
    assert grown('headwater_live_reads_total{mode="long-poll"}') == 1
    assert grown("headwater_commit_commands_sum") == 1
    assert after['headwater_request_seconds_bucket{route="PUT stream",le="+Inf"}'] >= 1


def test_names_and_made_up_paths_never_become_labels(wire: Wire) -> None:
    wire.ask("GET", "/v1/stream/a-secret-name")
    wire.ask("GET", "/wp-admin/a-secret-name/x")
    assert not [name for name in samples(wire) if "secret" in name]


def test_the_status_shows_what_the_server_is(wire: Wire, durable: RunningServer) -> None:
    status = json.loads(wire.ask("GET", "/__headwater/status").body)
    assert status["pid"] == durable.pid
    assert status["state"] == "ready"
    assert status["lake"]["url"].startswith("file://")


def test_a_flush_puts_everything_into_the_lake_and_says_up_to_which_position(wire: Wire) -> None:
    wire.ask("PUT", "/v1/stream/flushed", TEXT, b"cold")
    flushed = json.loads(wire.ask("POST", "/__headwater/flush").body)["positions"]["0"]
    status = json.loads(wire.ask("GET", "/__headwater/status").body)
    assert status["hot_bytes"] == 0
    assert status["lake"]["live_rows"] > 0
    assert flushed <= status["positions"]["0"]
    assert wire.ask("GET", "/v1/stream/flushed").body == b"cold"


def test_a_pipelined_delete_waits_for_a_read_from_the_lake_before_it(wire: Wire) -> None:
    wire.ask("PUT", "/v1/stream/pipelined", TEXT, b"still here")
    wire.ask("POST", "/__headwater/flush")
    head = b"Host: localhost\r\n\r\n"
    wire.send(b"GET /v1/stream/pipelined HTTP/1.1\r\n" + head + b"DELETE /v1/stream/pipelined HTTP/1.1\r\n" + head)
    assert wire.receive().body == b"still here"
    assert wire.receive().status == 204


def test_consumers_of_the_lake_are_registered_listed_and_forgotten(wire: Wire) -> None:
    path = "/__headwater/consumers/spark-1"
    assert refused(wire.ask("GET", path), 404, "consumer_not_found")
    assert wire.ask("PUT", path, {}, b'{"positions": {"0": 0}}').status == 204
    assert json.loads(wire.ask("GET", path).body)["positions"] == {"0": 0}
    listed = json.loads(wire.ask("GET", "/__headwater/consumers").body)["consumers"]
    assert [consumer["consumer"] for consumer in listed] == ["spark-1"]
    assert wire.ask("DELETE", path).status == 204
    assert wire.ask("DELETE", path).status == 204
    assert json.loads(wire.ask("GET", "/__headwater/consumers").body) == {"consumers": []}


def test_a_consumer_is_told_that_it_has_lapsed_and_nothing_is_registered(wire: Wire) -> None:
    path = "/__headwater/consumers/spark-2"
    assert refused(wire.ask("PUT", path, {}, b'{"positions": {"0": 0}, "renew": true}'), 410, "consumer_lapsed")
    assert wire.ask("GET", path).status == 404
    assert wire.ask("PUT", path, {}, b'{"positions": {"0": 0}}').status == 204
    assert wire.ask("PUT", path, {}, b'{"positions": {"0": 0}, "renew": true}').status == 204
    assert json.loads(wire.ask("GET", path).body)["lapsed"] is False
    assert wire.ask("DELETE", path).status == 204


def test_a_consumer_says_how_long_it_may_be_silent(wire: Wire) -> None:
    path = "/__headwater/consumers/patient"
    assert wire.ask("PUT", path, {}, b'{"positions": {"0": 0}}').status == 204
    assert json.loads(wire.ask("GET", path).body)["silence_seconds"] == 7 * 86_400
    for seconds in (60, 35 * 86_400):
        body = json.dumps({"positions": {"0": 0}, "silence_seconds": seconds, "renew": True}).encode()
        assert wire.ask("PUT", path, {}, body).status == 204
        assert json.loads(wire.ask("GET", path).body)["silence_seconds"] == seconds
    for seconds in (59, 35 * 86_400 + 1, -1, 2**70):
        body = json.dumps({"positions": {"0": 0}, "silence_seconds": seconds}).encode()
        refusal = wire.ask("PUT", path, {}, body)
        assert refused(refusal, 400, "bad_request")
        if seconds < 2**63:
            said = f"silence_seconds must be 60 to 3024000 (35 days), not {seconds}; leave it out for 7 days."
            assert said in refusal.body.decode()
    assert json.loads(wire.ask("GET", path).body)["silence_seconds"] == 35 * 86_400
    assert wire.ask("DELETE", path).status == 204


def test_a_lease_is_taken_renewed_counted_and_given_back(wire: Wire) -> None:
    path = "/__headwater/consumers/batch"
    assert refused(wire.ask("PUT", path, {}, b'{"lease_seconds": 60, "renew": true}'), 410, "consumer_lapsed")
    assert wire.ask("PUT", path, {}, b'{"lease_seconds": 60}').status == 204
    assert wire.ask("PUT", path, {}, b'{"lease_seconds": 60, "renew": true}').status == 204
    shown = json.loads(wire.ask("GET", path).body)
    assert (shown["lease"], shown["lapsed"]) == (True, False)
    status = json.loads(wire.ask("GET", "/__headwater/status").body)["lake"]
    assert ("batch" in status["consumers"], status["leases"]) == (False, 1)
    assert wire.ask("DELETE", path).status == 204
    assert json.loads(wire.ask("GET", "/__headwater/status").body)["lake"]["leases"] == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"positions": {}}',
        b'{"positions": {"1": 0}}',
        b'{"positions": {"0": -1}}',
        b"[]",
        b'{"positions": {"\xff": 1}}',
        b'{"lease_seconds": 0}',
        b'{"lease_seconds": 3601}',
        b'{"lease_seconds": 60, "positions": {"0": 0}}',
        b'{"lease_seconds": 60, "silence_seconds": 60}',
        b'{"silence_seconds": 60}',
        b'{"positions": {"0": 0}, "silence_seconds": "a day"}',
        b'{"renew": true}',
        b'{"positions": {"\xff": 0}}',
        b'{"positions": ' + b"[" * 100_000,
    ],
)
def test_a_consumer_without_a_position_is_refused(body: bytes, wire: Wire) -> None:
    assert refused(wire.ask("PUT", "/__headwater/consumers/r", {}, body), 400, "bad_request")


def test_a_consumer_cannot_be_ahead_of_the_log(wire: Wire) -> None:
    assert refused(wire.ask("PUT", "/__headwater/consumers/r", {}, b'{"positions": {"0": 999999}}'), 400, "bad_request")


@pytest.mark.parametrize("path", ["/__headwater", "/__headwater/nothing", "/__headwater/flush/x"])
def test_nothing_else_lies_below_the_servers_own_path(path: str, wire: Wire) -> None:
    assert refused(wire.ask("GET", path), 404, "not_found")


def test_a_server_that_keeps_nothing_has_no_lake(server: RunningServer) -> None:
    with Wire(server.url) as wire:
        assert refused(wire.ask("POST", "/__headwater/flush"), 501, "not_implemented")
        assert json.loads(wire.ask("GET", "/__headwater/status").body)["lake"] is None


def test_every_request_is_a_line_of_json_in_the_access_log(wire: Wire, durable: RunningServer) -> None:
    answer = wire.ask("GET", "/v1/stream/logged", {"X-Request-Id": "abc-123"})
    expected = {
        "level": "info",
        "logger": "headwater.access",
        "method": "GET",
        "path": "/v1/stream/logged",
        "status": 404,
        "bytes": len(answer.head) + len(answer.body),
    }

    def found() -> bool:
        lines = [json.loads(line) for line in durable.output().splitlines() if line.startswith("{")]
        mine = [line for line in lines if line.get("request_id") == "abc-123"]
        return bool(mine) and {name: mine[0][name] for name in expected} == expected and mine[0]["milliseconds"] > 0

    assert eventually(found)


def test_a_request_keeps_the_name_that_its_client_gave_it(wire: Wire) -> None:
    wire.ask("PUT", "/v1/stream/named", TEXT, b"x")
    for method, target in (("GET", "/v1/stream/named"), ("GET", "/v1/stream/none"), ("POST", "/__headwater/flush")):
        assert wire.ask(method, target, {"X-Request-Id": "a.b:c-1"}).headers["x-request-id"] == "a.b:c-1"
    wire.send(request("GET", "/v1/stream/named?offset=-1&live=sse", {"X-Request-Id": "live"}))
    assert wire.receive_head()[1]["x-request-id"] == "live"


@pytest.mark.parametrize("name", [None, "", "two words", "a" * 65, "<b>"])
def test_a_name_that_is_not_valid_is_not_returned(wire: Wire, name: str | None) -> None:
    given = {} if name is None else {"X-Request-Id": name}
    assert "x-request-id" not in wire.ask("GET", "/v1/stream/none", given).headers


def test_bytes_in_and_out_are_counted(wire: Wire) -> None:
    wire.ask("PUT", "/v1/stream/large", TEXT, b"x" * 100_000)
    before = samples(wire)
    wire.ask("GET", "/v1/stream/large")
    wire.ask("POST", "/v1/stream/large", TEXT, b"x" * 50_000)
    after = samples(wire)
    grown = {
        name: after[name] - before[name] for name in ("headwater_received_bytes_total", "headwater_sent_bytes_total")
    }
    assert 50_000 < grown["headwater_received_bytes_total"] < 60_000
    assert 100_000 < grown["headwater_sent_bytes_total"] < 140_000


def test_metrics_show_the_build_the_limits_and_the_disk(wire: Wire) -> None:
    shown = samples(wire)
    assert shown[f'headwater_build_info{{version="{version("headwater")}"}}'] == 1
    defaults = Settings()
    # Fewer where the tests may not open as many files.
    assert 0 < shown['headwater_limit{of="connections"}'] <= defaults.connections_max
    assert shown['headwater_limit{of="receiving_bytes"}'] == defaults.receiving_bytes_max
    assert shown['headwater_limit{of="sending_bytes"}'] == defaults.sending_bytes_max
    limited = {name[len('headwater_limit{of="') : -2] for name in shown if name.startswith("headwater_limit")}
    assert all(f"headwater_{name}" in shown for name in limited)
    usage = json.loads(wire.ask("GET", "/__headwater/status").body)["usage"]
    assert {name: use["limit"] for name, use in usage.items()} == {
        name: shown[f'headwater_limit{{of="{name}"}}'] for name in limited
    }
    assert shown['headwater_limit{of="hot_bytes"}'] == defaults.hot_bytes_max
    assert shown['headwater_limit{of="live_readers"}'] == 65_536
    assert shown["headwater_free_disk_bytes"] > 0


def test_metrics_count_the_duplicates_of_producers(wire: Wire) -> None:
    before = samples(wire)["headwater_producer_duplicates_total"]
    producer = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0", "Content-Type": "text/plain"}
    wire.ask("PUT", "/v1/stream/duplicates", {"Content-Type": "text/plain"})
    for _ in range(3):
        wire.ask("POST", "/v1/stream/duplicates", producer, b"once")
    assert samples(wire)["headwater_producer_duplicates_total"] == before + 2


def test_metrics_show_for_how_long_data_has_waited_for_the_lake(wire: Wire) -> None:
    wire.ask("POST", "/__headwater/flush")
    assert samples(wire)["headwater_lake_unflushed_seconds"] == 0
    wire.ask("PUT", "/v1/stream/waiting", TEXT, b"hot")
    assert eventually(lambda: samples(wire)["headwater_lake_unflushed_seconds"] >= 1)


def test_metrics_show_the_lag_and_the_silence_of_the_slowest_consumer(wire: Wire) -> None:
    def shown() -> tuple[float, float, float]:
        found = samples(wire)
        return tuple(found[f"headwater_lake_consumer{of}"] for of in ("s", "_lag_positions", "_silent_seconds"))  # type: ignore[return-value]

    def report(name: str, position: int) -> None:
        body = json.dumps({"positions": {"0": position}}).encode()
        assert wire.ask("PUT", f"/__headwater/consumers/{name}", {}, body).status == 204

    assert shown() == (0, 0, 0)
    wire.ask("PUT", "/v1/stream/lagging", TEXT, b"one")
    first = json.loads(wire.ask("POST", "/__headwater/flush").body)["positions"]["0"]
    report("fast", first)
    assert shown()[:2] == (1, 0), "it has read the last row, whatever was logged since"
    report("slow", first)
    assert wire.ask("PUT", "/__headwater/consumers/batch", {}, b'{"lease_seconds": 60}').status == 204
    wire.ask("POST", "/v1/stream/lagging", TEXT, b"two")
    assert shown()[:2] == (2, 0), "the lake does not have the row yet"
    last = json.loads(wire.ask("POST", "/__headwater/flush").body)["positions"]["0"]
    assert 0 < shown()[1] <= last - first
    report("fast", last)
    assert 0 < shown()[1] <= last - first, "the slowest one counts"
    assert eventually(lambda: shown()[2] >= 1)
    report("slow", last)
    report("fast", last)
    active, lag, silent = shown()
    assert (active, lag) == (2, 0) and silent < 5, "leases do not count"
    for name in ("fast", "slow", "batch"):
        assert wire.ask("DELETE", f"/__headwater/consumers/{name}").status == 204
    assert shown() == (0, 0, 0)


def test_only_the_origins_that_are_named_may_read() -> None:
    flags = ("--cors-origins", "https://a.example,https://b.example", "--cors-expose", "X-Mine")
    with running_server(*flags) as server, Wire(server.url) as wire:
        wire.ask("PUT", "/v1/stream/s", TEXT, b"x")
        for target in ("/v1/stream/s", "/v1/stream/none"):
            allowed = wire.ask("GET", target, {"Origin": "https://b.example"}).headers
            assert allowed["access-control-allow-origin"] == "https://b.example"
            assert allowed["access-control-expose-headers"] == "*"
            other = wire.ask("GET", target, {"Origin": "https://c.example"}).headers
            assert {"access-control-allow-origin", "access-control-expose-headers"}.isdisjoint(other)
        assert wire.ask("GET", "/v1/stream/s").headers["vary"] == "Stream-Incarnation, Origin"
        assert wire.ask("GET", "/").headers["vary"] == "Accept, Origin"
        preflight = wire.ask("OPTIONS", "/v1/stream/s", {"Origin": "https://a.example"})
        assert preflight.headers["access-control-allow-origin"] == "https://a.example"


def test_a_server_that_drains_is_alive_and_not_ready() -> None:
    flags = ("--drain-seconds", "60", "--page-bytes", "8MiB")
    with running_server(*flags) as server, Wire(server.url, receive_buffer_bytes=4096) as lazy:
        with Wire(server.url) as wire:
            wire.ask("PUT", "/v1/stream/s", {}, bytes(8 * 1024 * 1024))
        # A client that still receives its answer keeps the server from ending.
        lazy.send(request("GET", "/v1/stream/s"))
        assert lazy.take(1) == b"H"
        server.process.terminate()
        assert eventually(lambda: _is_draining(server.url), seconds=20)
        assert _status(server.url, "/healthz") == 200
        assert _status(server.url, "/v1/stream/s") == 503


def test_a_server_that_starts_is_alive_and_not_ready() -> None:
    async def run() -> None:
        server = Server(Settings(port=0))
        url = await server.listen()
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, _status, url, "/healthz") == 200
        assert await loop.run_in_executor(None, _status, url, "/readyz") == 503
        await server.drain()

    asyncio.run(run())


def _is_draining(url: str) -> bool:
    try:
        return _status(url, "/readyz") == 503
    except Ended:
        return False  # The connection was open, and idle, when the drain began.


def _status(url: str, target: str) -> int:
    with Wire(url) as wire:
        return wire.ask("GET", target).status


def test_the_url_table_is_a_page_for_people(wire: Wire) -> None:
    page = wire.ask("GET", "/openapi")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"/openapi.json" in page.body
    assert wire.ask("PUT", "/openapi").status == 400
    assert wire.ask("POST", "/openapi").status == 405


def test_consumers_answer_to_their_earlier_path(wire: Wire) -> None:
    assert wire.ask("PUT", "/__headwater/readers/earlier", {}, b'{"positions": {"0": 0}}').status == 204
    found = json.loads(wire.ask("GET", "/__headwater/consumers/earlier").body)
    assert found["consumer"] == "earlier"
    assert json.loads(wire.ask("GET", "/__headwater/readers/earlier").body) == found
    assert json.loads(wire.ask("GET", "/__headwater/readers").body)["consumers"] == [found]
    assert wire.ask("DELETE", "/__headwater/readers/earlier").status == 204
    assert refused(wire.ask("GET", "/__headwater/readers/earlier"), 404, "consumer_not_found")
