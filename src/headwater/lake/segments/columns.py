"""Appends in memory become columns, a row group at a time; all work per row is done in native code.

Attributes are fetched with `map` and `attrgetter`; Arrow repeats the values of an append or a life over its rows.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, islice
from operator import attrgetter
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.format import SCHEMA, WORDS
from headwater.protocol import message_ends
from headwater.streams.hot import Hot

_OFFSET = attrgetter("offset")
_PAYLOAD = attrgetter("payload")
_ENDS = attrgetter("ends")
_RECORD = attrgetter("record")
_POSITION = attrgetter("position")
_AT = attrgetter("at")
_PRODUCER = attrgetter("producer")

_PRODUCER_COLUMNS = ("producer_id", "producer_epoch", "producer_seq")
_TIME = SCHEMA.field("committed_at").type

_STEP = 8192
"""Integers fetched at once, which takes half a millisecond."""

_WORD = pa.dictionary(pa.int32(), pa.string())
ENCODED = pa.schema([field.with_type(_WORD) if field.name in WORDS else field for field in SCHEMA])
"""The schema for the Parquet writer, which then need not search for equal strings itself."""


class _NoProducer(NamedTuple):
    id: None = None
    epoch: None = None
    seq: None = None


_ABSENT = _NoProducer()


class Life(NamedTuple):
    """The values that all rows of one life share."""

    bucket: str
    stream: str
    incarnation: int
    content_type: str


class Lives:
    """Neighbouring lives, each with some of its appends: the input of one row group."""

    __slots__ = ("appends", "lives", "row_ends", "rows")

    def __init__(self) -> None:
        self.appends: list[Hot] = []
        self.lives: list[Life] = []
        self.row_ends: list[int] = []
        self.rows = 0

    def add(self, life: Life, appends: Sequence[Hot], rows: int) -> None:
        """Add a life with appends that hold this many rows."""
        self.appends.extend(appends)
        self.lives.append(life)
        self.rows += rows
        self.row_ends.append(self.rows)

    def table(self, names: Sequence[str] = ENCODED.names) -> pa.Table:
        """One row for each message, in the schema `ENCODED` or some fields of it; other attributes are not fetched."""
        appends = self.appends
        payloads = list(map(_PAYLOAD, appends))
        several = list(map(_ENDS, appends))
        lengths = integers(map(len, payloads))
        at = integers(accumulate(map(len, payloads), initial=0))
        if any(several):
            rows_each = integers(map(message_ends.count, several))
            row_ends = pc.cumulative_sum(rows_each)
            packed = b"".join(
                [ends or message_ends.pack((len(payload),)) for ends, payload in zip(several, payloads, strict=True)]
            )
            within = pa.Array.from_buffers(pa.uint32(), message_ends.count(packed), [None, pa.py_buffer(packed)]).cast(
                pa.int64()
            )
            first_rows = pc.subtract(row_ends, rows_each)
        else:
            row_ends, within, first_rows = None, lengths, pa.arange(0, len(appends))
        rows = len(within)
        if rows != self.rows:
            raise ValueError(f"The appends hold {rows} messages, but {self.rows} by their records.")
        append = spread(integers(map(_OFFSET, appends)), row_ends)
        next_offset = pc.add(append, within)
        payload_ends = pc.add(spread(at.slice(0, len(appends)), row_ends), within)
        boundaries = pa.concat_arrays([at.slice(0, 1), payload_ends])
        life_ends = integers(self.row_ends)
        buckets, streams, incarnations, content_types = zip(*self.lives, strict=True)
        made = self._producers(row_ends, rows) if any(name in _PRODUCER_COLUMNS for name in names) else {}
        makers: dict[str, Callable[[], pa.Array]] = {
            "bucket": lambda: word(buckets, life_ends),
            "stream": lambda: word(streams, life_ends),
            "incarnation": lambda: spread(integers(incarnations), life_ends),
            "offset": lambda: pc.subtract(next_offset, pc.subtract(payload_ends, boundaries.slice(0, rows))),
            "next_offset": lambda: next_offset,
            "record": lambda: pc.add(
                spread(pc.subtract(integers(map(_RECORD, appends)), first_rows), row_ends), pa.arange(0, rows)
            ),
            "append": lambda: append,
            "position": lambda: spread(integers(map(_POSITION, appends)), row_ends),
            "committed_at": lambda: spread(integers(map(_AT, appends)), row_ends).view(_TIME),
            "content_type": lambda: word(content_types, life_ends),
            "payload": lambda: pa.Array.from_buffers(
                pa.binary(), rows, [None, boundaries.cast(pa.int32()).buffers()[1], pa.py_buffer(b"".join(payloads))]
            ),
        }
        columns = [made[name] if name in made else makers[name]() for name in names]
        return pa.table(columns, schema=pa.schema([ENCODED.field(name) for name in names]))

    def _producers(self, row_ends: pa.Array | None, rows: int) -> dict[str, pa.Array]:
        producers = list(map(_PRODUCER, self.appends))
        if not any(producers):
            nothing = pa.nulls(rows, pa.int64())
            return {
                "producer_id": pa.DictionaryArray.from_arrays(pa.nulls(rows, pa.int32()), pa.array([], pa.string())),
                "producer_epoch": nothing,
                "producer_seq": nothing,
            }
        known = [producer or _ABSENT for producer in producers]
        return {
            "producer_id": word([producer.id for producer in known], row_ends),
            "producer_epoch": spread(pa.array([producer.epoch for producer in known], pa.int64()), row_ends),
            "producer_seq": spread(pa.array([producer.seq for producer in known], pa.int64()), row_ends),
        }


def encoded(table: pa.Table) -> pa.Table:
    """A table of the public schema in the schema of the Parquet writer; words are numbered in order of appearance."""
    columns = [
        column.dictionary_encode() if name in WORDS else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    return pa.table(columns, schema=ENCODED)


def integers(values: Iterable[int]) -> pa.Array:
    """An Arrow array of integers, filled in steps so that the event loop can run in between."""
    data, source, filled = array("q"), iter(values), -1
    while filled < len(data):
        filled = len(data)
        data.extend(islice(source, _STEP))
    return pa.Array.from_buffers(pa.int64(), len(data), [None, pa.py_buffer(data)])


def spread(values: pa.Array, ends: pa.Array | None) -> pa.Array:
    """Each value repeated up to its row end; unchanged if there are no row ends, where each value is one row."""
    if ends is None:
        return values
    return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, values))


def word(values: Sequence[str | None], ends: pa.Array | None) -> pa.Array:
    """A dictionary column from one value for each run of rows."""
    known = pa.array(values, pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(spread(known.indices, ends), known.dictionary)


def starts(*columns: pa.Array) -> pa.Array:
    """The rows at which any of the columns differs from the row before."""
    count = len(columns[0])
    changed = pc.not_equal(columns[0].slice(1), columns[0].slice(0, count - 1))
    for column in columns[1:]:
        changed = pc.or_(changed, pc.not_equal(column.slice(1), column.slice(0, count - 1)))
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.add(pc.indices_nonzero(changed).cast(pa.int64()), 1)])


def view(values: pa.Array, code: Literal["i", "q"] = "q") -> memoryview:
    """The integers of an array as a sequence, not copied."""
    width = values.type.bit_width // 8
    # A buffer may be padded by any number of bytes.
    data = memoryview(values.buffers()[1])[values.offset * width : (values.offset + len(values)) * width]
    return data.cast(code)


def gap(table: pa.Table) -> str | None:
    """What is wrong with the rows of a group, which may be of several lives; None if there is no gap within a life."""
    lengths = pc.subtract(table["next_offset"], table["offset"])
    if pc.min(lengths).as_py() < 1 or not lengths.equals(pc.binary_length(table["payload"]).cast(pa.int64())):
        return "a row whose payload does not match its offsets"
    rest = len(table) - 1
    inside = pc.equal(table["incarnation"].slice(1), table["incarnation"].slice(0, rest))
    for column, before, step in (("offset", "next_offset", 0), ("record", "record", 1)):
        follows = pc.equal(table[column].slice(1), pc.add(table[before].slice(0, rest), step))
        if not pc.all(pc.or_(follows, pc.invert(inside)), min_count=0).as_py():
            return f"a life with a gap in its {column}s"
    return None
