"""Made-up rows of a lake for tests of the export, and appends to a server."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from headwater.lake.format import SCHEMA
from headwater.spark.link import Link, LinkSettings
from headwater.testing import RunningServer

NOON = datetime(2025, 11, 16, 12, tzinfo=UTC)
APPEND = pa.schema(
    [
        ("stream", pa.string()),
        ("messages", pa.list_(pa.binary())),
        ("content_type", pa.string()),
        ("create", pa.bool_()),
    ]
)
"""The columns of an append to many streams."""
NULLABLE = pa.schema([field.with_nullable(True) for field in SCHEMA])


def rows_of(
    name: str, payloads: Sequence[bytes], *, position: int = 10, incarnation: int = 1, offset: int = 0, record: int = 0
) -> pa.Table:
    """Messages of one stream, one append each, half a day apart, at consecutive positions."""
    bucket, _, stream = name.partition("/")
    columns: dict[str, list[object]] = {field: [] for field in SCHEMA.names}
    for number, payload in enumerate(payloads):
        values = (bucket, stream, incarnation, offset, offset + len(payload), record + number, offset)
        at = NOON + timedelta(hours=12 * number, microseconds=number)
        rest = (position + number, at, None, None, None, "application/json", payload)
        for field, value in zip(columns, (*values, *rest), strict=True):
            columns[field].append(value)
        offset += len(payload)
    return pa.table(columns, schema=NULLABLE)


def together(*tables: pa.Table) -> pa.Table:
    """Rows of several streams as one table."""
    return pa.concat_tables(tables).combine_chunks()


def append(server: RunningServer, bucket: str, messages: Mapping[str, list[bytes]]) -> None:
    """Append JSON messages to streams, and create those that do not exist."""
    appends = [{"stream": f"{bucket}/{name}", "messages": some} for name, some in messages.items()]
    rows = pa.Table.from_pylist(
        [{**one, "content_type": "application/json", "create": True} for one in appends], APPEND
    )
    with Link(LinkSettings(server.url)) as link:
        assert set(link.append(rows)["status"].to_pylist()) == {200}
