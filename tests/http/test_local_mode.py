"""Local mode: a server on loopback allows everything to this machine, and nothing to pages from elsewhere."""

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from headwater.cli.serve import serve
from headwater.testing import RunningServer, running_server

from .sockets import Wire, refused, request

pytestmark = pytest.mark.attack

TEXT = {"Content-Type": "text/plain"}
STREAM = "/v1/stream/local/page"
OURS = ["http://localhost", "http://localhost:3000", "https://127.0.0.1:8443", "http://127.9.9.9", "http://[::1]:1"]
FOREIGN = [
    "null",
    "https://evil.example",
    "http://localhost.evil.com",
    "https://127.0.0.1:1@evil",
    "http://127.0.0.1.nip.io",
    "http://localhost:3000/",
    "file://",
]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as started:
        yield started


@pytest.fixture
def wire(server: RunningServer) -> Iterator[Wire]:
    with Wire(server.url) as opened:
        opened.ask("PUT", STREAM, TEXT)
        yield opened


NAMES = ["localhost", "localhost:4437", "LOCALHOST", "localhost.", "app.localhost", "127.0.0.1", "10.1.2.3:80"]
REBOUND = [
    "evil.example",
    "localhost.evil.com",
    "127.0.0.1.nip.io",
    "notlocalhost",
    "127.1",
    "0x7f000001",
    "localhost..",
]


@pytest.mark.parametrize("host", [*NAMES, "[::1]", "[::ffff:7f00:1]:80"])
def test_a_server_answers_to_localhost_and_to_addresses(wire: Wire, host: str) -> None:
    assert wire.ask("GET", STREAM, {"Host": host}).status == 200


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
@pytest.mark.parametrize("host", REBOUND)
def test_a_server_does_not_answer_to_a_name_that_somebody_else_may_have_given_it(
    wire: Wire, host: str, method: str
) -> None:
    refused(wire.ask(method, STREAM, {**TEXT, "Host": host}), 421, "host_refused")
    assert wire.ended()


def test_the_name_in_an_absolute_target_counts_like_that_in_the_host_header(wire: Wire) -> None:
    refused(wire.ask("GET", f"http://evil.example{STREAM}", {"Host": "localhost"}), 421, "host_refused")


def test_a_known_head_was_judged_by_its_host(server: RunningServer) -> None:
    for host, status in (("localhost", 200), ("evil.example", 421)):
        for _ in range(3):
            with Wire(server.url) as opened:
                assert opened.ask("GET", STREAM, {"Host": host}).status == status


def test_names_can_be_added() -> None:
    with running_server("--hosts", "streams.test, Other.test") as server:
        for host in ("streams.test:4437", "OTHER.test", "localhost", "127.0.0.1"):
            with Wire(server.url) as opened:
                assert opened.ask("GET", "/healthz", {"Host": host}).status == 200
        with Wire(server.url) as opened:
            refused(opened.ask("GET", "/healthz", {"Host": "evil.example"}), 421, "host_refused")


@pytest.mark.parametrize("origin", OURS)
def test_pages_of_this_machine_read_and_write(wire: Wire, origin: str) -> None:
    for method in ("POST", "GET"):
        response = wire.ask(method, STREAM, {**TEXT, "Origin": origin}, b"x" if method == "POST" else None)
        assert response.status in (200, 204)
        assert response.headers["access-control-allow-origin"] == origin
        assert "access-control-allow-credentials" not in response.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize("origin", FOREIGN)
def test_pages_from_elsewhere_change_nothing(wire: Wire, origin: str, method: str) -> None:
    before = wire.ask("HEAD", STREAM).headers["etag"]
    target = STREAM if method != "PUT" else "/v1/stream/local/new"
    response = wire.ask(method, target, {**TEXT, "Origin": origin}, b"x")
    refused(response, 403, "origin_refused")
    assert "access-control-allow-origin" not in response.headers
    assert wire.ask("HEAD", STREAM).headers["etag"] == before
    assert wire.ask("HEAD", "/v1/stream/local/new").status == 404


@pytest.mark.parametrize("origin", FOREIGN)
def test_pages_from_elsewhere_may_read_nothing(wire: Wire, origin: str) -> None:
    for target in (STREAM, f"{STREAM}?offset=now&live=long-poll&timeout_ms=1", f"{STREAM}-none", "/metrics"):
        assert "access-control-allow-origin" not in wire.ask("GET", target, {"Origin": origin}).headers
    preflight = wire.ask("OPTIONS", STREAM, {"Origin": origin, "Access-Control-Request-Method": "DELETE"})
    assert "access-control-allow-origin" not in preflight.headers


def test_a_large_body_of_a_page_from_elsewhere_is_refused_before_it_is_read(wire: Wire) -> None:
    length = {"Content-Length": "16000000", "Expect": "100-continue"}
    wire.send(request("POST", STREAM, {**TEXT, **length, "Origin": "https://evil.example"}))
    refused(wire.receive(), 403, "origin_refused")


def test_opening_reading_to_all_pages_does_not_open_writing() -> None:
    with running_server("--cors-origins", "*") as server, Wire(server.url) as wire:
        wire.ask("PUT", STREAM, TEXT)
        foreign = {**TEXT, "Origin": "https://evil.example"}
        assert wire.ask("GET", STREAM, foreign).headers["access-control-allow-origin"] == "*"
        refused(wire.ask("POST", STREAM, foreign, b"x"), 403, "origin_refused")


def test_a_page_that_is_named_may_write() -> None:
    with running_server("--cors-origins", "https://app.example") as server, Wire(server.url) as wire:
        wire.ask("PUT", STREAM, TEXT)
        assert wire.ask("POST", STREAM, {**TEXT, "Origin": "https://app.example"}, b"x").status == 204
        refused(wire.ask("POST", STREAM, {**TEXT, "Origin": "https://b.example"}, b"x"), 403, "origin_refused")


def test_an_open_server_answers_to_everybody() -> None:
    with running_server("--no-auth") as server, Wire(server.url) as wire:
        wire.ask("PUT", STREAM, TEXT)
        called = {**TEXT, "Origin": "https://evil.example", "Host": "streams.example"}
        response = wire.ask("POST", STREAM, called, b"x")
        assert (response.status, response.headers["access-control-allow-origin"]) == (204, "*")
        response = wire.ask("GET", STREAM, called)
        assert response.headers["cross-origin-resource-policy"] == "cross-origin"
        assert "without authentication" in server.output()


def test_an_open_server_with_names_answers_to_these_only() -> None:
    with running_server("--no-auth", "--hosts", "streams.example") as server:
        for host, status in (("streams.example", 200), ("evil.example", 421)):
            with Wire(server.url) as wire:
                assert wire.ask("GET", "/healthz", {"Host": host}).status == status


def test_a_public_url_is_the_base_of_locations() -> None:
    with running_server("--public-url", "https://streams.example") as server, Wire(server.url) as wire:
        assert wire.ask("PUT", STREAM, TEXT).headers["location"] == f"https://streams.example{STREAM}"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "streams.example", "0", ""])
def test_a_server_does_not_listen_beyond_loopback_unless_told_who_decides(host: str) -> None:
    done = CliRunner().invoke(serve, ["--host", host, "--memory", "--port", "0"])
    assert done.exit_code == 2
    assert "would let any client read and delete; give --auth FILE" in " ".join(done.output.split())


@pytest.mark.parametrize("url", ["streams.example", "https://streams.example/", "ftp://a", "https://a b"])
def test_a_public_url_is_an_origin(url: str) -> None:
    done = CliRunner().invoke(serve, ["--memory", "--public-url", url])
    assert (done.exit_code, "takes an origin such as" in done.output) == (2, True)


def test_a_query_cannot_add_headers_to_a_redirect(server: RunningServer) -> None:
    with Wire(server.url) as wire:
        wire.ask("PUT", "/redirects")
        assert wire.ask("PUT", "/redirects/one", {"Content-Type": "text/plain"}, b"abc").status in (200, 201)
        offset = wire.ask("HEAD", "/redirects/one").next_offset
        assert wire.ask("PUT", f"/redirects/one/snapshot/{offset}", {}, b"state").status == 204
        response = wire.ask("GET", "/redirects/one/snapshot?access_token=x%0d%0aSet-Cookie:%20a=b")
        assert response.status == 307
        assert "set-cookie" not in response.headers
        assert "access_token" not in response.headers["location"]


@pytest.mark.parametrize("path", [STREAM, "/", "/__headwater/status"])
@pytest.mark.parametrize("flags", [[], ["--no-auth"]], ids=["local", "open"])
def test_nothing_is_given_to_a_browser_that_asks_for_a_service_worker(flags: list[str], path: str) -> None:
    with running_server(*flags) as server:
        for _ in range(3):  # A head that is known is not parsed again.
            with Wire(server.url) as wire:
                response = wire.ask("GET", path, {"Service-Worker": "script"})
                assert (response.status, "service worker" in response.problem["detail"]) == (400, True)
