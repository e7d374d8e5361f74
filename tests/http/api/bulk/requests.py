"""Requests of bulk appends, and the outcomes of their rows."""

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any

import pyarrow as pa

from ...sockets import Wire

PATH = "/__headwater/append"
PATIENCE_SECONDS = 120.0
"""How long any one wait may take; a machine that is busy with other things takes long for a large request."""
ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}
TYPES = {
    "stream": pa.string(),
    "messages": pa.list_(pa.binary()),
    "content_type": pa.string(),
    "create": pa.bool_(),
    "close": pa.bool_(),
    "producer_id": pa.string(),
    "producer_epoch": pa.int64(),
    "producer_seq": pa.int64(),
}

Row = dict[str, Any]


def row(stream: str, *messages: bytes, producer: tuple[str, int, int] | None = None, **more: Any) -> Row:
    """One append; arguments that are not given are left out."""
    triple = dict(zip(("producer_id", "producer_epoch", "producer_seq"), producer or (), strict=False))
    return {"stream": stream, "messages": list(messages)} | more | triple


def table_of(rows: Iterable[Row], types: Mapping[str, pa.DataType] | None = None) -> pa.Table:
    """Rows as a table of the columns that any of them has."""
    rows = list(rows)
    wanted = TYPES | dict(types or {})
    names = [name for name in wanted if name in ("stream", "messages") or any(name in row for row in rows)]
    return pa.table({name: pa.array([row.get(name) for row in rows], wanted[name]) for name in names})


def encode(table: pa.Table, chunk_rows: int | None = None, **options: Any) -> bytes:
    """A table as an Arrow stream."""
    sink = BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
        stream.write_table(table, chunk_rows)
    return sink.getvalue()


def decode(body: bytes) -> list[Row]:
    """The outcome of each row."""
    rows: list[Row] = pa.ipc.open_stream(body).read_all().to_pylist()
    return rows


def bulk(wire: Wire, *rows: Row) -> list[Row]:
    """Send rows as one request, which must succeed, and return the outcome of each."""
    return bulk_table(wire, table_of(rows))


def bulk_table(wire: Wire, table: pa.Table) -> list[Row]:
    response = wire.ask("POST", PATH, ARROW, encode(table))
    assert response.status == 200, response.body
    assert response.headers["content-type"] == ARROW["Content-Type"]
    assert response.headers["cache-control"] == "no-store"
    outcomes = decode(response.body)
    assert len(outcomes) == len(table)
    return outcomes


def statuses(outcomes: Sequence[Row]) -> list[int]:
    return [row["status"] for row in outcomes]


def codes(outcomes: Sequence[Row]) -> list[tuple[int, str | None]]:
    return [(row["status"], row["code"]) for row in outcomes]


def read(wire: Wire, name: str) -> bytes:
    """A stream from its beginning."""
    response = wire.ask("GET", f"/v1/stream/{name}?offset=-1")
    assert response.status == 200, response.body
    return response.body


def missing(wire: Wire, name: str) -> bool:
    return wire.ask("HEAD", f"/v1/stream/{name}").status == 404
