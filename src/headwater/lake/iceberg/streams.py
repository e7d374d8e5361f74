"""The table `streams`: one row for each living stream, rewritten now and then.

Rows arrive sorted by bucket and stream, so that each file has a range of names of its own. Neither the rows nor the
files of a large table are ever in memory together.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.damage import LakeDamaged
from headwater.lake.format import split_name
from headwater.lake.iceberg.bounds import NameBounds
from headwater.lake.iceberg.commits import Outdated
from headwater.lake.iceberg.manifests import TableLocation
from headwater.lake.iceberg.metadata import Table
from headwater.lake.iceberg.reading import newest_table
from headwater.lake.iceberg.schemas import with_ids
from headwater.lake.iceberg.small_tables import SmallTable, files_of, read_file
from headwater.storage.store import Store

NAME = "streams"
FILE_ROWS = 50_000
FILE_BYTES = 16 * 1024 * 1024
"""The most rows of a file, and the most bytes of their names and attributes: what is in memory at a time."""

_MOMENT = pa.timestamp("us", tz="UTC")

STREAMS = pa.schema(
    [
        pa.field("bucket", pa.string(), nullable=False),
        pa.field("stream", pa.string(), nullable=False),
        pa.field("incarnation", pa.int64(), nullable=False),
        pa.field("content_type", pa.string(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("tail", pa.int64(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("closed", pa.bool_(), nullable=False),
        pa.field("created_at", _MOMENT, nullable=False),
        pa.field("written_at", _MOMENT, nullable=False),
        pa.field("forked_from", pa.string()),
        pa.field("attributes", pa.string()),
    ]
)
"""A stream has the bytes from `start` to `tail`, and in them so many records. Attributes are JSON."""


class StreamRow(NamedTuple):
    """A row of the table, with its whole name."""

    name: str
    incarnation: int
    content_type: str
    start: int
    tail: int
    records: int
    closed: bool
    created_at: int
    written_at: int
    forked_from: str | None
    attributes: bytes | None


class StreamsTable:
    """The table, and the rewrite that is under way; for one thread at a time."""

    def __init__(
        self, store: Store, url: str, shard: int, log_id: str, *, history_ms: int, now_ms: Callable[[], int]
    ) -> None:
        location = TableLocation(url, shard, with_ids(STREAMS))
        self._table = SmallTable(store, location, NAME, log_id, history_ms=history_ms, now_ms=now_ms)
        self._waiting: list[pa.Table] = []
        self._waiting_rows = self._waiting_bytes = 0

    def updated_ms(self) -> int | None:
        """When the last commit was made; None if there is none that is intact."""
        self._table.load()
        return self._table.updated_ms

    def begin(self, position: int) -> None:
        """Begin to rewrite the table, as of a log position. Outdated if it describes a later one."""
        self._table.begin()
        self._take_waiting()
        if position < self._table.position:
            raise Outdated(f"The table describes position {self._table.position}, this server is at {position}.")

    def add(self, rows: Sequence[StreamRow]) -> None:
        """Add the next rows; full files are stored at once.

        A few thousand at a time are best: while Python's values become columns, no other thread can work.
        """
        self._wait(table_of(rows))
        while self._waiting_rows >= FILE_ROWS or self._waiting_bytes >= FILE_BYTES:
            table = self._take_waiting()
            self._store(table.slice(0, FILE_ROWS))
            self._wait(table.slice(FILE_ROWS))

    def _wait(self, table: pa.Table) -> None:
        if len(table):
            self._waiting.append(table)
            self._waiting_rows += len(table)
            self._waiting_bytes += table.nbytes

    def _take_waiting(self) -> pa.Table:
        table = pa.concat_tables([STREAMS.empty_table(), *self._waiting])
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0
        return table

    def finish(self, position: int) -> bool:
        """Commit the rows that were added; return whether the table has changed."""
        if self._waiting:
            self._store(self._take_waiting())
        return self._table.finish(position)

    def _store(self, table: pa.Table) -> None:
        bounds = (pc.min_max(table[name]).as_py() for name in ("bucket", "stream"))
        self._table.add(table.combine_chunks(), NameBounds(*(one[end] for one in bounds for end in ("min", "max"))))

    def tidy(self) -> None:
        """Drop the snapshots whose time has come, and delete what only they needed."""
        self._table.tidy()

    def forget_history(self) -> None:
        """Keep the current snapshot alone; right after a commit."""
        self._table.forget_history()


def table_of(rows: Sequence[StreamRow]) -> pa.Table:
    """Rows as an Arrow table."""
    if not rows:
        return STREAMS.empty_table()
    names, *others = zip(*rows, strict=True)
    columns = [*zip(*map(split_name, names), strict=True), *others]
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, STREAMS, strict=True)], STREAMS)


# -- Reading -----------------------------------------------------------------------------------------------------------


def read_streams(store: Store) -> tuple[Table, Iterator[pa.Table]] | None:
    """The table in a store, and its rows file by file, in the schema `STREAMS`; None if it was never written."""
    table = newest_table(store, NAME)
    if table is None:
        return None
    return table, _rows(store, table)


def _rows(store: Store, table: Table) -> Iterator[pa.Table]:
    for entry in files_of(store, table.current):
        rows = read_file(store, entry, STREAMS)
        if len(rows) != entry.rows:
            raise LakeDamaged(entry.key, f"it has {len(rows)} rows, but {entry.rows} are listed")
        yield rows
