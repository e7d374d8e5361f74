"""Ranges of many streams in one request, from memory and from the lake."""

import json
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from headwater.lake.format import SCHEMA
from headwater.protocol.limits import RANGES_COMMAS_MAX
from headwater.testing import RunningServer, running_server

from ...sockets import Wire, refused
from ..bulk.requests import bulk, bulk_table, row, table_of
from .lake_writer import NEVER, PATIENT_SECONDS, TEXT, LakeWriter
from .requests import Range, Row, ask, described, payloads, scanned, table, whole

JSON = {"Content-Type": "application/json"}
TIERS = ["memory", "hot", "cold", "both"]
"""A server that keeps nothing; and one whose appends are hot, in the lake, or the older half of them there."""
_numbers = count(1)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(*NEVER, data=tmp_path_factory.mktemp("scanned")) as server:
        yield server
        assert "Traceback" not in server.output()


@pytest.fixture
def bucket() -> str:
    """A bucket that no other test uses."""
    return f"scanned-{next(_numbers)}"


@pytest.fixture(params=TIERS)
def writer(request: pytest.FixtureRequest, server: RunningServer, lake: RunningServer) -> Iterator[LakeWriter]:
    with Wire((server if request.param == "memory" else lake).url, timeout_seconds=PATIENT_SECONDS) as wire:
        yield LakeWriter(wire, request.param)


def bare(rows: list[Row], *columns: str) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name in columns) for row in rows]


# -- Every message once ------------------------------------------------------------------------------------------------


def test_every_message_has_all_that_the_lake_has_of_it(writer: LakeWriter, bucket: str) -> None:
    wire, name = writer.wire, f"{bucket}/a/b"
    writer.make(name, Content_Type="application/json")
    producer = {"Content_Type": "application/json", "Producer_Id": "p", "Producer_Epoch": "3"}
    writer.append(name, b'[1, {"a": "b"}]', **producer, Producer_Seq="0")
    writer.half()
    writer.append(name, b"22", Content_Type="application/json")
    writer.append(name, b'["x"]', **producer, Producer_Seq="1")
    writer.done()
    rows = scanned(wire, whole(wire, name))
    assert [list(row) for row in rows] == [SCHEMA.names] * 4
    [life] = {row["incarnation"] for row in rows}
    assert life == described(wire, streams=[name])[0]["incarnation"]
    assert {(row["bucket"], row["stream"], row["content_type"]) for row in rows} == {
        (bucket, "a/b", "application/json")
    }
    assert bare(rows, "offset", "next_offset", "record", "append", "payload") == [
        (0, 1, 0, 0, b"1"),
        (1, 11, 1, 0, b'{"a": "b"}'),
        (11, 13, 2, 11, b"22"),
        (13, 16, 3, 13, b'"x"'),
    ]
    assert bare(rows, "producer_id", "producer_epoch", "producer_seq") == [
        ("p", 3, 0),
        ("p", 3, 0),
        (None, None, None),
        ("p", 3, 1),
    ]
    positions, times = ([row[column] for row in rows] for column in ("position", "committed_at"))
    assert life < positions[0] == positions[1] < positions[2] < positions[3]
    assert times == sorted(times)
    assert times[0] == times[1]


def test_the_schema_is_that_of_the_lake_also_when_there_is_no_row(wire: Wire) -> None:
    found = table(ask(wire, "scan", ranges=[]))
    assert found.schema.equals(SCHEMA)
    assert len(found) == 0
    asked = table(ask(wire, "scan", ranges=[], columns=["payload", "stream", "payload"]))
    assert asked.schema.equals(pa.schema([SCHEMA.field("stream"), SCHEMA.field("payload")]))


def test_a_message_is_in_the_range_that_it_begins_in(writer: LakeWriter, bucket: str) -> None:
    wire = writer.wire
    bulk(wire, row(f"{bucket}/s", b"one", b"two", create=True))
    writer.half()
    bulk(wire, row(f"{bucket}/s", b"three", b"4"))
    writer.done()
    [[name, life, _, tail]] = whole(wire, f"{bucket}/s")
    starts = {0: b"one", 3: b"two", 6: b"three", 11: b"4"}
    for start in range(tail + 1):
        for until in range(start, tail + 2):
            expected = [message for offset, message in starts.items() if start <= offset < until]
            assert payloads(scanned(wire, [[name, life, start, until]])) == expected, (start, until)


@pytest.mark.parametrize("seed", range(3))
def test_ranges_cut_anywhere_hold_every_message_once_and_as_get_reads_them(
    writer: LakeWriter, bucket: str, seed: int
) -> None:
    wire, random = writer.wire, Random(seed)
    written: dict[str, list[bytes]] = {}
    for turn in range(2):
        for number in range(6):
            name = f"{bucket}/{number}"
            messages = [random.randbytes(random.randint(1, 30)) for _ in range(random.randint(1, 20))]
            cuts = sorted({0, len(messages), *(random.randrange(len(messages)) for _ in range(3))})
            bulk(wire, *(row(name, *messages[low:high], create=True) for low, high in pairwise(cuts)))
            written.setdefault(name, []).extend(messages)
        writer.half() if turn == 0 else writer.done()
    writer.fork(f"{bucket}/fork", f"{bucket}/3", len(b"".join(written[f"{bucket}/3"])) // 2)
    ranges: list[Range] = []
    for name, life, start, tail in whole(wire, *sorted(written), f"{bucket}/fork"):
        cuts = sorted(random.randint(start, tail) for _ in range(random.randint(0, 9)))
        ranges += [[name, life, *boundaries] for boundaries in pairwise([start, *cuts, tail])]
    found: dict[str, list[bytes]] = {}
    rows = scanned(wire, ranges)
    for one in rows:
        found.setdefault(f"{one['bucket']}/{one['stream']}", []).append(one["payload"])
    fork = found.pop(f"{bucket}/fork")
    assert found == written
    assert bare(rows, "bucket", "stream", "offset") == sorted(bare(rows, "bucket", "stream", "offset"))
    for name, messages in (*found.items(), (f"{bucket}/fork", fork)):
        assert wire.ask("GET", f"/v1/stream/{name}").body == b"".join(messages)


def test_json_is_scanned_as_get_reads_it(writer: LakeWriter, bucket: str) -> None:
    wire, names = writer.wire, [f"{bucket}/{number}" for number in range(3)]
    for name in names:
        writer.make(name, b'[1,"two",{"three":[3]}]', Content_Type="application/json")
    writer.half()
    for name in names[1:]:
        writer.append(name, b'[4, "f\\u00fcnf",\n null]', Content_Type="application/json")
    writer.done()
    for name in names:
        messages = payloads(scanned(wire, whole(wire, name)))
        assert wire.ask("GET", f"/v1/stream/{name}").body == b"[%b]" % b",".join(messages)


def test_fifty_thousand_streams_are_scanned_at_once(tmp_path: Path, bucket: str) -> None:
    with running_server(*NEVER, data=tmp_path) as server, Wire(server.url, timeout_seconds=PATIENT_SECONDS) as wire:
        names = [f"{bucket}/{number:05}" for number in range(50_000)]
        bulk_table(wire, table_of([row(name, b"first ", name.encode(), create=True) for name in names]))
        rows = described(wire, prefix=bucket)
        ranges = [[one["stream"], one["incarnation"], 0, one["tail"]] for one in rows]
        hot = table(ask(wire, "scan", ranges=ranges))
        assert hot["payload"].to_pylist() == [data for name in names for data in (b"first ", name.encode())]
        assert wire.ask("POST", "/__headwater/flush").status == 200
        assert table(ask(wire, "scan", ranges=ranges)).equals(hot)
        few = table(ask(wire, "scan", ranges=ranges[::500], columns=["stream", "record"]))
        assert few["stream"].to_pylist() == [name[len(bucket) + 1 :] for name in names[::500] for _ in range(2)]
        assert "Traceback" not in server.output()


# -- Forks -------------------------------------------------------------------------------------------------------------


def test_what_a_fork_inherits_appears_under_its_own_name_and_a_cut_message_is_cut(
    writer: LakeWriter, bucket: str
) -> None:
    wire, source, fork = writer.wire, f"{bucket}/source", f"{bucket}/fork"
    writer.make(source, b"one")
    writer.append(source, b"second")
    writer.half()
    writer.append(source, b"third")
    writer.fork(fork, source, 3, 2)
    writer.append(fork, b"own")
    writer.done()
    rows = scanned(wire, whole(wire, fork))
    assert bare(rows, "stream", "offset", "next_offset", "record", "append", "payload") == [
        ("fork", 0, 3, 0, 0, b"one"),
        ("fork", 3, 5, 1, 3, b"se"),
        ("fork", 5, 8, 2, 5, b"own"),
    ]
    assert {row["incarnation"] for row in rows} == {whole(wire, fork)[0][1]}
    inherited = scanned(wire, whole(wire, source))[:2]
    assert bare(rows[:2], "position", "committed_at") == bare(inherited, "position", "committed_at")
    sizes = scanned(wire, whole(wire, fork), columns=["offset", "next_offset"])
    assert bare(sizes, "offset", "next_offset") == [(0, 3), (3, 5), (5, 8)]
    writer.delete(source)
    assert scanned(wire, whole(wire, fork)) == rows


def test_a_chain_of_forks_is_followed_to_its_end(writer: LakeWriter, bucket: str) -> None:
    wire, name = writer.wire, f"{bucket}/0"
    writer.make(name, b"aaaa")
    writer.append(name, b"AAAA")
    expected = [b"aaaa", b"AAAA"]
    for depth in range(1, 6):
        # Each fork leaves its source a byte before the tail, and adds a message.
        to = len(b"".join(expected)) - 1
        writer.fork(f"{bucket}/{depth}", f"{bucket}/{depth - 1}", to)
        writer.append(f"{bucket}/{depth}", b"own%d" % depth)
        expected = [*expected[:-1], expected[-1][:-1], b"own%d" % depth]
        if depth == 3:
            writer.half()
            writer.delete(f"{bucket}/2")
    writer.fork(f"{bucket}/short", f"{bucket}/5", 2)
    writer.done()
    assert payloads(scanned(wire, whole(wire, f"{bucket}/5"))) == expected
    assert payloads(scanned(wire, whole(wire, f"{bucket}/short"))) == [b"aa"]
    found = scanned(wire, whole(wire, f"{bucket}/5"))
    assert [after["offset"] for after in found[1:]] == [before["next_offset"] for before in found[:-1]]
    assert [one["record"] for one in found] == list(range(len(expected)))
    assert wire.ask("GET", f"/v1/stream/{bucket}/5").body == b"".join(expected)


# -- Columns and times -------------------------------------------------------------------------------------------------


def test_columns_are_chosen_by_name(writer: LakeWriter, bucket: str) -> None:
    wire, name = writer.wire, f"{bucket}/s"
    writer.make(name, b"one")
    writer.half()
    writer.append(name, b"two")
    writer.done()
    every = scanned(wire, whole(wire, name))
    for columns in (["payload"], ["stream", "bucket"], ["position"], list(reversed(SCHEMA.names))):
        wanted = [column for column in SCHEMA.names if column in columns]
        rows = scanned(wire, whole(wire, name), columns=columns)
        assert rows == [{column: one[column] for column in wanted} for one in every]
    assert scanned(wire, whole(wire, name), columns=None) == every


def test_rows_are_chosen_by_time(writer: LakeWriter, bucket: str) -> None:
    wire, name = writer.wire, f"{bucket}/s"
    writer.make(name)
    for number in range(6):
        writer.append(name, b"%d" % number)
        if number == 2:
            writer.half()
    writer.done()
    every = scanned(wire, whole(wire, name))
    times = [one["committed_at"] for one in every]
    for since in (0, times[0], times[2], times[5], times[5] + 1):
        for until in (times[0], times[3] + 1, times[5] + 1):
            chosen = scanned(wire, whole(wire, name), since=since, until=until)
            assert chosen == [one for one in every if since <= one["committed_at"] < until]
        assert scanned(wire, whole(wire, name), since=since) == [one for one in every if since <= one["committed_at"]]


# -- What cannot be read -----------------------------------------------------------------------------------------------


def test_all_ranges_that_cannot_be_read_are_named_and_nothing_is_sent(writer: LakeWriter, bucket: str) -> None:
    wire = writer.wire
    names = {word: f"{bucket}/{word}" for word in ("good", "trimmed", "gone", "again")}
    for name in names.values():
        writer.make(name, b"one")
        writer.append(name, b"two")
    writer.half()
    good, trimmed, gone, again = whole(wire, *names.values())
    assert wire.ask("PUT", f"/{names['trimmed']}/snapshot/{3:020}", TEXT, b"folded").status == 204
    writer.fork(f"{bucket}/fork", names["gone"], 3)
    writer.delete(names["gone"])
    writer.delete(names["again"])
    writer.make(names["again"], b"once more")
    writer.done()
    ranges = [good, trimmed, [f"{bucket}/nothing", 1, 0, 9], gone, again, [*good[:1], good[1] + 1, 0, 1], good]
    problem = refused(ask(wire, "scan", ranges=ranges), 409, "ranges_unavailable")
    assert problem["problems"] == [
        {"index": 1, "code": "offset_trimmed", "earliest": 3},
        {"index": 2, "code": "stream_not_found", "earliest": None},
        {"index": 3, "code": "stream_gone", "earliest": None},
        {"index": 4, "code": "incarnation_changed", "earliest": None},
        {"index": 5, "code": "incarnation_changed", "earliest": None},
    ]
    rest = [good, [*trimmed[:2], 3, 99], *whole(wire, names["again"])]
    assert payloads(scanned(wire, rest)) == [b"one", b"two", b"two", b"once more"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "truncated"),
        (b'{"ranges": [["a/b", 1, 0, 3]', "truncated"),
        (b'{"ranges": 3}', "array"),
        (b'{"columns": ["offset"]}', "ranges"),
        (b'{"ranges": [], "more": 1}', "more"),
        (b'{"ranges": [], "columns": ["offset", "nonsense"]}', "no column 'nonsense'"),
        (b'{"ranges": [], "columns": []}', "at least one column"),
        (b'{"ranges": [], "columns": "offset"}', "array"),
        (b'{"ranges": [], "since": -1}', ">= 0"),
        (b'{"ranges": [], "until": "now"}', "int"),
        (b'{"ranges": [["a/b", 1, 0, 3], ["a/b", 1, 0]]}', "Range 1 is not"),
        (b'{"ranges": [["a/b", 1, 0, 3, 4]]}', "Range 0 is not"),
        (b'{"ranges": [["a/b", 1, -1, 3]]}', ">= 0"),
        (b'{"ranges": [["a/b", -1, 1, 3]]}', ">= 0"),
        (b'{"ranges": [["a/b", 1, 3, 2]]}', "Range 0 ends before it begins"),
        (b'{"ranges": [["a/b", 1, 0, 9223372036854775808]]}', "Range 0 is not"),
        (b'{"ranges": [["a/b", 1, 0, 1.5]]}', "Range 0 is not"),
        (b'{"ranges": [[7, 1, 0, 3]]}', "Range 0 is not"),
        (b'{"ranges": [{"name": "a/b"}]}', "Range 0 is not"),
        (b'{"ranges": ' + b"[" * 100_000, "Send the body as"),
        (b'{"ranges": [["\xff/b", 1, 0, 3]]}', "Range 0 is not"),
        (json.dumps({"ranges": [["a/b", 1, 0, 3]] * 6_000 + [["a/b", 1, 0]]}).encode(), "Range 6000 is not"),
        (json.dumps({"ranges": [["a/b", 1, 0, 3]] * 100_001}).encode(), "100001 ranges are too many"),
    ],
    ids=lambda value: value[:45].decode(errors="replace") if isinstance(value, bytes) else "",
)
def test_a_request_that_makes_no_sense_is_refused(wire: Wire, body: bytes, reason: str) -> None:
    problem = refused(wire.ask("POST", "/__headwater/scan", JSON, body), 400, "bad_request")
    assert reason in problem["detail"]


@pytest.mark.parametrize(
    ("what", "head", "one"), [("scan", "ranges", b"0"), ("locate", "records", b"[]"), ("describe", "streams", b'""')]
)
def test_a_body_of_very_many_elements_is_refused_before_they_are_made(
    wire: Wire, what: str, head: str, one: bytes
) -> None:
    most = b'{"%b":[%b]}' % (head.encode(), b",".join([one] * (RANGES_COMMAS_MAX + 1)))
    problem = refused(wire.ask("POST", f"/__headwater/{what}", JSON, most), 400, "bad_request")
    assert f"{RANGES_COMMAS_MAX + 1} {head} are too many" in problem["detail"]
    problem = refused(wire.ask("POST", f"/__headwater/{what}", JSON, most[:-2] + b",0]}"), 413, "too_large")
    assert f"more than {RANGES_COMMAS_MAX} commas" in problem["detail"]


def test_only_post_asks_about_many_streams(wire: Wire) -> None:
    for what in ("describe", "locate", "scan"):
        assert wire.ask("GET", f"/__headwater/{what}").status == 405
