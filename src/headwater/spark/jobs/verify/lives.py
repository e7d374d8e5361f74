"""Rows to verify as digests, and lives: each incarnation of a stream, summarized from its rows in order of offset.

The digest of a row is the SHA-256 of its numbers (eight bytes each, little-endian: offset, next_offset, record, append,
position, committed_at in microseconds), its texts (content type, producer id, epoch and sequence, each followed by a
NUL, empty if null) and its payload. So no payload is sent between tasks.

The hash of a life is a chain: it starts as 32 zero bytes, and for every row becomes the SHA-256 of itself and the
row's digest. So it depends on every byte of every row, and on their order.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from hashlib import sha256
from struct import Struct
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.lake.format import SCHEMA
from headwater.lake.verify.rows import is_json_value
from headwater.protocol.content_types import is_json
from headwater.protocol.limits import PRODUCER_IDLE_US
from headwater.spark.schemas import schema_of, spark_schema

# -- Digests -----------------------------------------------------------------------------------------------------------


NEEDED = tuple(SCHEMA.names)
FLAW = "flaw"
"""A column that says what is wrong with a row, if anything; not all sides have it."""
NUMBERS = ("offset", "next_offset", "record", "append", "position")

_HEAD = Struct("<6q")


class Row(NamedTuple):
    """A row of digests."""

    name: str
    incarnation: int
    offset: int
    next_offset: int
    record: int
    append: int
    position: int
    at: int
    producer_id: str | None
    producer_epoch: int
    producer_seq: int
    digest: bytes
    flaw: str | None


DIGESTS = schema_of(Row)


def digests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of rows as batches of digests."""
    for batch in batches:
        if len(batch):
            yield digest_batch(batch)


def digest_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of rows, with all columns of the lake, as digests."""
    numbers = [batch[name].to_pylist() for name in NUMBERS]
    times = batch["committed_at"].cast(pa.int64()).to_pylist()
    texts = [batch[name].to_pylist() for name in ("content_type", "producer_id", "producer_epoch", "producer_seq")]
    payloads = batch["payload"].to_pylist()
    known = batch[FLAW].to_pylist() if FLAW in batch.schema.names else [None] * len(batch)
    found, flaws = [], []
    for head, row_texts, payload, flaw in zip(
        zip(*numbers, times, strict=True), zip(*texts, strict=True), payloads, known, strict=True
    ):
        joined = "".join("\0" if text is None else f"{text}\0" for text in row_texts)
        found.append(sha256(b"".join((_HEAD.pack(*head), joined.encode(), payload))).digest())
        flaws.append(flaw or flaw_of(head[1] - head[0], row_texts[0], payload))
    names = [
        f"{bucket}/{stream}"
        for bucket, stream in zip(*(batch[one].to_pylist() for one in ("bucket", "stream")), strict=True)
    ]
    columns = [names, batch["incarnation"], *numbers, times, *texts[1:], found, flaws]
    return pa.record_batch(
        [pa.array(column, field.type) for column, field in zip(columns, DIGESTS, strict=True)], schema=DIGESTS
    )


def flaw_of(size: int, content_type: str, payload: bytes) -> str | None:
    """What is wrong with a single row, if anything."""
    if len(payload) != size:
        return "the length of the payload does not match its offsets"
    if not payload:
        return "the payload is empty"
    if is_json(content_type) and not is_json_value(payload):
        return "the payload is not a JSON value"
    return None


# -- Lives -------------------------------------------------------------------------------------------------------------


BEGINNING = bytes(32)

LIVES = pa.schema(
    [
        pa.field("name", pa.string()),
        pa.field("incarnation", pa.int64()),
        pa.field("known", pa.bool_()),
        pa.field("rows", pa.int64()),
        pa.field("own_rows", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("first_offset", pa.int64()),
        pa.field("end_offset", pa.int64()),
        pa.field("first_record", pa.int64()),
        pa.field("lake_rows", pa.int64()),
        pa.field("lake_hash", pa.string()),
        pa.field("export_rows", pa.int64()),
        pa.field("export_hash", pa.string()),
        pa.field("flaws", pa.int64()),
        pa.field("flaw", pa.string()),
        pa.field("flaw_at", pa.int64()),
    ]
)
EVER = 2**63 - 1
MARK = -1
"""The offset of a marker, which sorts before the rows of a life; its next_offset is the current start of the life."""


class Window(NamedTuple):
    """The rows in which two sides have to agree: up to a position, in a time range in microseconds since 1970."""

    position: int = EVER
    since: int = 0
    until: int = EVER

    def has(self, position: int, at: int) -> bool:
        """Whether a row is in the window."""
        return position <= self.position and self.since <= at < self.until


class Windows(NamedTuple):
    """What the lake and the export have to hold; None for a side that is not compared."""

    lake: Window | None
    export: Window | None


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """The rows of a batch of digests."""
    return map(Row._make, zip(*(batch[name].to_pylist() for name in Row._fields), strict=True))


def follows(before: Row, row: Row) -> bool:
    """Whether two consecutive appends of a producer have valid epochs and sequence numbers."""
    if row.producer_epoch == before.producer_epoch and row.producer_seq == before.producer_seq + 1:
        return True
    # The server forgets a producer that is idle for long; it may then start again at 0.
    expired = row.at - before.at > PRODUCER_IDLE_US
    return row.producer_seq == 0 and (row.producer_epoch > before.producer_epoch or expired)


def marks(described: DataFrame) -> DataFrame:
    """Markers with the current start of each life, for a side that may have rows below it."""
    known = {"name": F.col("stream"), "incarnation": F.col("incarnation"), "next_offset": F.col("start")}
    return described.select(
        *(
            known.get(field.name, F.lit(MARK if field.name == "offset" else None).cast(field.dataType)).alias(
                field.name
            )
            for field in spark_schema(DIGESTS)
        )
    )


def lives(rows: DataFrame, windows: Windows, *, marked: bool = False) -> DataFrame:
    """The lives in rows, which are digests in any order. If `marked`, only lives with a marker are known."""
    keys = ("name", "incarnation")
    ordered = rows.repartition(*keys).sortWithinPartitions(*keys, "offset", "next_offset", "digest")
    return ordered.mapInArrow(partial(fold_lives, windows, marked), spark_schema(LIVES))


def fold_lives(windows: Windows, marked: bool, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The lives in rows that are sorted by life and offset."""
    life: Life | None = None
    for batch in batches:
        ended: list[dict[str, Any]] = []
        for row in rows_of(batch):
            if life is None or (row.name, row.incarnation) != (life.name, life.incarnation):
                if life is not None:
                    ended += life.summary()
                life = Life(row.name, row.incarnation, windows, EVER if marked else 0)
            if row.offset == MARK:
                life.start = row.next_offset
            else:
                life.add(row)
        if ended:
            yield pa.RecordBatch.from_pylist(ended, schema=LIVES)
    if life is not None and life.summary():
        yield pa.RecordBatch.from_pylist(life.summary(), schema=LIVES)


class Chain:
    """The hash chain of the rows in a window."""

    def __init__(self, window: Window | None) -> None:
        self._window = window
        self.rows, self.hash = 0, BEGINNING

    def add(self, row: Row) -> None:
        if self._window is not None and self._window.has(row.position, row.at):
            self.rows += 1
            self.hash = sha256(self.hash + row.digest).digest()


class Life:
    """One life of a stream, row by row."""

    def __init__(self, name: str, incarnation: int, windows: Windows, start: int) -> None:
        self.name, self.incarnation, self.start = name, incarnation, start
        """Below `start` the server has nothing, so nothing is compared and gaps are allowed."""
        self._rows = self._own_rows = self._bytes = self._flaws = 0
        self._lake, self._export = Chain(windows.lake), Chain(windows.export)
        self._first: Row | None = None
        self._last: Row | None = None
        self._flaw: tuple[str, int] | None = None
        self._producers: dict[str | None, Row] = {}

    def add(self, row: Row) -> None:
        """Add the next row, in order of offset."""
        if row.flaw is not None:
            self._note(row.flaw, row.offset)
        if self._last is None:
            self._first = row
        else:
            self._follow(self._last, row)
        # Inherited rows of a fork are under its source in lake and export, and are compared there.
        own = row.position >= self.incarnation
        if row.producer_id is not None and own:
            self._produce(row)
        self._last = row
        self._rows += 1
        self._own_rows += own
        self._bytes += row.next_offset - row.offset
        if row.offset >= self.start and own:
            self._lake.add(row)
            self._export.add(row)

    def _follow(self, last: Row, row: Row) -> None:
        """Check a row against the previous one."""
        at = row.offset
        if at < last.next_offset:
            self._note(f"the bytes from {at} on are repeated", at)
        elif at <= self.start:
            return
        elif at > last.next_offset:
            self._note(f"the bytes from {last.next_offset} to {at} are missing", last.next_offset)
        elif row.record != last.record + 1:
            self._note(f"record {row.record} follows record {last.record}", at)
        elif row.position < last.position or row.at < last.at:
            self._note("the positions or times decrease", at)

    def _produce(self, row: Row) -> None:
        """Check a row against the last append of its producer."""
        before = self._producers.get(row.producer_id)
        if before is not None and before.append == row.append:
            return
        self._producers[row.producer_id] = row
        if before is not None and row.offset > self.start and not follows(before, row):
            now, then = (f"{one.producer_epoch}/{one.producer_seq}" for one in (row, before))
            gap = f"epoch/sequence {now} follows {then}"
            self._note(f"producer {row.producer_id!r} has a gap: {gap}", row.offset)

    def _note(self, flaw: str, at: int) -> None:
        self._flaws += 1
        self._flaw = self._flaw or (flaw, at)

    def summary(self) -> list[dict[str, Any]]:
        """One row with the facts of the life; none if it has no rows."""
        if self._first is None or self._last is None:
            return []
        facts = {
            "name": self.name,
            "incarnation": self.incarnation,
            "known": self.start < EVER,
            "rows": self._rows,
            "own_rows": self._own_rows,
            "bytes": self._bytes,
            "first_offset": self._first.offset,
            "end_offset": self._last.next_offset,
            "first_record": self._first.record,
            "lake_rows": self._lake.rows,
            "lake_hash": self._lake.hash.hex(),
            "export_rows": self._export.rows,
            "export_hash": self._export.hash.hex(),
            "flaws": self._flaws,
            "flaw": self._flaw[0] if self._flaw else None,
            "flaw_at": self._flaw[1] if self._flaw else None,
        }
        return [facts]
