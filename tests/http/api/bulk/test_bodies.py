"""The bodies of bulk appends: Arrow streams of several shapes, and bodies that only look like one."""

import struct
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.http.server import Server
from headwater.protocol.limits import BULK_BYTES_MAX, BULK_ROWS_MAX
from headwater.testing import RunningServer

from ....node.lake.lakes import Bench
from ...sockets import Wire, refused
from ..inside import against, wire_to
from .requests import ARROW, PATH, PATIENCE_SECONDS, bulk_table, decode, encode, missing, read, row, statuses, table_of

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
    return f"bodies/s{next(_numbers)}"


@pytest.mark.parametrize(
    "types",
    [
        {"stream": pa.large_string(), "content_type": pa.large_string(), "producer_id": pa.large_string()},
        {"messages": pa.large_list(pa.large_binary())},
        {"messages": pa.list_(pa.string())},
        {"messages": pa.list_(pa.field("element", pa.large_string(), nullable=False))},
        {"producer_epoch": pa.uint8(), "producer_seq": pa.uint64()},
    ],
)
def test_columns_of_other_widths_are_taken(wire: Wire, name: str, types: dict[str, pa.DataType]) -> None:
    rows = [row(name, b"a", b"b", content_type=TEXT, create=True, producer=("p", 0, seq)) for seq in range(2)]
    assert statuses(bulk_table(wire, table_of(rows, types))) == [200, 200]
    assert read(wire, name) == b"abab"


@pytest.mark.parametrize("options", [{"compression": "zstd"}, {"compression": "lz4"}, {"chunk_rows": 1}])
def test_a_body_may_be_compressed_and_come_in_several_batches(wire: Wire, name: str, options: dict[str, Any]) -> None:
    table = table_of([row(f"{name}/{index % 2}", b"x" * 500, b"y", create=True) for index in range(5)])
    response = wire.ask("POST", PATH, ARROW, encode(table, **options))
    assert statuses(decode(response.body)) == [200] * 5
    assert read(wire, f"{name}/1") == (b"x" * 500 + b"y") * 2


def test_a_slice_of_a_larger_table_is_what_it_is(wire: Wire, name: str) -> None:
    table = table_of([row(f"{name}/{index}", *[b"%d" % index] * index, create=True) for index in range(6)])
    assert statuses(bulk_table(wire, table.slice(2, 3))) == [200, 200, 200]
    assert [read(wire, f"{name}/{index}") for index in (2, 3, 4)] == [b"22", b"333", b"4444"]
    assert missing(wire, f"{name}/5")


GOOD = table_of([row("bodies/never", b"a", content_type=TEXT, create=True, producer=("p", 0, 0))])
LISTS = GOOD["messages"].combine_chunks()


def replaced(column: str, values: pa.Array) -> pa.Table:
    return GOOD.set_column(GOOD.schema.get_field_index(column), column, values)


BAD_TABLES = {
    "no column stream": GOOD.drop_columns("stream"),
    "no column messages": GOOD.drop_columns("messages"),
    "the known ones are": GOOD.append_column("payload", pa.array([b"a"])),
    "same name": pa.Table.from_arrays([*GOOD.columns, GOOD["stream"]], [*GOOD.column_names, "stream"]),
    "stream is dictionary": replaced("stream", GOOD["stream"].combine_chunks().dictionary_encode()),
    "stream is binary": replaced("stream", pa.array([b"bodies/never"])),
    "stream is null": replaced("stream", pa.nulls(1)),
    "column stream has a null": replaced("stream", pa.nulls(1, pa.string())),
    "messages is binary": replaced("messages", pa.array([b"a"])),
    "messages is list<item: int64>": replaced("messages", pa.array([[1]])),
    "messages is fixed_size_list": replaced("messages", pa.array([[b"a"]], pa.list_(pa.binary(), 1))),
    "column messages has a null": replaced("messages", pa.nulls(1, pa.list_(pa.binary()))),
    "null among its messages": replaced("messages", pa.array([[b"a", None]], pa.list_(pa.binary()))),
    "create is string": replaced("create", pa.array(["true"])),
    "producer_epoch is double": replaced("producer_epoch", pa.array([0.0])),
    "not in range": replaced("producer_seq", pa.array([2**64 - 1], pa.uint64())),
    "content_type is struct": replaced("content_type", pa.array([{"a": 1}])),
}


@pytest.mark.parametrize("reason", BAD_TABLES)
def test_a_table_of_another_kind_is_refused_and_changes_nothing(wire: Wire, reason: str) -> None:
    problem = refused(wire.ask("POST", PATH, ARROW, encode(BAD_TABLES[reason])), 400, "bad_request")
    assert reason in problem["detail"]
    assert missing(wire, "bodies/never")


WHOLE = encode(GOOD)
BAD_BODIES = {
    "nothing": b"",
    "text": b"hello, world",
    "json": b'{"stream": "bodies/never", "messages": ["a"]}',
    "a table without an end": WHOLE[:-100],
    "half a head": WHOLE[:50],
    "more after the end": WHOLE + b"more",
    "two streams": WHOLE + WHOLE,
    "an old version": encode(GOOD, metadata_version=pa.ipc.MetadataVersion.V4),
    "a batch alone": GOOD.to_batches()[0].serialize().to_pybytes(),
    "a file": b"ARROW1\0\0" + WHOLE,
    "a name that is not UTF-8": WHOLE.replace(b"bodies/never", b"bodies/nev\xff\xff"),
}


@pytest.mark.parametrize("kind", BAD_BODIES)
def test_a_body_that_is_no_arrow_stream_is_refused_and_changes_nothing(wire: Wire, kind: str) -> None:
    refused(wire.ask("POST", PATH, ARROW, BAD_BODIES[kind]), 400, "bad_request")
    assert missing(wire, "bodies/never")


@pytest.mark.parametrize("more", [1, 2, 3, 4])
def test_a_buffer_may_be_longer_than_what_is_in_it(wire: Wire, name: str, more: int) -> None:
    rows = [row(f"{name}/a", *[b"aa"] * 11, create=True), row(f"{name}/b", b"b", create=True)]
    body = bytearray(encode(table_of(rows)))
    # Of all buffers only the offsets of the messages have this length: twelve of them, and one more at the end.
    length, source = struct.pack("<q", 52), pa.BufferReader(body)
    pa.ipc.read_message(source)
    head = pa.ipc.read_message(source).metadata.to_pybytes()
    assert head.count(length) == 1
    struct.pack_into("<q", body, body.index(head) + head.index(length), 52 + more)
    response = wire.ask("POST", PATH, ARROW, bytes(body))
    assert response.status == 200, response.body
    assert statuses(decode(response.body)) == [200, 200]
    assert [read(wire, f"{name}/a"), read(wire, f"{name}/b")] == [b"aa" * 11, b"b"]


def test_a_body_of_another_type_is_refused(wire: Wire) -> None:
    response = wire.ask("POST", PATH, {"Content-Type": "application/json"}, WHOLE)
    assert "application/json" in refused(response, 400, "bad_request")["detail"]
    assert missing(wire, "bodies/never")


@pytest.mark.parametrize("header", [{"Content-Type": TEXT}, {**ARROW, "Stream-Log-Id": "another"}])
def test_a_large_body_that_is_refused_unread_leaves_its_place_in_line(header: dict[str, str]) -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        for _ in range(3):
            with wire_to(url) as wire:
                assert wire.ask("POST", PATH, header, bytes(1024 * 1024)).status in (400, 410)

    against(work)


def test_a_body_that_unpacks_to_more_than_it_may_have_is_never_unpacked(wire: Wire) -> None:
    bomb = encode(table_of([row("bodies/never", bytes(BULK_BYTES_MAX + 1), create=True)]), compression="zstd")
    assert len(bomb) < 100_000
    refused(wire.ask("POST", PATH, ARROW, bomb), 413, "too_large")
    assert missing(wire, "bodies/never")


def test_there_is_a_limit_to_rows_and_bytes(wire: Wire, server: RunningServer) -> None:
    lists = pa.ListArray.from_arrays(pa.array([0] * (BULK_ROWS_MAX + 2), pa.int32()), pa.array([], pa.binary()))
    many = pa.table({"stream": ["bodies/never"] * (BULK_ROWS_MAX + 1), "messages": lists})
    refused(wire.ask("POST", PATH, ARROW, encode(many)), 413, "too_large")
    with Wire(server.url, timeout_seconds=PATIENCE_SECONDS) as large:
        refused(large.ask("POST", PATH, ARROW, bytes(BULK_BYTES_MAX + 1)), 413, "too_large")
    with Wire(server.url, timeout_seconds=PATIENCE_SECONDS) as largest:
        refused(largest.ask("POST", PATH, ARROW, bytes(BULK_BYTES_MAX)), 400, "bad_request")


def test_a_body_with_any_byte_changed_is_answered_and_does_no_damage(wire: Wire, name: str) -> None:
    random = Random(20_260_101)
    rows = [row(name, b'{"a":1}', b"2", content_type=JSON, create=True, producer=("p", 0, seq)) for seq in range(3)]
    bodies = [encode(table_of(rows)), encode(table_of(rows), compression="zstd")]
    seen: set[int] = set()
    for _ in range(400):
        body = bytearray(random.choice(bodies))
        for _ in range(random.choice((1, 1, 2, 8))):
            body[random.randrange(len(body))] = random.choice((0, 1, 127, 128, 255, random.randrange(256)))
        response = wire.ask("POST", PATH, ARROW, bytes(body))
        seen.add(response.status)
        if response.status != 200:
            refused(response, response.status, {400: "bad_request", 413: "too_large"}[response.status])
    assert seen >= {200, 400}
    assert wire.ask("GET", "/healthz").status == 200
