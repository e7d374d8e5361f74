"""The rows to write: what each column means, and what every row must have.

Everything that can be checked in a row is checked before the first append is sent.
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
from headwater.spark.options.sink import SinkOptions
from headwater.spark.options.values import OptionRefused
from headwater.spark.sink.chunks import ROWS
from headwater.spark.sink.delivery import WriteFailed

ORDERED = (
    BinaryType, BooleanType, DateType, DecimalType, FractionalType, IntegralType, StringType, TimestampNTZType,
    TimestampType,
)  # fmt: skip
"""The types of columns that rows can be ordered by."""


class Columns(NamedTuple):
    """The index of each column that matters to the sink; None for those that the table does not have."""

    value: int
    stream: int | None = None
    bucket: int | None = None
    close: int | None = None
    content_type: int | None = None
    offset: int | None = None
    order: tuple[int, ...] = ()


def find_columns(schema: StructType, options: SinkOptions) -> Columns:
    """The columns that matter to the sink; OptionRefused if one is missing or has the wrong type."""
    indexes = {field.name.lower(): at for at, field in enumerate(schema.fields)}

    def find(name: str, *types: type[DataType]) -> int | None:
        at = indexes.get(name.lower())
        if at is not None and not isinstance(schema.fields[at].dataType, types):
            allowed = " or ".join(kind.typeName() for kind in types)
            hint = "; to_json(struct(*)) makes one from a whole row" if name == "value" else ""
            found = schema.fields[at].dataType.simpleString()
            raise OptionRefused(f"The column {name} must be {allowed}, not {found}{hint}.")
        return at

    value = find("value", StringType, BinaryType)
    if value is None:
        raise OptionRefused("There is no column value for the message; to_json(struct(*)) makes one from a whole row.")
    stream = find("stream", StringType)
    if stream is None and options.stream is None:
        raise OptionRefused("Say which streams to write to: add a column stream, or give the option stream.")
    offset = None
    if options.target == "snapshot":
        offset = find("offset", IntegralType)
        if offset is None:
            raise OptionRefused("A snapshot needs a column offset, which says how far into its stream it reaches.")
    order = tuple(find(name, *ORDERED) for name in options.order)
    for name, at in zip(options.order, order, strict=True):
        if at is None:
            raise OptionRefused(f"There is no column {name!r} to order by; check the option orderColumn.")
    return Columns(
        value,
        stream if options.stream is None else None,
        find("bucket", StringType) if options.bucket is None and options.stream is None else None,
        find("close", BooleanType),
        find("content_type", StringType),
        offset,
        tuple(at for at in order if at is not None),
    )


def default_type(schema: StructType, options: SinkOptions) -> str:
    """The content type of new streams, where neither a row nor an option names one."""
    is_string = isinstance(schema.fields[find_columns(schema, options).value].dataType, StringType)
    return options.content_type or (content_types.JSON if is_string else content_types.DEFAULT)


class RowMapper:
    """Turns the batches of a task into rows for the sorter and the chunker."""

    def __init__(self, columns: Columns, options: SinkOptions) -> None:
        self._columns, self._options = columns, options
        self._order = tuple(f"order{number}" for number in range(len(columns.order)))

    @property
    def order(self) -> tuple[str, ...]:
        """The columns to sort by. The value breaks ties, so that a retry cuts the same appends from the same rows."""
        return (*self._order, "value") if self._order else ()

    def rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows in the schema `chunks.ROWS`, followed by the order columns."""
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
        return pa.record_batch([names, values, close, types, *order], names=[*ROWS.names, *self._order])


def stream_names(batch: pa.RecordBatch, columns: Columns, options: SinkOptions) -> pa.StringArray:
    """The full names of the streams that rows are written to."""
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
        raise WriteFailed("A row has no stream; leave such rows out, or give each one a stream.")
    has_bucket = pc.match_substring(names, "/")
    if not pc.all(has_bucket, min_count=0).as_py():
        name = names.filter(pc.invert(has_bucket))[0].as_py()
        raise WriteFailed(f"The stream {name!r} has no bucket; write bucket/{name}, or give the option bucket.")
    return names


def _check_values(names: pa.StringArray, values: pa.BinaryArray, close: pa.BooleanArray) -> None:
    lengths = pc.binary_length(values)
    if values.null_count:
        silent = pc.and_(pc.is_null(values), pc.invert(close))
        if pc.any(silent).as_py():
            _fail(names, silent, "A row for the stream {name!r} has no value; give it one, or set its close to true.")
    empty = pc.equal(lengths, 0)
    if pc.any(empty).as_py():
        _fail(names, empty, "A value for the stream {name!r} is empty; a message needs at least one byte.")
    large = pc.greater(lengths, APPEND_BYTES_MAX)
    if pc.any(large).as_py():
        limit = f"more than {APPEND_BYTES_MAX} bytes, the limit for one message; split it up."
        _fail(names, large, "A value for the stream {name!r} has " + limit)


def _fail(names: pa.StringArray, where: pa.BooleanArray, sentence: str) -> NoReturn:
    raise WriteFailed(sentence.format(name=names.filter(where)[0].as_py()))
