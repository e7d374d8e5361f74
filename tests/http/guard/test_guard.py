"""The guard: who may do what, on which name, whatever URL, body or header names it."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from headwater.access.grants import Action
from headwater.http.table.endpoints import ENDPOINTS

from ..api.bulk.requests import ARROW, encode, row, table_of
from ..guarded import Guarded, guarded
from ..processes import eventually, resident_bytes
from ..sockets import Wire, refused, request

pytestmark = pytest.mark.attack

TEXT, JSON = {"Content-Type": "text/plain"}, {"Content-Type": "application/json"}
ONE = "/v1/stream/mine/one"
EACH = {f"only-{action.word}": [f"{action.word} *"] for action in Action if action is not Action.NONE}
MINE = {
    "reader": ["read mine/*"],
    "writer": ["append mine/*"],
    "maker": ["create mine/*"],
    "piper": ["pipeline,read,append mine/*"],
    "exact": ["read mine/one"],
}


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guard"), {**EACH, **MINE}, anonymous=["read open/*"]) as found:
        with found.wire() as wire:
            root = found.bearer("root")
            for path in ("/v1/stream/mine/one", "/v1/stream/theirs/one", "/v1/stream/open/one"):
                assert wire.ask("PUT", path, {**TEXT, **root}, b"some text").status == 201
        yield found


@pytest.fixture
def wire(guard: Guarded) -> Iterator[Wire]:
    with guard.wire() as opened:
        yield opened


# -- Authentication ----------------------------------------------------------------------------------------------------


def test_without_a_credential_only_what_everybody_may_do_works(wire: Wire) -> None:
    assert wire.ask("GET", "/v1/stream/open/one").body == b"some text"
    response = wire.ask("GET", ONE)
    refused(response, 401, "unauthorized")
    assert response.headers["www-authenticate"] == 'Bearer realm="headwater"'
    for path in ("/healthz", "/readyz", "/", "/openapi.json", "/__headwater/whoami"):
        assert wire.ask("GET", path).status == 200
    for path in ("/metrics", "/__headwater/status", "/__headwater/buckets", "/__headwater/streams"):
        refused(wire.ask("GET", path), 401, "unauthorized")


WRONG = ["Bearer", "Bearer ", "bearer x", "Basic eDp5", "Bearer hw_reader_x", "Bearer ey", "Bearer a b", "x" * 4000]


@pytest.mark.parametrize("value", WRONG, ids=lambda value: value[:20])
def test_a_wrong_credential_is_refused_also_where_none_is_needed(wire: Wire, value: str) -> None:
    for path in (ONE, "/v1/stream/open/one"):
        response = wire.ask("GET", path, {"Authorization": value})
        refused(response, 401, "unauthorized")
        assert 'error="invalid_token"' in response.headers["www-authenticate"]


def test_a_token_that_differs_in_anything_is_not_valid(guard: Guarded) -> None:
    token = guard.tokens["reader"]
    another = "B" if token[20] == "A" else "A"
    changed = [
        token[:-1],
        token + "=",
        token.upper(),
        token.replace("reader", "writer"),
        token[:20] + another + token[21:],
    ]
    assert token not in changed
    for other in changed:
        with guard.wire() as wire:
            refused(wire.ask("GET", ONE, {"Authorization": f"Bearer {other}"}), 401, "unauthorized")


def test_two_credentials_are_refused(guard: Guarded) -> None:
    token, ticket = guard.tokens["reader"], guard.ticket("read mine/*")
    with guard.wire() as wire:
        line = f"Authorization: Bearer {token}\r\n"
        twice = f"GET {ONE} HTTP/1.1\r\nHost: localhost\r\n{2 * line}\r\n"
        refused(wire.ask_raw(twice.encode()), 400, "invalid_header")
    with guard.wire() as wire:
        refused(wire.ask("GET", f"{ONE}?access_token={ticket}", guard.bearer("reader")), 400, "bad_request")


def test_a_scheme_is_written_in_any_case(guard: Guarded, wire: Wire) -> None:
    assert wire.ask("GET", ONE, {"Authorization": f"bEaReR {guard.tokens['reader']}"}).status == 200


def test_a_token_with_many_spellings_is_not_kept_in_each(guard: Guarded, wire: Wire) -> None:
    before = resident_bytes(guard.server.pid)
    token = guard.tokens["root"]
    for first in range(0, 4_096, 32):
        blanks = [" " * (20_000 + first + more) for more in range(32)]
        wire.send(b"".join(request("GET", ONE, {"Authorization": f"Bearer {some}{token}"}) for some in blanks))
        assert {wire.receive().status for _ in blanks} == {200}
    assert resident_bytes(guard.server.pid) - before < 40_000_000


def test_a_ticket_gives_what_it_says_until_it_ends(guard: Guarded, wire: Wire) -> None:
    def bearer(ticket: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {ticket}"}

    good = bearer(guard.ticket("read mine/one"))
    assert wire.ask("GET", ONE, good).status == 200
    refused(wire.ask("GET", "/v1/stream/theirs/one", good), 403, "forbidden")
    refused(wire.ask("POST", ONE, {**TEXT, **good}, b"x"), 403, "forbidden")
    short = bearer(guard.ticket("read mine/one", seconds=1))
    assert wire.ask("GET", ONE, short).status == 200
    assert eventually(lambda: wire.ask("GET", ONE, short).status == 401)
    refused(wire.ask("GET", ONE, short), 401, "token_expired")
    assert wire.ask("GET", "/__headwater/whoami", good).body.startswith(b'{"name":"user-1","kind":"ticket"')


def test_a_ticket_in_a_url_is_for_reading_only(guard: Guarded, wire: Wire) -> None:
    ticket = guard.ticket("* mine/*")
    for target in (f"{ONE}?access_token={ticket}", f"{ONE}?offset=-1&access_token={ticket}&live=long-poll"):
        assert wire.ask("GET", target).body.startswith(b"some text")
        assert wire.ask("HEAD", target).status == 200
    for method in ("POST", "PUT", "DELETE"):
        refused(wire.ask(method, f"{ONE}?access_token={ticket}", TEXT, b"x"), 401, "unauthorized")
    token = refused(wire.ask("GET", f"{ONE}?access_token={guard.tokens['reader']}"), 401, "unauthorized")
    assert "Access-file tokens are not accepted in URLs" in token["detail"]
    for missing in ("", "undefined", "null"):
        problem = refused(wire.ask("GET", f"{ONE}?access_token={missing}"), 401, "unauthorized")
        assert "is not a ticket" in problem["detail"]
    refused(wire.ask("GET", f"{ONE}?access_token={ticket}&access_token={ticket}"), 401, "unauthorized")


def test_a_ticket_in_a_url_follows_a_redirect_to_a_snapshot(guard: Guarded, wire: Wire) -> None:
    root, stream = guard.bearer("root"), "/mine-snaps/s"
    wire.ask("PUT", "/mine-snaps", root)
    wire.ask("PUT", stream, {**TEXT, **root}, b"12345")
    assert wire.ask("PUT", f"{stream}/snapshot/5", {**TEXT, **root}, b"folded").status == 204
    ticket = guard.ticket("read mine-snaps/s")
    location = wire.ask("GET", f"{stream}/snapshot?access_token={ticket}").headers["location"]
    assert location.startswith("/mine-snaps/s/snapshot/")
    assert wire.ask("GET", location).body == b"folded"


# -- Authorization -----------------------------------------------------------------------------------------------------

RIGHTS = [
    (method.decode(), endpoint.path, route.action)
    for endpoint in ENDPOINTS
    for method, route in endpoint.routes.items()
]
FILLED = {
    "bucket": "mine",
    "stream": "one",
    "offset": "0",
    "consumer": "r",
    "producer": "p",
    "purge": "9f2c41d07be3a856",
    "namespace": "n",
    "table": "t",
}


@pytest.mark.parametrize(("method", "path", "action"), RIGHTS)
def test_a_route_needs_its_action_and_no_other(guard: Guarded, method: str, path: str, action: Action) -> None:
    target = path.format(**FILLED)
    # Nothing is done to the stream, even where it is allowed.
    condition = {} if method in ("GET", "HEAD") or path.endswith("/tail") else {"If-Match": '"no:1:1"'}
    for other in EACH:
        with guard.wire() as wire:
            query = "?s=mine/one@-1" if path.endswith("/tail") else ""
            body = b'{"streams":[{"stream":"mine/one","offset":"-1"}]}' if path.endswith("/tail") else b""
            wire.send(request(method, target + query, {**guard.bearer(other), **TEXT, **condition}, body))
            status = wire.receive_head()[0]
        allowed = action is Action.NONE or other == f"only-{action.word}"
        assert (status == 403) is not allowed, (method, path, other, status)


SPELLINGS = [
    "/v1/stream/{name}",
    "/v1/streams/{name}",
    "/{name}",
    "/ds/{name}",
    "http://localhost/v1/stream/{name}",
    "/v1/stream/mine%2Fone",
    "/v1/stream/mine%2fone",
    "/v1/stream/%6dine/one",
    "/mine/%6Fne",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_stream_is_judged_by_its_canonical_name(guard: Guarded, wire: Wire, spelling: str) -> None:
    theirs = spelling.format(name="theirs/one").replace("mine", "theirs").replace("%6dine", "%74heirs")
    assert wire.ask("GET", spelling.format(name="mine/one"), guard.bearer("exact")).status == 200
    refused(wire.ask("GET", theirs, guard.bearer("exact")), 403, "forbidden")


def test_a_refusal_says_the_same_of_streams_that_exist_and_do_not(guard: Guarded) -> None:
    def answer(name: str, method: str) -> bytes:
        with guard.wire() as wire:
            response = wire.ask(method, f"/v1/stream/theirs/{name}", {**JSON, **guard.bearer("reader")}, b"1")
            lines = [line for line in response.head.split(b"\r\n") if not line.startswith((b"Date", b"Content-Length"))]
            return b"\n".join(lines) + response.body.replace(name.encode(), b"NAME")

    with guard.wire() as wire:
        root = guard.bearer("root")
        wire.ask("PUT", "/v1/stream/theirs/json", {**JSON, **root}, b"[1]")
        wire.ask("PUT", "/v1/stream/theirs/gone", {**TEXT, **root})
        wire.ask("DELETE", "/v1/stream/theirs/gone", root)
    for method in ("GET", "POST", "DELETE", "PUT"):
        assert len({answer(name, method) for name in ("one", "json", "gone", "none")}) == 1


def test_a_producer_is_refused_with_401(guard: Guarded, wire: Wire) -> None:
    producer = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    response = wire.ask("POST", ONE, {**TEXT, **producer, **guard.bearer("reader")}, b"x")
    refused(response, 401, "producer_forbidden")
    assert 'error="insufficient_scope"' in response.headers["www-authenticate"]
    assert "producer-epoch" not in response.headers


def test_a_fork_needs_the_right_to_read_its_source(guard: Guarded, wire: Wire) -> None:
    maker = guard.bearer("maker")
    for source in ("/v1/stream/theirs/one", "/theirs/one", "/ds/theirs/one", "/v1/stream/theirs%2Fone"):
        fork = {**maker, "Stream-Forked-From": source}
        refused(wire.ask("PUT", "/v1/stream/mine/fork", fork), 403, "forbidden")
        refused(wire.ask("PUT", ONE, fork), 403, "forbidden")
    fork = {"Authorization": f"Bearer {guard.ticket('read theirs/one', 'create mine/*')}"}
    fork["Stream-Forked-From"] = "/v1/stream/theirs/one"
    assert wire.ask("PUT", "/v1/stream/mine/allowed-fork", fork).status == 201


def test_a_listing_stays_within_what_may_be_read(guard: Guarded, wire: Wire) -> None:
    reader, exact = guard.bearer("reader"), guard.bearer("exact")
    names = json.loads(wire.ask("GET", "/__headwater/streams?prefix=mine/", reader).body)["streams"]
    assert all(one["stream_id"].startswith("mine/") for one in names)
    for target in ("/__headwater/streams", "/__headwater/streams?prefix=min", "/__headwater/streams?prefix=theirs/"):
        refused(wire.ask("GET", target, reader), 403, "forbidden")
    for target in ("/__headwater/streams?prefix=mine/one", "/mine/streams", "/mine/streams?prefix=one"):
        refused(wire.ask("GET", target, exact), 403, "forbidden")
    after = wire.ask("GET", "/__headwater/streams?prefix=mine/&after=theirs/", reader)
    assert json.loads(after.body)["streams"] == []


MANY: dict[str, Any] = {
    "describe": {"streams": ["mine/one"] * 999 + ["theirs/one"]},
    "locate": {"records": [["mine/one", 1, 0]] * 999 + [["theirs/one", 1, 0]]},
    "scan": {"ranges": [["mine/one", 1, 0, 1]] * 999 + [["theirs/one", 1, 0, 1]]},
}


@pytest.mark.parametrize("endpoint", MANY)
def test_one_name_that_is_not_allowed_refuses_the_whole_request(guard: Guarded, wire: Wire, endpoint: str) -> None:
    piper, reader = guard.bearer("piper"), guard.bearer("reader")
    body = json.dumps(MANY[endpoint]).encode()
    refused(wire.ask("POST", f"/__headwater/{endpoint}", piper, body), 403, "forbidden")
    allowed = body.replace(b"theirs", b"mine")
    assert wire.ask("POST", f"/__headwater/{endpoint}", piper, allowed).status in (200, 409)
    refused(wire.ask("POST", f"/__headwater/{endpoint}", reader, allowed), 403, "forbidden")


@pytest.mark.parametrize("prefix", ["", "m", "mine", "theirs/"])
def test_streams_are_described_by_a_prefix_within_the_grant_only(guard: Guarded, wire: Wire, prefix: str) -> None:
    def describe(prefix: str) -> int:
        body = json.dumps({"prefix": prefix}).encode()
        return wire.ask("POST", "/__headwater/describe", guard.bearer("piper"), body).status

    assert (describe(prefix), describe("mine/"), describe("mine/o")) == (403, 200, 200)


def test_a_bulk_append_with_one_row_that_is_not_allowed_writes_nothing(guard: Guarded, wire: Wire) -> None:
    def append(name: str, *, create: bool = False) -> Any:
        rows = [row("mine/one", b"more", content_type="text/plain"), row(name, b"x", create=create)]
        headers = {**ARROW, **guard.bearer("piper")}
        return wire.ask("POST", "/__headwater/append", headers, encode(table_of(rows)))

    before = wire.ask("GET", ONE, guard.bearer("root")).body
    refused(append("theirs/one"), 403, "forbidden")
    refused(append("mine/new", create=True), 403, "forbidden")
    assert wire.ask("GET", ONE, guard.bearer("root")).body == before
    assert append("mine/none").status == 200


def test_the_servers_own_resources_need_the_pattern_for_everything(guard: Guarded, wire: Wire) -> None:
    for method, path in (("POST", "flush"), ("GET", "consumers"), ("DELETE", "consumers/other"), ("POST", "swap")):
        refused(wire.ask(method, f"/__headwater/{path}", guard.bearer("piper"), b""), 403, "forbidden")


# -- Before the body ---------------------------------------------------------------------------------------------------


def test_a_large_body_is_refused_before_it_is_read(guard: Guarded) -> None:
    large = {**TEXT, "Content-Length": "100000000", "Expect": "100-continue"}
    for method, path in (("PUT", "/mine/one/snapshot/9"), ("PUT", "/theirs/one/snapshot/9"), ("POST", "/theirs/one")):
        with guard.wire() as wire:
            length = {"Content-Length": "10000000"} if method == "POST" else {}
            wire.send(request(method, path, {**large, **length, **guard.bearer("writer")}))
            refused(wire.receive(), 403, "forbidden")
            assert wire.ended()


@pytest.mark.parametrize("line", ["OPTIONS /v1/stream/mine/one", "GET /healthz", "HEAD /", "GET /v1/stream/open/one"])
def test_strangers_cannot_take_the_memory_for_bodies(guard: Guarded, wire: Wire, line: str) -> None:
    size = 16 * 1024 * 1024
    head = f"{line} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode()
    with ExitStack() as strangers:
        for _ in range(20):
            stranger = strangers.enter_context(guard.wire())
            stranger.send(head)
            assert stranger.receive(bodiless=line.startswith("HEAD")).status == 413
        headers = {**TEXT, **guard.bearer("root")}
        assert wire.ask("PUT", "/v1/stream/other/large", headers, bytes(1_000_000)).status in (200, 201)


def test_each_request_of_a_pipeline_has_its_own_verdict(guard: Guarded, wire: Wire) -> None:
    reader, writer = guard.bearer("reader"), guard.bearer("writer")
    body = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    wire.send(
        request("GET", ONE, reader)
        + request("POST", ONE, {**TEXT, **reader}, body)
        + request("GET", ONE, writer)
        + request("GET", ONE, reader)
        + request("GET", ONE)
    )
    assert [wire.receive().status for _ in range(5)] == [200, 403, 403, 200, 401]


# -- Answers -----------------------------------------------------------------------------------------------------------


def test_only_what_everybody_may_read_is_for_shared_caches(guard: Guarded, wire: Wire) -> None:
    private, public = wire.ask("GET", ONE, guard.bearer("reader")), wire.ask("GET", "/v1/stream/open/one")
    assert private.headers["cache-control"] == "private, no-cache"
    assert private.headers["vary"] == "Stream-Incarnation, Authorization"
    assert public.headers["cache-control"].startswith("public")
    again = wire.ask("GET", ONE, {**guard.bearer("reader"), "If-None-Match": private.headers["etag"]})
    assert (again.status, again.headers["cache-control"]) == (304, "private, no-cache")
    refused(wire.ask("GET", ONE, {"If-None-Match": private.headers["etag"]}), 401, "unauthorized")
    with guard.wire() as live:
        live.send(request("GET", f"{ONE}?offset=-1&live=sse", guard.bearer("reader")))
        assert live.receive_head()[1]["cache-control"] == "no-cache, no-store"


def test_a_guarded_server_does_not_tell_its_version(guard: Guarded, wire: Wire) -> None:
    assert wire.ask("GET", "/healthz").headers["server"] == "headwater"


def test_pages_from_anywhere_may_call_a_guarded_server(guard: Guarded, wire: Wire) -> None:
    page = {**guard.bearer("writer"), **TEXT, "Origin": "https://app.example", "Host": "streams.example"}
    response = wire.ask("POST", ONE, page, b"!")
    assert (response.status, response.headers["access-control-allow-origin"]) == (204, "*")
    assert "access-control-allow-credentials" not in response.headers


# -- Live reads --------------------------------------------------------------------------------------------------------


def test_a_tail_ends_with_its_ticket(guard: Guarded) -> None:
    with guard.wire() as wire, guard.wire() as writer:
        ticket = guard.ticket("read mine/one", seconds=2)
        events = wire.open_sse(f"{ONE}?offset=now&live=sse&access_token={ticket}")
        began = time.monotonic()
        seen = events.rest()
        assert time.monotonic() - began < 10
        assert [event.kind for event in seen[-2:]] == ["control", "credential-expired"]
        assert json.loads(seen[-1].data) == {"reason": "credential_expired"}
        refused(writer.ask("GET", f"{ONE}?access_token={ticket}"), 401, "token_expired")


def test_a_long_poll_is_answered_when_its_ticket_ends(guard: Guarded, wire: Wire) -> None:
    ticket = guard.ticket("read mine/one", seconds=2)
    response = wire.ask("GET", f"{ONE}?offset=now&live=long-poll&access_token={ticket}")
    assert response.status == 204


def test_a_revoked_token_ends_its_tails_and_no_others(tmp_path: Path) -> None:
    everyone = {"stays": ["read a/*"], "goes": ["read a/*"], "narrowed": ["read *"]}
    with guarded(tmp_path, everyone) as guard, guard.wire() as root:
        for name in ("a/s", "b/s"):
            assert root.ask("PUT", f"/v1/stream/{name}", {**TEXT, **guard.bearer("root")}).status == 201
        wires = {name: guard.wire() for name in ("stays", "goes", "narrowed-a", "narrowed-b", "poll")}
        try:
            live = {}
            for name, wire in wires.items():
                path = f"/v1/stream/{'b' if name == 'narrowed-b' else 'a'}/s?offset=now&live="
                bearer = guard.bearer("goes" if name == "poll" else name.partition("-")[0])
                if name == "poll":
                    wire.send(request("GET", f"{path}long-poll", bearer))
                else:
                    wire.send(request("GET", f"{path}sse", bearer))
                    live[name] = wire.receive_sse()
                    assert live[name].event().kind == "control"
            guard.write({"root": ["* *"], "stays": ["read a/*"], "narrowed": ["read a/*"]})
            guard.reload()
            for name in ("goes", "narrowed-b"):
                assert live[name].rest()[-1].kind == "credential-expired"
            assert wires["poll"].receive().status == 204
            assert root.ask("POST", "/v1/stream/a/s", {**TEXT, **guard.bearer("root")}, b"on").status == 204
            for name in ("stays", "narrowed-a"):
                assert live[name].event().data == "on"
            refused(root.ask("GET", "/v1/stream/a/s", guard.bearer("goes")), 401, "unauthorized")
        finally:
            for wire in wires.values():
                wire.close()


def test_a_request_that_waited_in_a_pipeline_is_judged_again(tmp_path: Path) -> None:
    with guarded(tmp_path, {"bob": ["read mine/*"]}, anonymous=["read open/*"]) as guard:
        root = guard.bearer("root")
        with guard.wire() as wire, guard.wire() as pipeline:
            for path in (ONE, "/v1/stream/open/one"):
                assert wire.ask("PUT", path, {**TEXT, **root}, b"old").status == 201
            tail = wire.ask("HEAD", "/v1/stream/open/one").next_offset
            wait = f"/v1/stream/open/one?offset={tail}&live=long-poll&timeout_ms=2000"
            waits = request("GET", wait) + request("GET", ONE, guard.bearer("bob"))
            ends = request("GET", ONE, {"Authorization": f"Bearer {guard.ticket('read mine/*', seconds=1)}"})
            pipeline.send(waits + ends)
            assert pipeline.silent_for(0.2)
            guard.write({"root": ["* *"]}, anonymous=["read open/*"])
            guard.reload()
            assert wire.ask("POST", ONE, {**TEXT, **root}, b"new").status == 204
            assert pipeline.receive().status == 204
            refused(pipeline.receive(), 401, "unauthorized")
            refused(pipeline.receive(), 401, "token_expired")


def test_a_tail_of_many_streams_needs_the_right_to_all_and_ends_with_its_credential(guard: Guarded, wire: Wire) -> None:
    def body(*streams: str) -> bytes:
        return json.dumps({"streams": [{"stream": name, "offset": "-1"} for name in streams]}).encode()

    path = "/__headwater/tail"
    refused(wire.ask("POST", path, guard.bearer("reader"), body("mine/one", "theirs/one")), 403, "forbidden")
    refused(wire.ask("GET", f"{path}?s=theirs/one@-1", guard.bearer("reader")), 403, "forbidden")
    refused(wire.ask("POST", path, None, body("mine/one")), 401, "unauthorized")
    ticket = {"Authorization": f"Bearer {guard.ticket('read mine/one', seconds=2)}"}
    wire.send(request("POST", path, ticket, body("mine/one")))
    events = wire.receive_sse().rest()
    assert (events[0].kind, json.loads(events[-1].data)) == ("batch", {"reason": "credential_expired"})


# -- Reloading ---------------------------------------------------------------------------------------------------------


def test_a_bad_file_changes_nothing_and_a_good_one_takes_effect_by_itself(tmp_path: Path) -> None:
    with guarded(tmp_path, {"reader": ["read a/*"]}) as guard, guard.wire() as wire:
        wire.ask("PUT", "/v1/stream/a/s", {**TEXT, **guard.bearer("root")})
        good = guard.file.read_text()
        guard.file.write_text(good.replace("version = 1", "version = 7"))
        response = wire.ask("POST", "/__headwater/reload", guard.bearer("root"))
        assert (response.status, response.problem["code"]) == (409, "reload_refused")
        assert wire.ask("GET", "/v1/stream/a/s", guard.bearer("reader")).status == 200
        guard.file.write_text(good.replace("read a/*", "read b/*"))
        assert eventually(lambda: wire.ask("GET", "/v1/stream/a/s", guard.bearer("reader")).status == 403)


def test_a_server_without_an_access_file_has_nothing_to_reload(guard: Guarded) -> None:
    with guard.wire() as wire:
        refused(wire.ask("POST", "/__headwater/reload", guard.bearer("piper")), 403, "forbidden")


def test_denied_requests_are_counted(guard: Guarded, wire: Wire) -> None:
    wire.ask("GET", ONE)
    text = wire.ask("GET", "/metrics", guard.bearer("root")).body.decode()
    counts = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("headwater_denied_total"))
    assert float(counts['headwater_denied_total{reason="missing"}']) >= 1
