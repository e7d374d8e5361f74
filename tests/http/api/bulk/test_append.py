"""Appends to many streams in one request: each row is an append, judged as if it had been sent alone."""

import json
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.protocol.limits import APPEND_BYTES_MAX, MESSAGES_PER_APPEND_MAX, PRODUCER_ID_BYTES_MAX
from headwater.testing import RunningServer

from ...sockets import Wire, request
from .requests import (
    ARROW,
    PATH,
    PATIENCE_SECONDS,
    bulk,
    bulk_table,
    codes,
    decode,
    encode,
    missing,
    read,
    row,
    statuses,
    table_of,
)

_numbers = count(1)

TEXT = "text/plain"
JSON = "application/json"


@pytest.fixture
def wire(server: RunningServer) -> Iterator[Wire]:
    """A connection with long timeouts, since some of these requests are large."""
    with Wire(server.url, timeout_seconds=PATIENCE_SECONDS) as wire:
        yield wire


@pytest.fixture
def name() -> str:
    """The whole name of a stream that no other test uses; nothing exists there yet."""
    return f"bulk/s{next(_numbers)}"


def tail(wire: Wire, name: str) -> int:
    return int(wire.ask("HEAD", f"/v1/stream/{name}").next_offset.rpartition("_")[2]) // 10


def make(wire: Wire, name: str, content_type: str = TEXT) -> str:
    assert wire.ask("PUT", f"/v1/stream/{name}", {"Content-Type": content_type}).status == 201
    return name


# -- What goes in ------------------------------------------------------------------------------------------------------


def test_each_row_is_an_append_to_its_stream(wire: Wire, name: str) -> None:
    make(wire, f"{name}/text")
    make(wire, f"{name}/json", JSON)
    outcomes = bulk(
        wire,
        row(f"{name}/text", b"one ", b"two ", content_type=TEXT),
        row(f"{name}/json", b'{"a": 1}', b"[2, 3]", content_type=JSON),
        row(f"{name}/text", b"three", content_type=TEXT),
    )
    assert outcomes == [
        {
            "status": 200,
            "code": None,
            "detail": None,
            "next_offset": offset,
            "producer_epoch": None,
            "producer_seq": None,
            "expected_seq": None,
            "closed": False,
        }
        for offset in (8, 14, 13)
    ]
    assert read(wire, f"{name}/text") == b"one two three"
    assert read(wire, f"{name}/json") == b'[{"a": 1},[2, 3]]'


def test_a_row_without_a_content_type_is_of_its_streams_own(wire: Wire, name: str) -> None:
    make(wire, f"{name}/json", JSON)
    make(wire, f"{name}/text", "text/plain; charset=utf-8")
    assert statuses(bulk(wire, row(f"{name}/json", b"1"), row(f"{name}/text", b"1,"))) == [200, 200]
    assert codes(bulk(wire, row(f"{name}/json", b"1,"), row(f"{name}/text", b"1,"))) == [
        (400, "invalid_json"),
        (200, None),
    ]
    assert read(wire, f"{name}/json") == b"[1]"
    assert codes(bulk(wire, row(f"{name}/none", b"1"))) == [(404, "stream_not_found")]


def test_a_stream_is_made_where_it_is_missing_and_only_there(wire: Wire, name: str) -> None:
    first = row(f"{name}/json", b"1", content_type=JSON, create=True), row(f"{name}/bytes", b"1", create=True)
    assert statuses(bulk(wire, *first, *first)) == [200] * 4
    assert statuses(bulk(wire, *first)) == [200, 200]
    assert read(wire, f"{name}/json") == b"[1,1,1]"
    head = wire.ask("HEAD", f"/v1/stream/{name}/bytes")
    assert head.headers["content-type"] == "application/octet-stream"
    listed = json.loads(wire.ask("GET", f"/bulk/streams?prefix={name.removeprefix('bulk/')}").body)
    assert listed["stream_count"] == 2


def test_a_stream_that_is_there_with_another_type_stays_as_it_is(wire: Wire, name: str) -> None:
    make(wire, name)
    [outcome] = bulk(wire, row(name, b"1", content_type=JSON, create=True))
    assert (outcome["status"], outcome["code"], outcome["next_offset"]) == (409, "content_type_mismatch", 0)
    assert tail(wire, name) == 0


def test_a_stream_with_a_lifetime_of_its_own_is_not_made_again(wire: Wire, name: str) -> None:
    wire.ask("PUT", f"/v1/stream/{name}", {"Content-Type": TEXT, "Stream-TTL": "3600"})
    assert statuses(bulk(wire, row(name, b"a", content_type=TEXT, create=True))) == [200]
    assert wire.ask("HEAD", f"/v1/stream/{name}").headers["stream-ttl"] == "3600"


def test_a_stream_that_its_forks_need_cannot_be_made_again(wire: Wire, name: str) -> None:
    make(wire, name)
    bulk(wire, row(name, b"a", content_type=TEXT))
    wire.ask("PUT", f"/v1/stream/{name}/fork", {"Stream-Forked-From": f"/v1/stream/{name}"})
    assert wire.ask("DELETE", f"/v1/stream/{name}").status == 204
    outcomes = bulk(wire, row(name, b"a", content_type=TEXT), row(f"{name}/fork", b"b", content_type=TEXT))
    assert codes(outcomes) == [(410, "stream_gone"), (200, None)]
    assert codes(bulk(wire, row(name, b"a", content_type=TEXT, create=True))) == [(409, "fork_conflict")]


def test_a_row_may_close_its_stream(wire: Wire, name: str) -> None:
    outcomes = bulk(
        wire,
        row(f"{name}/a", b"last", create=True, close=True),
        row(f"{name}/b", b"last", create=True),
        row(f"{name}/b", close=True),
        row(f"{name}/c", create=True, close=True, content_type=JSON),
        row(f"{name}/b", b"late"),
    )
    assert [(one["status"], one["code"], one["next_offset"], one["closed"]) for one in outcomes] == [
        (200, None, 4, True),
        (200, None, 4, False),
        (200, None, 4, True),
        (200, None, 0, True),
        (409, "stream_closed", 4, True),
    ]
    for stream, content_type in (("a", "application/octet-stream"), ("c", JSON)):
        head = wire.ask("HEAD", f"/v1/stream/{name}/{stream}").headers
        assert (head["stream-closed"], head["content-type"]) == ("true", content_type)


def test_what_is_not_said_is_no(wire: Wire, name: str) -> None:
    make(wire, name)
    table = table_of([row(name, b"a"), row(name, b"b")])
    for column in ("content_type", "create", "close", "producer_id", "producer_epoch", "producer_seq"):
        table = table.append_column(column, pa.nulls(2))
    assert statuses(bulk_table(wire, table)) == [200, 200]
    assert read(wire, name) == b"ab"


def test_a_request_without_rows_is_answered_without_rows(wire: Wire) -> None:
    assert bulk(wire) == []


def test_what_is_behind_a_bulk_append_on_its_connection_sees_all_of_it(wire: Wire, name: str) -> None:
    rows = [row(name, b"%04d" % number, create=True) for number in range(3000)]
    body = encode(table_of(rows))
    wire.send(request("POST", PATH, ARROW, body) + request("HEAD", f"/v1/stream/{name}"))
    wire.send(request("POST", PATH, ARROW, body) + request("HEAD", f"/v1/stream/{name}"))
    for times in (1, 2):
        assert statuses(decode(wire.receive().body)) == [200] * 3000
        assert wire.receive(bodiless=True).next_offset.endswith(f"_{12_000 * times:015}0")


def test_many_rows_of_many_streams_go_in_whole_and_in_order(wire: Wire, name: str) -> None:
    random = Random(7)
    rows = [
        row(f"{name}/{random.randrange(40)}", *(b"%05d%d;" % (number, part) for part in range(3)), create=True)
        for number in range(5_000)
    ]
    outcomes = bulk(wire, *rows)
    assert statuses(outcomes) == [200] * len(rows)
    expected: dict[str, bytes] = {}
    for sent, one in zip(rows, outcomes, strict=True):
        expected[sent["stream"]] = expected.get(sent["stream"], b"") + b"".join(sent["messages"])
        assert one["next_offset"] == len(expected[sent["stream"]])
    for stream, content in expected.items():
        assert read(wire, stream) == content


def test_a_client_that_goes_away_leaves_whole_appends(wire: Wire, server: RunningServer, name: str) -> None:
    rows = [row(name, b"first;", b"second;", create=True) for _ in range(20_000)]
    with Wire(server.url) as gone:
        gone.send(request("POST", PATH, ARROW, encode(table_of(rows))))
    # Once while it may still be running, and once after a later request of ours.
    for _ in range(50):
        assert wire.ask("GET", "/healthz").status == 200
        if not missing(wire, name):
            assert tail(wire, name) % len(b"first;second;") == 0
    assert statuses(bulk(wire, row(name, b"first;", b"second;", create=True))) == [200]
    assert tail(wire, name) % len(b"first;second;") == 0


# -- Producers ---------------------------------------------------------------------------------------------------------


def test_a_producers_row_is_taken_once(wire: Wire, name: str) -> None:
    rows = [row(name, b"%d" % seq, create=True, producer=("spark", 3, seq)) for seq in range(5)]
    first, again = bulk(wire, *rows), bulk(wire, *rows, row(name, b"5", producer=("spark", 3, 5)))
    assert statuses(first) == [200] * 5
    assert statuses(again) == [204] * 5 + [200]
    assert again[4]["next_offset"] == 5
    assert read(wire, name) == b"012345"


def test_a_producer_that_was_fenced_off_gets_the_current_epoch(wire: Wire, name: str) -> None:
    bulk(wire, row(name, b"a", create=True, producer=("spark", 7, 0)))
    [outcome] = bulk(wire, row(name, b"b", producer=("spark", 6, 0)))
    assert (outcome["status"], outcome["code"], outcome["producer_epoch"]) == (403, "producer_epoch_stale", 7)
    assert tail(wire, name) == 1


def test_a_producer_that_repeats_a_request_learns_how_far_it_had_come(wire: Wire, name: str) -> None:
    rows = [row(name, b"%d" % seq, create=True, producer=("spark", 7, seq)) for seq in range(3)]
    assert [outcome["producer_seq"] for outcome in bulk(wire, *rows)] == [None, None, None]
    assert [outcome["producer_seq"] for outcome in bulk(wire, *rows[:2])] == [2, 2]


def test_a_producer_that_has_finished_is_fenced_off_everywhere(wire: Wire, name: str) -> None:
    first = row(f"{name}/x", b"a", create=True, producer=("spark/1", 0, 0))
    bulk(wire, first, row(f"{name}/y", b"b", create=True, producer=("job", 0, 0)))
    for _ in range(2):
        assert wire.ask("DELETE", "/__headwater/producers/spark%2F1").status == 204
    assert codes(bulk(wire, first)) == [(204, None)]
    late = [row(f"{name}/{stream}", b"c", producer=("spark/1", 0, seq)) for stream, seq in (("x", 1), ("y", 0))]
    assert codes(bulk(wire, *late)) == [(403, "producer_epoch_stale")] * 2
    assert codes(bulk(wire, row(f"{name}/y", b"d", producer=("job", 0, 1)))) == [(200, None)]
    assert (tail(wire, f"{name}/x"), tail(wire, f"{name}/y")) == (1, 2)


@pytest.mark.parametrize("producer", ["", "x" * 256, "%C3%A9" * 128])
def test_a_producer_id_that_cannot_exist_cannot_finish(wire: Wire, producer: str) -> None:
    assert wire.ask("DELETE", f"/__headwater/producers/{producer}").status == 400


def test_a_producer_that_skipped_a_request_gets_the_expected_sequence(wire: Wire, name: str) -> None:
    bulk(wire, row(name, b"a", create=True, producer=("spark", 7, 0)))
    outcomes = bulk(wire, row(name, b"c", producer=("spark", 7, 2)), row(name, b"b", producer=("spark", 7, 1)))
    assert codes(outcomes) == [(409, "producer_seq_conflict")] * 2
    assert outcomes[0]["expected_seq"] == 1
    assert tail(wire, name) == 1


@pytest.mark.parametrize(
    ("triple", "code"),
    [
        ({"producer_id": "p"}, "producer_incomplete"),
        ({"producer_id": "p", "producer_epoch": 0}, "producer_incomplete"),
        ({"producer_epoch": 0, "producer_seq": 0}, "producer_incomplete"),
        ({"producer_id": "", "producer_epoch": 0, "producer_seq": 0}, "invalid_header"),
        ({"producer_id": "p" * (PRODUCER_ID_BYTES_MAX + 1), "producer_epoch": 0, "producer_seq": 0}, "invalid_header"),
        ({"producer_id": "€" * 86, "producer_epoch": 0, "producer_seq": 0}, "invalid_header"),
        ({"producer_id": "p", "producer_epoch": -1, "producer_seq": 0}, "invalid_header"),
        ({"producer_id": "p", "producer_epoch": 0, "producer_seq": 2**53}, "invalid_header"),
    ],
)
def test_a_producer_that_makes_no_sense_is_refused(wire: Wire, name: str, triple: dict[str, Any], code: str) -> None:
    assert codes(bulk(wire, row(name, b"a", create=True, **triple))) == [(400, code)]
    assert missing(wire, name)


def test_a_producer_may_have_any_name(wire: Wire, name: str) -> None:
    rows = [row(name, b"a", create=True, producer=("Überlauf ⚡", 0, 0))] * 2
    assert statuses(bulk(wire, *rows)) == [200, 204]


# -- Rows that are refused ---------------------------------------------------------------------------------------------


def test_nothing_goes_in_behind_a_refused_row_of_the_same_stream(wire: Wire, name: str) -> None:
    make(wire, f"{name}/a")
    make(wire, f"{name}/b")
    outcomes = bulk(
        wire,
        row(f"{name}/a", b"1", content_type=TEXT),
        row(f"{name}/a", b"2", content_type=JSON),
        row(f"{name}/b", b"1", content_type=TEXT),
        row(f"{name}/a", b"3", content_type=TEXT),
        row(f"{name}/a", b"4", content_type=TEXT),
        row(f"{name}/b", b"2", content_type=TEXT),
    )
    mismatch = (409, "content_type_mismatch")
    assert codes(outcomes) == [(200, None), mismatch, (200, None), mismatch, mismatch, (200, None)]
    assert "An earlier row" not in outcomes[1]["detail"]
    assert all("An earlier row of the same stream was refused" in outcomes[index]["detail"] for index in (3, 4))
    assert read(wire, f"{name}/a") == b"1"
    assert read(wire, f"{name}/b") == b"12"


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        ("notes", "no bucket"),
        ("", "no bucket"),
        ("bulk/", "empty"),
        ("/x", "empty"),
        ("bulk/a\0b", "NUL"),
        ("bulk/../x", "'..' segment"),
        ("__ds/x", "reserved"),
        ("bulk/" + "x" * 200, "bytes long"),
    ],
)
def test_a_name_is_judged_as_in_a_url(wire: Wire, name: str, stream: str, reason: str) -> None:
    outcomes = bulk(wire, row(stream, b"a", create=True), row(name, b"a", create=True), row(stream, b"a"))
    assert codes(outcomes) == [(400, "invalid_name"), (200, None), (400, "invalid_name")]
    assert reason in outcomes[0]["detail"]


def test_a_name_is_not_decoded(wire: Wire, name: str) -> None:
    bulk(wire, row(f"{name}%2Fx", b"a", create=True))
    assert wire.ask("HEAD", f"/v1/stream/{name}%252Fx").status == 200


@pytest.mark.parametrize(
    ("messages", "kept"),
    [
        ([b" 1 "], b"[1]"),
        ([b"\r\n[1, 2]\t", b'"a"'], b'[[1, 2],"a"]'),
        ([b'"\\ud800"', b' "\\ud800\\u0041" '], b'["\\ud800","\\ud800\\u0041"]'),
        ([b"1.0", b"1e400", b"{}", b"null"], b"[1.0,1e400,{},null]"),
        (['"€"'.encode()], '["€"]'.encode()),
    ],
)
def test_a_json_message_is_kept_byte_for_byte(wire: Wire, name: str, messages: list[bytes], kept: bytes) -> None:
    assert statuses(bulk(wire, row(name, *messages, content_type=JSON, create=True))) == [200]
    assert read(wire, name) == kept
    assert wire.ask("HEAD", f"/v1/stream/{name}").headers["stream-record-next"] == str(len(messages))


@pytest.mark.parametrize(
    "messages",
    [
        [b"1,2"],
        [b"1", b"2,3"],
        [b"[1", b"2]"],
        [b'"a', b'b"'],
        [b"1]", b"[2"],
        [b"1,2", b""],
        [b""],
        [b" "],
        [b"1", b""],
        [b"{"],
        [b"01"],
        [b"\xff"],
        [b'"\xc3', b'\xa9"'],
        [b"NaN"],
        [b"[" * 5000],
        [b"1", b"2", b"3 4"],
    ],
)
def test_a_json_message_is_exactly_one_value(wire: Wire, name: str, messages: list[bytes]) -> None:
    make(wire, name, JSON)
    assert codes(bulk(wire, row(name, *messages))) == [(400, "invalid_json")]
    assert tail(wire, name) == 0


def test_bad_messages_for_a_stream_that_takes_none_are_refused_for_that_first(wire: Wire, name: str) -> None:
    bulk(wire, row(f"{name}/closed", b"1", content_type=JSON, create=True, close=True))
    bulk(wire, row(f"{name}/text", b"1", content_type=TEXT, create=True))
    outcomes = bulk(
        wire,
        row(f"{name}/closed", b"{", content_type=JSON),
        row(f"{name}/none", b"{", content_type=JSON),
        row(f"{name}/text", b"{", content_type=JSON),
        row(f"{name}/new", b"{", content_type=JSON, create=True),
    )
    assert codes(outcomes) == [
        (409, "stream_closed"),
        (404, "stream_not_found"),
        (409, "content_type_mismatch"),
        (400, "invalid_json"),
    ]
    assert missing(wire, f"{name}/new")


@pytest.mark.parametrize("content_type", ["", "text", "text/plain\r\nX: y", "a/b" + "c" * 255, "é/x"])
def test_a_content_type_that_is_none_is_refused(wire: Wire, name: str, content_type: str) -> None:
    assert codes(bulk(wire, row(name, b"a", content_type=content_type, create=True))) == [(400, "bad_request")]
    assert missing(wire, name)


def test_there_must_be_something_to_append_or_to_close(wire: Wire, name: str) -> None:
    outcomes = bulk(wire, row(f"{name}/a", create=True), row(f"{name}/b", b"a", b"", b"b", create=True))
    assert codes(outcomes) == [(400, "empty_body"), (400, "empty_body")]
    assert "Message 1 is empty" in outcomes[1]["detail"]
    assert missing(wire, f"{name}/a")
    assert missing(wire, f"{name}/b")


def test_a_row_has_the_limits_of_one_append(wire: Wire, name: str) -> None:
    large = row(f"{name}/a", b"x" * APPEND_BYTES_MAX, b"y", create=True), row(f"{name}/b", b"x", create=True)
    assert codes(bulk(wire, *large)) == [(413, "too_large"), (200, None)]
    assert missing(wire, f"{name}/a")
    many = row(f"{name}/a", *[b"x"] * (MESSAGES_PER_APPEND_MAX + 1), create=True)
    assert codes(bulk(wire, many)) == [(413, "too_large")]
    assert missing(wire, f"{name}/a")
    most = row(f"{name}/a", *[b"x"] * MESSAGES_PER_APPEND_MAX, create=True)
    assert statuses(bulk(wire, most, row(f"{name}/c", b"x" * APPEND_BYTES_MAX, create=True))) == [200, 200]
