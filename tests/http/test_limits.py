"""Limits of clients, quotas of buckets, their usage, and the audit log."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headwater.access.allowances import Account
from headwater.access.grants import Action
from headwater.access.limits import Limits
from headwater.cli.serve import serve
from headwater.http.guard.accounts import charge
from headwater.http.wire.requests import Request
from headwater.protocol.refusals import Refusal
from headwater.testing import running_server

from .api.bulk.requests import ARROW, decode, encode, row, table_of
from .guarded import Guarded, guarded
from .processes import eventually
from .sockets import Response, Wire, chunked, refused, request

pytestmark = pytest.mark.attack

TEXT = {"Content-Type": "text/plain"}
STREAM = "/v1/stream/mine/s"
LIMITS = """
[limits.few]
requests_per_second = 20
[limits.quiet]
live_reads = 2
[limits.small]
append_bytes_per_second = "1 MiB"
[limits.narrow]
read_bytes_per_second = "64 KiB"
[limits.paying]
read_bytes_per_second = "256 KiB"
[limits.maker]
creates_per_second = 1
[limits.loader]
creates_per_second = 0.001
[bucket."tight"]
streams = 2
stored_bytes = 10
"""
GRANTS = ["read,append,create,delete,snapshot *"]
BULK_GRANTS = ["pipeline,append,create mine/*"]
BULK = "/__headwater/append"


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("limits")
    names = ("few", "quiet", "small", "narrow", "paying", "maker")
    with guarded(
        folder,
        {**dict.fromkeys([*names, "free"], GRANTS), "loader": BULK_GRANTS, "spark": BULK_GRANTS},
        "--audit",
        str(folder / "audit.log"),
        more=LIMITS,
    ) as one:
        text = one.file.read_text()
        for name, limits in {**dict(zip(names, names, strict=True)), "loader": "loader"}.items():
            text = text.replace(f'id = "{name}"\n', f'id = "{name}"\nlimits = "{limits}"\n')
        one.file.write_text(text)
        one.reload()
        with one.wire() as wire:
            assert wire.ask("PUT", STREAM, {**TEXT, **one.bearer("root")}, b"hello").status == 201
        yield one


@pytest.fixture
def wire(guard: Guarded) -> Iterator[Wire]:
    with guard.wire() as opened:
        yield opened


def test_a_client_that_waits_for_its_answers_is_slowed_down_and_not_refused(guard: Guarded, wire: Wire) -> None:
    began, count = time.monotonic(), 100
    statuses = [wire.ask("POST", STREAM, {**TEXT, **guard.bearer("few")}, b"x").status for _ in range(count)]
    seconds = time.monotonic() - began
    assert set(statuses) == {204}
    # Two bursts of 20 may pass at once.
    assert seconds > (count - 45) / 20 * 0.9


def test_a_client_that_does_not_wait_gets_429_and_when_to_come_again(guard: Guarded) -> None:
    wires = [guard.wire() for _ in range(80)]
    try:
        for one in wires:
            one.send(request("GET", STREAM, guard.bearer("few")))
        responses = [one.receive() for one in wires]
    finally:
        for one in wires:
            one.close()
    over = [response for response in responses if response.status == 429]
    assert over
    refused(over[0], 429, "rate_limited")
    assert int(over[0].headers["retry-after"]) >= 1
    assert over[0].headers["ratelimit-policy"] == '"requests";q=20;w=1'
    assert over[0].headers["ratelimit"].startswith('"requests";r=0;t=')
    with guard.wire() as other:
        assert other.ask("GET", STREAM, guard.bearer("free")).status == 200


def test_muting_holds_back_a_pipeline_and_loses_nothing(guard: Guarded, wire: Wire) -> None:
    time.sleep(2)
    wire.send(60 * request("GET", STREAM, guard.bearer("few")))
    assert {wire.receive().status for _ in range(60)} == {200}


def open_live(guard: Guarded, how: str) -> Wire:
    opened = guard.wire()
    opened.send(request("GET", f"{STREAM}?offset=now&live={how}", guard.bearer("quiet")))
    return opened


def ask_live(guard: Guarded) -> Response:
    with guard.wire() as wire:
        return wire.ask("GET", f"{STREAM}?offset=now&live=long-poll&timeout_ms=1", guard.bearer("quiet"))


def test_live_reads_are_counted_until_they_end_in_any_way(guard: Guarded) -> None:
    for _ in range(3):
        first, second = open_live(guard, "sse"), open_live(guard, "long-poll")
        assert first.receive_sse().event().kind == "control"
        assert eventually(lambda: ask_live(guard).status == 429)
        refused(ask_live(guard), 429, "live_reads_too_many")
        first.close()
        second.close()
        assert eventually(lambda: ask_live(guard).status == 204)
    body = json.dumps({"streams": [{"stream": f"mine/{number}", "offset": "-1"} for number in range(3)]}).encode()
    with guard.wire() as tail:
        response = tail.ask("POST", "/__headwater/tail", guard.bearer("quiet"), body)
        refused(response, 429, "live_reads_too_many")


def test_appended_bytes_are_limited(guard: Guarded, wire: Wire) -> None:
    statuses = []
    for _ in range(4):
        with guard.wire() as one:
            response = one.ask("POST", STREAM, {**TEXT, **guard.bearer("small")}, bytes(15 * 1024 * 1024))
            statuses.append(response.status)
    assert statuses[0] == 204
    assert 429 in statuses


def test_read_bytes_are_limited(guard: Guarded, wire: Wire) -> None:
    path = "/v1/stream/mine/long"
    wire.ask("PUT", path, {**TEXT, **guard.bearer("free")}, bytes(1024 * 1024))
    statuses = []
    for _ in range(6):
        with guard.wire() as one:
            statuses.append(one.ask("GET", f"{path}?offset=-1", guard.bearer("narrow")).status)
    assert statuses[0] == 200
    assert statuses[-1] == 429


@pytest.mark.parametrize(
    ("live", "header"),
    [("", {"Origin": "https://app.example"}), ("", {"X-Request-Id": "one"}), ("&live=long-poll", {})],
)
def test_bytes_count_however_a_page_is_asked_for(guard: Guarded, live: str, header: dict[str, str]) -> None:
    with guard.wire() as wire:
        wire.ask("PUT", "/v1/stream/mine/long", {**TEXT, **guard.bearer("free")}, bytes(1024 * 1024))
        before = used(guard, "free")["read_bytes"]
        page = wire.ask("GET", f"/v1/stream/mine/long?offset=-1{live}", {**guard.bearer("free"), **header})
    assert page.body
    assert used(guard, "free")["read_bytes"] - before == len(page.body)


def used(guard: Guarded, token: str) -> dict[str, int]:
    with guard.wire() as wire:
        found = json.loads(wire.ask("GET", "/__headwater/usage", guard.bearer("root")).body)["principals"]
    one = found[f"token {token}"]
    assert isinstance(one, dict)
    return one


def test_a_tail_of_many_streams_goes_on_when_its_client_has_paid(guard: Guarded, wire: Wire) -> None:
    free, paying = {**TEXT, **guard.bearer("free")}, guard.bearer("paying")
    wire.ask("PUT", "/v1/stream/mine/much", free, bytes(1024 * 1024))
    wire.ask("PUT", "/v1/stream/mine/tailed", free)
    with guard.wire() as tail, guard.wire() as reader:
        tail.send(request("GET", "/__headwater/tail?s=mine/tailed@-1", paying))
        events = tail.receive_sse()
        assert events.event().kind == "batch"
        while reader.ask("GET", "/v1/stream/mine/much?offset=-1", paying).status == 200:
            pass
        assert wire.ask("POST", "/v1/stream/mine/tailed", free, b"news").status == 204
        # Before the heartbeat, which comes after 15 seconds and brings along what waits.
        event = events.event(comments=True)
        assert json.loads(event.data)["text"] == "news"


def test_a_snapshot_without_a_length_counts(guard: Guarded, wire: Wire) -> None:
    free, size = {**TEXT, **guard.bearer("free")}, 300_000
    wire.ask("PUT", "/v1/stream/mine/snapped", free, b"12345")
    before = used(guard, "free")["appended_bytes"]
    head = request("PUT", "/mine/snapped/snapshot/5", {**free, "Transfer-Encoding": "chunked"})
    assert wire.ask_raw(head + chunked(bytes(size))).status == 204
    assert used(guard, "free")["appended_bytes"] - before == size


def test_a_request_that_is_refused_because_of_reads_is_not_charged() -> None:
    account = Account(Limits(None, None, 1, None, None), time.monotonic)
    account.reads.spend(10 * 1024 * 1024)
    refusal = charge(account, Request(b"POST", b"", b"/__headwater/append", b"", {}, bytes(1000)), Action.PIPELINE)
    assert isinstance(refusal, Refusal)
    assert account.usage[:2] == (0, 0)


def test_creations_are_limited(guard: Guarded) -> None:
    statuses = []
    for number in range(10):
        with guard.wire() as one:
            statuses.append(one.ask("PUT", f"/v1/stream/mine/new-{number}", {**TEXT, **guard.bearer("maker")}).status)
    assert statuses[0] == 201
    assert 429 in statuses


def test_a_bucket_takes_no_more_than_its_quota(guard: Guarded, wire: Wire) -> None:
    free = {**TEXT, **guard.bearer("free")}
    assert [wire.ask("PUT", f"/v1/stream/tight/{n}", free).status for n in "ab"] == [201, 201]
    refused(wire.ask("PUT", "/v1/stream/tight/c", free), 507, "quota_exceeded")
    assert wire.ask("PUT", "/v1/stream/tight/a", free).status == 200
    assert wire.ask("POST", "/v1/stream/tight/a", free, b"0123456789").status == 204
    refused(wire.ask("POST", "/v1/stream/tight/b", free, b"x"), 507, "quota_exceeded")
    assert wire.ask("DELETE", "/v1/stream/tight/a", guard.bearer("free")).status == 204
    assert wire.ask("POST", "/v1/stream/tight/b", free, b"x").status == 204


def test_usage_shows_clients_and_buckets_to_administrators(guard: Guarded, wire: Wire) -> None:
    refused(wire.ask("GET", "/__headwater/usage", guard.bearer("free")), 403, "forbidden")
    usage = json.loads(wire.ask("GET", "/__headwater/usage", guard.bearer("root")).body)
    assert usage["principals"]["token few"]["requests"] >= 1
    assert usage["buckets"]["mine"]["streams"] >= 1
    assert not [token for token in guard.tokens.values() if token in json.dumps(usage)]


def test_an_address_has_so_many_connections() -> None:
    with running_server("--address-connections-max", "3") as server:
        open_ones = [Wire(server.url) for _ in range(3)]
        for one in open_ones:
            assert one.ask("GET", "/v1/stream/none").status == 404
        with Wire(server.url) as fourth:
            refused(fourth.ask("GET", "/v1/stream/none"), 503, "overloaded")
            assert fourth.ended()
        open_ones.pop().close()

        def admitted() -> bool:
            with Wire(server.url) as again:
                return again.ask("GET", "/v1/stream/none").status == 404

        assert eventually(admitted)
        for one in open_ones:
            one.close()


def lines(guard: Guarded) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (guard.file.parent / "audit.log").read_text().splitlines()]


def test_the_audit_log_says_who_changed_what_and_who_was_denied(guard: Guarded, wire: Wire) -> None:
    free = {**TEXT, **guard.bearer("free"), "User-Agent": "audited/1.0"}
    odd = "/v1/stream/mine/a%0Ab%22%E2%80%A8c"
    wire.ask("PUT", odd, free)
    wire.ask("PUT", "/v1/stream/mine/forked", {**free, "Stream-Forked-From": odd})
    wire.ask("DELETE", odd, free)
    wire.ask("POST", "/__headwater/flush", free)
    wire.ask("GET", f"{STREAM}?secret=1", {"Authorization": "Bearer hw_stolen_token"})

    def found(event: str, **fields: str) -> bool:
        return any(one["event"] == event and fields.items() <= one.items() for one in lines(guard))

    assert eventually(lambda: found("denied", code="unauthorized", action="read"))
    assert found("created", who="free", name='mine/a\nb"\u2028c', agent="audited/1.0", address="127.0.0.1")
    assert found("forked", who="free", name="mine/forked")
    assert found("deleted", who="free")
    assert found("denied", who="free", code="forbidden", action="pipeline")
    assert found("started")
    assert found("reloaded")
    text = (guard.file.parent / "audit.log").read_text()
    assert not [token for token in [*guard.tokens.values(), "hw_stolen_token", "secret=1"] if token in text]


def created_by(guard: Guarded, who: str) -> list[dict[str, Any]]:
    return [line for line in lines(guard) if line["event"] == "created" and line["who"] == who]


def test_each_creation_of_a_bulk_append_counts_and_the_rest_of_its_rows_do_not(guard: Guarded, wire: Wire) -> None:
    body = encode(
        table_of(row(f"mine/bulk-{number}", b"x", content_type="text/plain", create=True) for number in range(40))
    )
    outcomes = decode(wire.ask("POST", BULK, {**ARROW, **guard.bearer("loader")}, body).body)
    codes = [outcome["code"] for outcome in outcomes]
    assert codes == [None] + ["rate_limited"] * 39
    assert {outcome["status"] for outcome in outcomes} == {200, 429}
    with guard.wire() as other:
        assert other.ask("PUT", "/v1/stream/mine/bulk-more", {**TEXT, **guard.bearer("loader")}).status == 429
    first = encode(table_of([row("mine/bulk-0", b"more")] * 40))
    answer = wire.ask("POST", BULK, {**ARROW, **guard.bearer("loader")}, first)
    assert {outcome["status"] for outcome in decode(answer.body)} == {200}
    usage = json.loads(wire.ask("GET", "/__headwater/usage", guard.bearer("root")).body)
    assert [used["creates"] for name, used in usage["principals"].items() if "loader" in name] == [1]
    assert eventually(lambda: len(created_by(guard, "loader")) == 1)


def test_every_creation_of_a_bulk_append_has_a_line_and_nothing_else_of_it(guard: Guarded, wire: Wire) -> None:
    rows = [row(f"mine/spark-{number}", b"x", create=True) for number in (1, 2, 1)]
    # The last header is about single creations, and says nothing here.
    spark = {**ARROW, **guard.bearer("spark"), "User-Agent": "spark/4", "Stream-Forked-From": "/v1/stream/mine/s"}
    for _ in range(2):
        assert wire.ask("POST", BULK, spark, encode(table_of(rows))).status == 200
    assert wire.ask("POST", BULK, spark, encode(table_of([row("theirs/one", b"x", create=True)]))).status == 403
    denied = {"event": "denied", "who": "spark", "action": "pipeline", "name": "theirs/one", "code": "forbidden"}
    assert eventually(lambda: any(denied.items() <= line.items() for line in lines(guard)))
    found = created_by(guard, "spark")
    assert [line["name"] for line in found] == ["mine/spark-1", "mine/spark-2"]
    assert all(line["address"] == "127.0.0.1" and line["agent"] == "spark/4" for line in found)


def test_a_listing_beyond_the_rights_of_a_client_is_recorded(guard: Guarded, wire: Wire) -> None:
    assert wire.ask("GET", "/theirs/streams", guard.bearer("spark")).status == 403
    denied = {"event": "denied", "who": "spark", "action": "read"}
    assert eventually(lambda: any(denied.items() <= line.items() for line in lines(guard)))


def test_an_audit_log_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    done = CliRunner().invoke(serve, ["--memory", "--audit", str(tmp_path / "none" / "audit.log")])
    assert (done.exit_code, "cannot be written" in done.output) == (2, True)
