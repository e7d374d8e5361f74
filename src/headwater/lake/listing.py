"""What the next catalog will list, kept up to date by what changed: it is never gathered as a whole.

The tables are Arrow data, changed by Arrow's own functions. So a catalog of a million tombstones takes no Python code
per row, except for those that are new.
"""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.catalog import (
    FORKS,
    TOMBSTONES,
    Contents,
    Edition,
    ForkRow,
    TombstoneRow,
    fork_columns,
    table_of,
    tombstone_columns,
)
from headwater.streams.cold import Held

CHUNKS_MAX = 32
"""How many pieces a table may consist of before they are copied into one."""


class Changes(NamedTuple):
    """What to list from now on, by number or incarnation; None is listed no longer."""

    segments: list[tuple[int, Held | None]]
    tombstones: list[tuple[int, TombstoneRow | None]]
    forks: list[tuple[int, ForkRow | None]]


class Heading(NamedTuple):
    """The numbers at the head of a catalog."""

    shard: int
    log_id: str
    edition: Edition
    flushed: int
    dropped: int
    at: int


class Listing:
    """Segments, tombstones and forks as of the last change; for one thread at a time."""

    def __init__(self) -> None:
        self._segments: dict[int, Held] = {}
        self._tombstones = _KeyedTable(TOMBSTONES)
        self._forks = _KeyedTable(FORKS)

    def update(self, changes: Changes) -> None:
        for number, held in changes.segments:
            if held is None:
                self._segments.pop(number, None)
            else:
                self._segments[number] = held
        self._tombstones.update(
            [(key, None if row is None else tombstone_columns(row)) for key, row in changes.tombstones]
        )
        self._forks.update([(key, None if row is None else fork_columns(row)) for key, row in changes.forks])

    def contents(self, heading: Heading) -> Contents:
        """The contents of a catalog under this heading."""
        return Contents(
            heading.shard,
            heading.log_id,
            *heading.edition,
            heading.flushed,
            heading.dropped,
            heading.at,
            [(number, held.segment, held.live_rows) for number, held in self._segments.items()],
            self._tombstones.table(),
            self._forks.table(),
        )


class _KeyedTable:
    """A table with at most one row for each incarnation."""

    def __init__(self, schema: pa.Schema) -> None:
        self._table = schema.empty_table()
        self._pending: dict[int, tuple[str | int, ...] | None] = {}

    def update(self, rows: list[tuple[int, tuple[str | int, ...] | None]]) -> None:
        self._pending.update(rows)

    def table(self) -> pa.Table:
        if self._pending:
            changed = pa.array(self._pending, pa.int64())
            kept = self._table.filter(pc.invert(pc.is_in(self._table["incarnation"], value_set=changed)))
            added = table_of([row for row in self._pending.values() if row is not None], kept.schema)
            joined = pa.concat_tables([kept, added])
            self._table = joined.combine_chunks() if joined["incarnation"].num_chunks > CHUNKS_MAX else joined
            self._pending = {}
        return self._table
