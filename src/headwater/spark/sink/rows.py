"""The rows that are written: which columns mean what, and what every row must have.

Everything that can be seen in a row is checked before the first append is sent.
"""

from typing import NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headwater.protocol import content_types
from headwater.protocol.limits import APPEND_BYTES_MAX
from headwater.spark.options.values import OptionRefused
from headwater.spark.sink.chunks import ROWS
from headwater.spark.sink.delivery import WriteFailed
from headwater.spark.sink.options import SinkOptions

ORDERED = (
    BinaryType, BooleanType, DateType, DecimalType, FractionalType, IntegralType, StringType, TimestampNTZType,
    TimestampType,
)  # fmt: skip
"""What rows can be ordered by."""


class Columns(NamedTuple):
    """Where in a row to find what; None for what it does not have."""

    value: int
    stream: int | None = None
    bucket: int | None = None
    close: int | None = None
    content_type: int | None = None
    offset: int | None = None
    order: tuple[int, ...] = ()


def find_columns(schema: StructType, options: SinkOptions) -> Columns:
    """The columns that matter to the sink; OptionRefused if one is missing or of a wrong type."""
    places = {field.name.lower(): at for at, field in enumerate(schema.fields)}

    def place(name: str, *types: type[DataType]) -> int | None:
        at = places.get(name.lower())
        if at is not None and not isinstance(schema.fields[at].dataType, types):
            words = " or ".join(kind.typeName() for kind in types)
            hint = "; to_json(struct(*)) makes one of a whole row" if name == "value" else ""
            raise OptionRefused(f"The column {name} is {words}, not {schema.fields[at].dataType.simpleString()}{hint}.")
        return at

    value = place("value", StringType, BinaryType)
    if value is None:
        raise OptionRefused("There is no column value, the message; to_json(struct(*)) makes one of a whole row.")
    stream = place("stream", StringType)
    if stream is None and options.stream is None:
        raise OptionRefused("Say where rows go: there is neither a column stream nor an option stream.")
    offset = None
    if options.target == "snapshot":
        offset = place("offset", IntegralType)
        if offset is None:
            raise OptionRefused("A snapshot needs a column offset: up to where it stands for its stream.")
    order = tuple(place(name, *ORDERED) for name in options.order)
    for name, at in zip(options.order, order, strict=True):
        if at is None:
            raise OptionRefused(f"There is no column {name!r} to order by.")
    return Columns(
        value,
        stream if options.stream is None else None,
        place("bucket", StringType) if options.bucket is None and options.stream is None else None,
        place("close", BooleanType),
        place("content_type", StringType),
        offset,
        tuple(at for at in order if at is not None),
    )


def default_type(schema: StructType, options: SinkOptions) -> str:
    """The type of streams that are made, where neither a row nor an option names one."""
    text = isinstance(schema.fields[find_columns(schema, options).value].dataType, StringType)
    return options.content_type or (content_types.JSON if text else content_types.DEFAULT)


class RowReader:
    """Turns the batches of a task into rows for the sorter and the chunker."""

    def __init__(self, columns: Columns, options: SinkOptions) -> None:
        self._columns, self._options = columns, options
        self.order = tuple(f"order{number}" for number in range(len(columns.order)))

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as `chunks.ROWS` has them, with the columns that they are ordered by."""
        columns, count = self._columns, len(batch)
        names = stream_names(batch, columns, self._options)
        values = batch.column(columns.value).cast(pa.binary())
        close = pa.repeat(self._options.close, count)
        if columns.close is not None and not self._options.close:
            close = batch.column(columns.close).fill_null(False)
        types = pa.repeat(pa.scalar(self._options.content_type, pa.string()), count)
        if columns.content_type is not None:
            types = pc.coalesce(batch.column(columns.content_type).cast(pa.string()), types)
        _check_values(names, values, close)
        order = [batch.column(at) for at in columns.order]
        return pa.record_batch([names, values, close, types, *order], names=[*ROWS.names, *self.order])


def stream_names(batch: pa.RecordBatch, columns: Columns, options: SinkOptions) -> pa.StringArray:
    """The whole names of the streams that rows go to."""
    if columns.stream is None:
        assert options.stream is not None
        names = pa.repeat(options.stream, len(batch))
    else:
        names = batch.column(columns.stream).cast(pa.string())
    if options.bucket is not None:
        names = pc.binary_join_element_wise(options.bucket, names, "/")
    elif columns.bucket is not None:
        names = pc.binary_join_element_wise(batch.column(columns.bucket).cast(pa.string()), names, "/")
    if names.null_count:
        raise WriteFailed("A row has no stream; leave such rows out, or give them the name of one.")
    whole = pc.match_substring(names, "/")
    if not pc.all(whole, min_count=0).as_py():
        name = names.filter(pc.invert(whole))[0].as_py()
        raise WriteFailed(f"The stream {name!r} has no bucket; write bucket/{name}, or give the option bucket.")
    return names


def _check_values(names: pa.StringArray, values: pa.BinaryArray, close: pa.BooleanArray) -> None:
    lengths = pc.binary_length(values)
    if values.null_count:
        silent = pc.and_(pc.is_null(values), pc.invert(close))
        if pc.any(silent).as_py():
            _fail(names, silent, "A row for the stream {name!r} has no value; give it one, or let its close be true.")
    empty = pc.equal(lengths, 0)
    if pc.any(empty).as_py():
        _fail(names, empty, "A value for the stream {name!r} is empty; a message has one byte at least.")
    large = pc.greater(lengths, APPEND_BYTES_MAX)
    if pc.any(large).as_py():
        limit = f"more than {APPEND_BYTES_MAX} bytes; a message can have no more."
        _fail(names, large, "A value for the stream {name!r} has " + limit)


def _fail(names: pa.StringArray, where: pa.BooleanArray, sentence: str) -> NoReturn:
    raise WriteFailed(sentence.format(name=names.filter(where)[0].as_py()))
