"""Rows of a lake made up for tests of the export, and tables read back by engines that know nothing of it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from headwater.lake.layout import SCHEMA

NOON = datetime(2025, 11, 16, 12, tzinfo=UTC)
NULLABLE = pa.schema([field.with_nullable(True) for field in SCHEMA])


def rows_of(
    name: str, payloads: Sequence[bytes], *, position: int = 10, incarnation: int = 1, offset: int = 0, record: int = 0
) -> pa.Table:
    """Messages of one stream, one append each, half a day apart, at positions that follow upon each other."""
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
