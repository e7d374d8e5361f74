"""Catch-up reads, HEAD, caching, lifetimes, forks and incarnations, as a client sees them."""

import json
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from headwater.testing import RunningServer, running_server

from ..processes import eventually
from ..sockets import Response, Wire, refused, request

TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
ZERO = "0000000000000000_0000000000000000"
CACHED = "public, max-age=60, stale-while-revalidate=300"


def forked(source: str, offset: str | None = None, steps: int | None = None) -> dict[str, str]:
    headers = {"Stream-Forked-From": source}
    if offset is not None:
        headers["Stream-Fork-Offset"] = offset
    if steps is not None:
        headers["Stream-Fork-Sub-Offset"] = str(steps)
    return headers


# -- Catch-up ----------------------------------------------------------------------------------------------------------


def test_a_read_gives_what_was_written_with_its_content_type_and_the_next_offset(wire: Wire, path: str) -> None:
    wire.ask("PUT", path, {"Content-Type": "text/plain;charset=UTF-8"}, b"abc")
    tail = wire.ask("POST", path, TEXT, b"def").next_offset
    response = wire.ask("GET", path)
    assert (response.status, response.body) == (200, b"abcdef")
    assert response.headers["content-type"] == "text/plain;charset=UTF-8"
    assert response.next_offset == tail
    assert response.headers["stream-up-to-date"] == "true"
    assert "stream-closed" not in response.headers


@pytest.mark.parametrize("beginning", ["", "?offset=-1", f"?offset={ZERO}", "?offset=00000000000000000000"])
def test_the_beginning_has_several_names(wire: Wire, text: str, beginning: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    assert wire.ask("GET", f"{text}{beginning}").body == b"abc"


def test_offsets_sort_as_strings_and_a_read_goes_on_where_the_last_one_ended(wire: Wire, text: str) -> None:
    offsets = [wire.ask("HEAD", text).next_offset]
    assert offsets == [ZERO]
    for number in range(12):
        offsets.append(wire.ask("POST", text, TEXT, b"%d" % number).next_offset)
    assert offsets == sorted(set(offsets))
    for number, offset in enumerate(offsets[:-1]):
        assert wire.ask("GET", f"{text}?offset={offset}").body == "".join(map(str, range(number, 12))).encode()


@pytest.mark.parametrize(("headers", "empty"), [(TEXT, b""), (JSON, b"[]"), ({}, b"")])
def test_a_read_at_the_tail_is_empty_and_up_to_date(
    wire: Wire, path: str, headers: dict[str, str], empty: bytes
) -> None:
    wire.ask("PUT", path, headers)
    for _ in range(2):
        tail = wire.ask("HEAD", path).next_offset
        for offset in (tail, "now"):
            response = wire.ask("GET", f"{path}?offset={offset}")
            assert (response.status, response.body, response.next_offset) == (200, empty, tail)
            assert response.headers["stream-up-to-date"] == "true"
        wire.ask("POST", path, headers or {"Content-Type": "application/octet-stream"}, b"1")


def test_a_closed_stream_says_so_at_its_end_only(wire: Wire, text: str) -> None:
    first = wire.ask("POST", text, TEXT, b"abc").next_offset
    closed = wire.ask("POST", text, {**TEXT, "Stream-Closed": "true"}, b"def")
    assert (closed.status, closed.headers["stream-closed"]) == (204, "true")
    for query in ("", f"?offset={first}", f"?offset={closed.next_offset}", "?offset=now"):
        assert wire.ask("GET", f"{text}{query}").headers["stream-closed"] == "true"
    assert wire.ask("HEAD", text).headers["stream-closed"] == "true"


@pytest.fixture(scope="module")
def small() -> Iterator[RunningServer]:
    with running_server("--page-bytes", "100") as server:
        yield server


def pages(wire: Wire, path: str, offset: str = "-1", more: str = "") -> Iterator[Response]:
    """Every page from an offset to the tail."""
    while True:
        response = wire.ask("GET", f"{path}?offset={offset}{more}")
        assert response.status == 200, response.body
        yield response
        if "stream-up-to-date" in response.headers:
            return
        assert response.next_offset > offset or offset == "-1"
        assert "stream-closed" not in response.headers
        offset = response.next_offset


def test_pages_hold_whole_messages_or_a_part_of_one_and_together_all_bytes(small: RunningServer, path: str) -> None:
    dice = random.Random(1)
    messages = [dice.randbytes(dice.choice([1, 5, 30, 60, 99, 100, 101, 500])) for _ in range(60)]
    with Wire(small.url) as wire:
        wire.ask("PUT", path, {})
        offsets = [
            wire.ask("POST", path, {"Content-Type": "application/octet-stream"}, message).next_offset
            for message in messages
        ]
        wire.ask("POST", path, {"Stream-Closed": "true"})
        read = list(pages(wire, path))
    assert b"".join(page.body for page in read) == b"".join(messages)
    # A page ends with a message, unless it is the part of one that is longer than a page.
    assert all(page.next_offset in offsets or any(page.body in message for message in messages) for page in read)
    assert all(len(page.body) <= 100 for page in read)
    assert len(read) > 20
    assert read[-1].headers["stream-closed"] == "true"


def test_pages_of_json_are_arrays_of_whole_messages(small: RunningServer, path: str) -> None:
    messages = [json.dumps({"n": n, "text": "x" * (n * 7 % 150)}) for n in range(50)]
    with Wire(small.url) as wire:
        wire.ask("PUT", path, JSON)
        for at in range(0, 50, 10):
            wire.ask("POST", path, JSON, f"[{','.join(messages[at : at + 10])}]".encode())
        read = list(pages(wire, path))
    assert len(read) > 20
    assert all(page.body[:1] + page.body[-1:] == b"[]" for page in read)
    assert b",".join(page.body[1:-1] for page in read).decode() == ",".join(messages)
    assert [message for page in read for message in json.loads(page.body)] == list(map(json.loads, messages))


def test_max_bytes_makes_pages_smaller_never_larger(small: RunningServer, path: str) -> None:
    with Wire(small.url) as wire:
        wire.ask("PUT", path, TEXT)
        for _ in range(30):
            wire.ask("POST", path, TEXT, b"0123456789")
        assert [len(page.body) for page in pages(wire, path)] == [100, 100, 100]
        assert {len(page.body) for page in pages(wire, path, more="&max_bytes=25")} == {20}
        assert {len(page.body) for page in pages(wire, path, more="&max_bytes=4")} == {4, 2}
        assert {len(page.body) for page in pages(wire, path, more="&max_bytes=1000000")} == {100}
        for bad in ("0", "-1", "abc", "1.5", "", "01", "1e3"):
            refused(wire.ask("GET", f"{path}?offset=-1&max_bytes={bad}"), 400, "bad_request")


def test_pages_reach_through_forks(small: RunningServer, path: str) -> None:
    with Wire(small.url) as wire:
        wire.ask("PUT", path, TEXT)
        written = b""
        for depth in range(8):
            for number in range(7):
                message = b"%d.%d " % (depth, number) * (number + 1)
                written += message
                assert wire.ask("POST", path, TEXT, message).status == 204
            source, path = path, f"{path}-f"
            assert wire.ask("PUT", path, forked(source)).status == 201
        read = list(pages(wire, path))
    assert b"".join(page.body for page in read) == written
    assert all(len(page.body) <= 100 for page in read)


def test_readers_during_writes_see_a_prefix(server: RunningServer, wire: Wire, text: str) -> None:
    with Wire(server.url) as reader:
        written = b""
        for number in range(100):
            message = b"%04d;" % number
            wire.ask("POST", text, TEXT, message)
            written += message
            assert reader.ask("GET", text).body == written


# -- ETags and caching -------------------------------------------------------------------------------------------------


def test_an_etag_changes_with_an_append_a_close_and_a_re_creation(wire: Wire, text: str) -> None:
    tags = []
    for change in (
        ("POST", text, TEXT, b"abc"),
        ("POST", text, TEXT, b"def"),
        ("POST", text, {"Stream-Closed": "true"}, None),
        ("DELETE", text, {}, None),
        ("PUT", text, TEXT, b"abcdef"),
    ):
        wire.ask(*change)
        read = wire.ask("GET", text)
        if read.status == 200:
            tags.append(read.headers["etag"])
            assert wire.ask("HEAD", text).headers["etag"] == read.headers["etag"]
    assert len(set(tags)) == len(tags) == 4
    assert all(tag.startswith('"') and tag.endswith('"') for tag in tags)


def test_a_stale_tag_of_an_earlier_life_is_never_current_again(wire: Wire, text: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    tag = wire.ask("GET", text).headers["etag"]
    wire.ask("DELETE", text)
    wire.ask("PUT", text, TEXT, b"xyz")
    response = wire.ask("GET", text, {"If-None-Match": tag})
    assert (response.status, response.body) == (200, b"xyz")


MATCHING = ["{tag}", "*", "W/{tag}", '"other", {tag}', '"other",{tag} , W/"third"', 'W/"x", W/{tag}', '"a,b", {tag}']


@pytest.mark.parametrize("condition", MATCHING)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_client_that_has_it_already_gets_304(wire: Wire, text: str, method: str, condition: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    full = wire.ask(method, text)
    tag = full.headers["etag"]
    response = wire.ask(method, text, {"If-None-Match": condition.format(tag=tag)})
    assert (response.status, response.body, response.headers["etag"]) == (304, b"", tag)
    for name in ("cache-control", "stream-next-offset", "stream-incarnation"):
        assert response.headers[name] == full.headers[name]
    if method == "GET":
        assert response.headers["stream-up-to-date"] == "true"


@pytest.mark.parametrize("condition", ['"other"', "garbage", "", '"{bare}', "{bare}", '"x{bare}"', "**", '"*"'])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_client_that_has_something_else_gets_it_all(wire: Wire, text: str, method: str, condition: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    tag = wire.ask(method, text).headers["etag"]
    response = wire.ask(method, text, {"If-None-Match": condition.replace("{bare}", tag.strip('"'))})
    assert response.status == 200


def test_a_tag_is_of_a_range(wire: Wire, text: str) -> None:
    middle = wire.ask("POST", text, TEXT, b"abc").next_offset
    wire.ask("POST", text, TEXT, b"def")
    whole = wire.ask("GET", text).headers["etag"]
    part = wire.ask("GET", f"{text}?offset={middle}").headers["etag"]
    assert whole != part
    assert wire.ask("GET", f"{text}?offset={middle}", {"If-None-Match": whole}).body == b"def"
    assert wire.ask("GET", f"{text}?offset={middle}", {"If-None-Match": part}).status == 304


def test_a_missing_stream_matches_nothing(wire: Wire, path: str) -> None:
    assert wire.ask("GET", path, {"If-None-Match": "*"}).status == 404


def test_what_may_be_cached_and_what_not(wire: Wire, text: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    assert wire.ask("GET", text).headers["cache-control"] == CACHED
    assert wire.ask("HEAD", text).headers["cache-control"] == "no-store"
    now = wire.ask("GET", f"{text}?offset=now")
    assert now.headers["cache-control"] == "no-store"
    assert "etag" not in now.headers
    # At the tail there is nothing yet; a shared cache that kept this would hide later data.
    tail = wire.ask("GET", f"{text}?offset={now.next_offset}")
    assert not tail.headers["cache-control"].startswith("public")
    nothing = wire.ask("GET", f"{text}?offset=now&live=long-poll&timeout_ms=1")
    assert nothing.headers["cache-control"] == "no-store"


def test_a_cache_may_not_give_a_page_to_a_client_that_names_another_incarnation(wire: Wire, text: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    page = wire.ask("GET", text)
    responses = [
        page,
        wire.ask("GET", f"{text}?offset={page.next_offset}"),
        wire.ask("GET", f"{text}?offset=-1&live=long-poll"),
        wire.ask("GET", text, {"If-None-Match": page.headers["etag"]}),
        wire.ask("HEAD", text),
        wire.ask("GET", text, {"X-Request-Id": "a"}),
    ]
    assert [response.status for response in responses] == [200, 200, 200, 304, 200, 200]
    assert [response.headers["vary"] for response in responses] == ["Stream-Incarnation, Origin"] * 6


def test_now_ignores_a_condition(wire: Wire, text: str) -> None:
    assert wire.ask("GET", f"{text}?offset=now", {"If-None-Match": "*"}).status == 200


# -- HEAD --------------------------------------------------------------------------------------------------------------


def test_head_shows_what_a_stream_is(wire: Wire, path: str) -> None:
    wire.ask("PUT", path, {**TEXT, "Stream-TTL": "3600"})
    tail = wire.ask("POST", path, TEXT, b"abc").next_offset
    head = wire.ask("HEAD", path)
    assert (head.status, head.next_offset) == (200, tail)
    assert (head.headers["content-type"], head.headers["stream-ttl"]) == ("text/plain", "3600")
    assert "stream-closed" not in head.headers
    assert "stream-expires-at" not in head.headers


def test_head_shows_an_instant_as_it_was_written(wire: Wire, path: str) -> None:
    wire.ask("PUT", path, {"Stream-Expires-At": "2100-01-01T02:00:00.5+02:00"})
    head = wire.ask("HEAD", path)
    assert head.headers["stream-expires-at"] == "2100-01-01T02:00:00.5+02:00"
    assert "stream-ttl" not in head.headers


# -- Lifetimes ---------------------------------------------------------------------------------------------------------


def test_a_lifetime_of_nothing_is_created_and_gone_at_once(wire: Wire, path: str) -> None:
    for headers in ({"Stream-TTL": "0"}, {"Stream-Expires-At": "2001-01-01T00:00:00Z"}):
        assert wire.ask("PUT", path, {**TEXT, **headers}).status == 201
        assert wire.ask("HEAD", path).status == 404
        refused(wire.ask("GET", path), 404, "stream_not_found")
        refused(wire.ask("POST", path, TEXT, b"abc"), 404, "stream_not_found")
        refused(wire.ask("DELETE", path), 404, "stream_not_found")
    assert wire.ask("PUT", path, JSON, b"1").status == 201
    assert wire.ask("GET", path).body == b"[1]"


def test_a_stream_expires_when_its_instant_comes_however_much_it_is_read(wire: Wire, path: str) -> None:
    instant = datetime.now(UTC) + timedelta(seconds=0.8)
    wire.ask("PUT", path, {**TEXT, "Stream-Expires-At": instant.isoformat().replace("+00:00", "Z")}, b"abc")
    assert wire.ask("GET", path).status == 200
    assert eventually(lambda: wire.ask("GET", path).status == 404, 5)
    assert datetime.now(UTC) >= instant
    created = wire.ask("PUT", path, JSON)
    assert created.status == 201
    assert wire.ask("GET", path).body == b"[]"


def test_a_ttl_slides_with_every_read_and_write_but_not_with_head(server: RunningServer, path: str) -> None:
    """Several streams over two lifetimes, each used in another way, or not at all."""
    with Wire(server.url) as wire:
        paths = {kind: f"{path}-{kind}" for kind in ("read", "now", "poll", "append", "head", "unused")}
        for each in paths.values():
            wire.ask("PUT", each, {**TEXT, "Stream-TTL": "2"})
        looked = [200]
        began = time.monotonic()
        while time.monotonic() - began < 4.6:
            assert wire.ask("GET", paths["read"]).status == 200
            assert wire.ask("GET", f"{paths['now']}?offset=now").status == 200
            assert wire.ask("GET", f"{paths['poll']}?offset=now&live=long-poll&timeout_ms=1").status == 204
            assert wire.ask("POST", paths["append"], TEXT, b"x").status == 204
            looked.append(wire.ask("HEAD", paths["head"]).status)
            time.sleep(0.3)
        assert looked[:3] == [200, 200, 200]
        assert looked[-1] == 404
        assert looked == sorted(looked)
        assert wire.ask("HEAD", paths["unused"]).status == 404
        assert wire.ask("PUT", paths["head"], JSON).status == 201


def test_a_close_renews_a_ttl(wire: Wire, path: str) -> None:
    wire.ask("PUT", path, {**TEXT, "Stream-TTL": "2"})
    for _ in range(3):
        time.sleep(0.9)
        assert wire.ask("POST", path, {"Stream-Closed": "true"}).status == 204


def test_live_readers_keep_a_stream_alive_and_it_goes_after_them(server: RunningServer, wire: Wire, path: str) -> None:
    sse, poll = f"{path}-sse", f"{path}-poll"
    for each in (sse, poll):
        wire.ask("PUT", each, {**TEXT, "Stream-TTL": "1"})
    with Wire(server.url) as listener, Wire(server.url) as poller:
        events = listener.open_sse(f"{sse}?offset=-1&live=sse")
        poller.send(request_poll(poll, 2500))
        assert events.event().kind == "control"
        assert poller.receive().status == 204
        assert wire.ask("HEAD", sse).status == 200
        assert wire.ask("HEAD", poll).status == 200
    assert eventually(lambda: {wire.ask("HEAD", each).status for each in (sse, poll)} == {404}, 5)


def request_poll(path: str, timeout_ms: int) -> bytes:
    return request("GET", f"{path}?offset=-1&live=long-poll&timeout_ms={timeout_ms}")


def test_expiry_ends_live_reads(server: RunningServer, wire: Wire, path: str) -> None:
    instant = datetime.now(UTC) + timedelta(seconds=0.7)
    wire.ask("PUT", path, {**TEXT, "Stream-Expires-At": instant.isoformat()})
    with Wire(server.url) as listener, Wire(server.url) as poller:
        events = listener.open_sse(f"{path}?offset=-1&live=sse")
        poller.send(request_poll(path, 20_000))
        assert len(events.rest()) == 1
        refused(poller.receive(), 404, "stream_not_found")
    assert datetime.now(UTC) - instant < timedelta(seconds=5)


# -- Incarnations ------------------------------------------------------------------------------------------------------


def test_every_response_about_a_stream_names_its_life(wire: Wire, path: str) -> None:
    created = wire.ask("PUT", path, TEXT, b"abc")
    life = created.headers["stream-incarnation"]
    producer = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    etag = wire.ask("GET", path).headers["etag"]
    for response in (
        wire.ask("PUT", path, TEXT),
        wire.ask("HEAD", path),
        wire.ask("GET", path),
        wire.ask("GET", f"{path}?offset=now"),
        wire.ask("GET", path, {"If-None-Match": etag}),
        wire.ask("GET", f"{path}?offset=-1&live=long-poll"),
        wire.ask("GET", f"{path}?offset=now&live=long-poll&timeout_ms=1"),
        wire.ask("POST", path, TEXT, b"def"),
        wire.ask("POST", path, {**TEXT, **producer}, b"ghi"),
        wire.ask("POST", path, {**TEXT, **producer}, b"ghi"),
        wire.ask("POST", path, {**TEXT, **producer, "Producer-Seq": "9"}, b"ghi"),
        wire.ask("POST", path, JSON, b"1"),
        wire.ask("PUT", path, JSON),
        wire.ask("GET", f"{path}?offset=9999999999999999_9999999999999999"),
        wire.ask("POST", path, {"Stream-Closed": "true"}),
        wire.ask("POST", path, TEXT, b"jkl"),
        wire.ask("DELETE", path),
    ):
        assert response.headers.get("stream-incarnation") == life, response.head


def test_a_live_read_names_the_life_it_reads(wire: Wire, text: str) -> None:
    life = wire.ask("HEAD", text).headers["stream-incarnation"]
    events = wire.open_sse(f"{text}?offset=-1&live=sse")
    assert events.headers["stream-incarnation"] == life
    assert str(events.event().id).endswith(f"/{life}")


def test_no_life_is_named_like_another(wire: Wire, text: str) -> None:
    lives = [wire.ask("HEAD", text).headers["stream-incarnation"]]
    for _ in range(5):
        wire.ask("DELETE", text)
        lives.append(wire.ask("PUT", text, TEXT).headers["stream-incarnation"])
    assert len(set(lives)) == 6


def test_a_re_created_stream_has_nothing_of_the_old_one(wire: Wire, path: str) -> None:
    producer = {"Producer-Id": "p", "Producer-Epoch": "7", "Producer-Seq": "0"}
    wire.ask("PUT", path, {**TEXT, "Stream-TTL": "100"}, b"old")
    wire.ask("POST", path, {**TEXT, **producer, "Stream-Seq": "z", "Stream-Closed": "true"}, b" bytes")
    wire.ask("DELETE", path)
    assert wire.ask("PUT", path, TEXT).status == 201
    head = wire.ask("HEAD", path)
    assert head.next_offset == ZERO
    assert not head.headers.keys() & {"stream-ttl", "stream-closed"}
    headers = {**TEXT, **producer, "Producer-Epoch": "0", "Stream-Seq": "a"}
    assert wire.ask("POST", path, headers, b"new").status == 200
    assert wire.ask("GET", path).body == b"new"


# -- Forks -------------------------------------------------------------------------------------------------------------


def test_a_fork_shares_the_past_and_nothing_after_it(wire: Wire, text: str) -> None:
    fork = f"{text}-fork"
    middle = wire.ask("POST", text, TEXT, b"abc").next_offset
    tail = wire.ask("POST", text, TEXT, b"def").next_offset
    created = wire.ask("PUT", fork, forked(text))
    assert (created.status, created.next_offset, created.headers["content-type"]) == (201, tail, "text/plain")
    assert not [name for name in created.headers if "fork" in name]
    wire.ask("POST", text, TEXT, b"source")
    wire.ask("POST", fork, TEXT, b"fork")
    assert wire.ask("GET", text).body == b"abcdefsource"
    assert wire.ask("GET", fork).body == b"abcdeffork"
    assert wire.ask("GET", f"{fork}?offset={middle}").body == b"deffork"
    assert wire.ask("GET", f"{fork}?offset={tail}").body == b"fork"


def test_a_fork_at_an_offset_takes_what_is_before_it(wire: Wire, text: str) -> None:
    middle = wire.ask("POST", text, TEXT, b"abc").next_offset
    wire.ask("POST", text, TEXT, b"def")
    assert wire.ask("PUT", f"{text}-a", forked(text, middle), b"!").status == 201
    assert wire.ask("PUT", f"{text}-b", forked(text, ZERO)).status == 201
    assert wire.ask("GET", f"{text}-a").body == b"abc!"
    assert wire.ask("GET", f"{text}-b").body == b""


def test_a_fork_of_bytes_may_end_within_an_append(wire: Wire, text: str) -> None:
    middle = wire.ask("POST", text, TEXT, b"abc").next_offset
    wire.ask("POST", text, TEXT, b"defg")
    for steps, inherited in enumerate([b"abc", b"abcd", b"abcde", b"abcdef", b"abcdefg"]):
        fork = f"{text}-{steps}"
        assert wire.ask("PUT", fork, forked(text, middle, steps), b"!").status == 201
        assert wire.ask("GET", fork).body == inherited + b"!"


def test_a_fork_of_json_may_end_within_an_array(wire: Wire, documents: str) -> None:
    wire.ask("POST", documents, JSON, b'[1,{"two":2},"three"]')
    wire.ask("POST", documents, JSON, b"[4]")
    for steps, inherited in enumerate([b"", b"1,", b'1,{"two":2},', b'1,{"two":2},"three",']):
        fork = f"{documents}-{steps}"
        assert wire.ask("PUT", fork, forked(documents, ZERO, steps), b"[5,6]").status == 201
        assert wire.ask("GET", fork).body == b"[" + inherited + b"5,6]"


def test_forks_of_forks_compose(wire: Wire, text: str) -> None:
    wire.ask("POST", text, TEXT, b"abcdef")
    assert wire.ask("PUT", f"{text}-1", forked(text, ZERO, 4), b"12").status == 201
    assert wire.ask("PUT", f"{text}-2", forked(f"{text}-1", ZERO, 3), b"xy").status == 201
    assert wire.ask("PUT", f"{text}-3", forked(f"{text}-2"), b"!").status == 201
    assert wire.ask("PUT", f"{text}-4", forked(f"{text}-3", ZERO, 2)).status == 201
    bodies = [wire.ask("GET", f"{text}-{depth}").body for depth in (1, 2, 3, 4)]
    assert bodies == [b"abcd12", b"abcxy", b"abcxy!", b"ab"]


def test_many_forks_may_be_made_one_right_after_the_other(server: RunningServer, wire: Wire, text: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    for number in range(30):
        assert wire.ask("PUT", f"{text}-{number}", forked(text), b"%d" % number).status == 201
    wire.send(b"".join(request("PUT", f"{text}-p{number}", forked(text)) for number in range(30)))
    assert [wire.receive().status for _ in range(30)] == [201] * 30
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda n: put(server.url, f"{text}-t{n}", forked(text)), range(40)))
    assert statuses == [201] * 40
    assert wire.ask("GET", f"{text}-29").body == b"abc29"


def put(url: str, path: str, headers: dict[str, str]) -> int:
    with Wire(url) as wire:
        return wire.ask("PUT", path, headers).status


def test_a_fork_is_open_though_its_source_is_closed_and_closing_it_leaves_the_source_open(
    wire: Wire, text: str
) -> None:
    wire.ask("PUT", f"{text}-closed", {**TEXT, "Stream-Closed": "true"}, b"abc")
    assert "stream-closed" not in wire.ask("PUT", f"{text}-open", forked(f"{text}-closed")).headers
    assert wire.ask("POST", f"{text}-open", {**TEXT, "Stream-Closed": "true"}, b"def").status == 204
    assert wire.ask("PUT", f"{text}-born-closed", {**forked(text), "Stream-Closed": "true"}, b"x").status == 201
    assert wire.ask("GET", f"{text}-born-closed").headers["stream-closed"] == "true"
    assert wire.ask("POST", text, TEXT, b"still open").status == 204


def test_a_fork_inherits_the_lifetime_unless_it_has_its_own(wire: Wire, path: str) -> None:
    wire.ask("PUT", path, {**TEXT, "Stream-TTL": "1000"})
    instant = "2100-01-01T00:00:00Z"
    assert wire.ask("PUT", f"{path}-1", forked(path)).status == 201
    assert wire.ask("PUT", f"{path}-2", {**forked(path), "Stream-TTL": "5000"}).status == 201
    assert wire.ask("PUT", f"{path}-3", {**forked(path), "Stream-Expires-At": instant}).status == 201
    heads = [wire.ask("HEAD", f"{path}-{number}").headers for number in (1, 2, 3)]
    assert [head.get("stream-ttl") for head in heads] == ["1000", "5000", None]
    assert heads[2]["stream-expires-at"] == instant


def test_a_second_put_of_a_fork_is_the_same_fork(wire: Wire, path: str) -> None:
    wire.ask("PUT", path, {**TEXT, "Stream-TTL": "1000"}, b"abc")
    headers = forked(path)
    assert wire.ask("PUT", f"{path}-fork", headers).status == 201
    wire.ask("POST", path, TEXT, b"the tail moves on")
    assert wire.ask("PUT", f"{path}-fork", headers).status == 200
    assert wire.ask("PUT", f"{path}-fork", {**headers, "Content-Type": "Text/Plain"}).status == 200
    wire.ask("DELETE", path)
    # The fork exists, so it does not matter that its source can no longer be forked.
    assert wire.ask("PUT", f"{path}-fork", headers).status == 200


def test_producers_and_sequences_of_the_source_are_not_those_of_the_fork(wire: Wire, text: str) -> None:
    headers = {**TEXT, "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0", "Stream-Seq": "z"}
    assert wire.ask("POST", text, headers, b"abc").status == 200
    assert wire.ask("PUT", f"{text}-fork", forked(text)).status == 201
    assert wire.ask("POST", f"{text}-fork", {**headers, "Stream-Seq": "a"}, b"def").status == 200
    assert wire.ask("GET", f"{text}-fork").body == b"abcdef"


def test_a_deleted_source_lives_on_in_its_forks_and_goes_with_the_last_of_them(wire: Wire, text: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    wire.ask("PUT", f"{text}-1", forked(text), b"1")
    wire.ask("PUT", f"{text}-2", forked(text), b"2")
    wire.ask("PUT", f"{text}-1-1", forked(f"{text}-1"), b"!")
    assert wire.ask("DELETE", text).status == 204
    assert wire.ask("DELETE", f"{text}-1").status == 204
    assert [wire.ask("HEAD", each).status for each in (text, f"{text}-1")] == [410, 410]
    assert wire.ask("GET", f"{text}-1-1").body == b"abc1!"
    assert wire.ask("GET", f"{text}-2").body == b"abc2"
    assert wire.ask("DELETE", f"{text}-2").status == 204
    assert wire.ask("HEAD", text).status == 410
    assert wire.ask("DELETE", f"{text}-1-1").status == 204
    assert eventually(lambda: {wire.ask("HEAD", each).status for each in (text, f"{text}-1")} == {404}, 5)
    assert wire.ask("PUT", text, JSON).status == 201


def test_an_expired_source_lives_on_in_its_forks_too(wire: Wire, path: str) -> None:
    wire.ask("PUT", path, {**TEXT, "Stream-TTL": "1"}, b"abc")
    assert wire.ask("PUT", f"{path}-fork", {**forked(path), "Stream-TTL": "1000"}, b"def").status == 201
    assert eventually(lambda: wire.ask("HEAD", path).status == 410, 5)
    assert wire.ask("GET", f"{path}-fork").body == b"abcdef"
    refused(wire.ask("PUT", path, TEXT), 409, "fork_conflict")
    refused(wire.ask("GET", path), 410, "stream_gone")
    wire.ask("DELETE", f"{path}-fork")
    assert eventually(lambda: wire.ask("HEAD", path).status == 404, 5)


def test_a_source_that_was_not_deleted_outlives_its_forks(wire: Wire, text: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    wire.ask("PUT", f"{text}-fork", forked(text))
    wire.ask("DELETE", f"{text}-fork")
    assert wire.ask("GET", text).body == b"abc"
    assert wire.ask("DELETE", text).status == 204
    assert wire.ask("HEAD", text).status == 404


def test_a_live_read_of_a_fork_gives_the_past_at_once_and_waits_for_its_own_future(
    server: RunningServer, wire: Wire, text: str
) -> None:
    fork = f"{text}-fork"
    wire.ask("POST", text, TEXT, b"abc")
    wire.ask("PUT", fork, forked(text))
    assert wire.ask("GET", f"{fork}?offset={ZERO}&live=long-poll").body == b"abc"
    with Wire(server.url) as poller:
        poller.send(request("GET", f"{fork}?offset=now&live=long-poll"))
        wire.ask("POST", text, TEXT, b"source")
        assert poller.silent_for(0.2)
        wire.ask("POST", fork, TEXT, b"fork")
        assert poller.receive().body == b"fork"
