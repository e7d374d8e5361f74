"""The rows to write: which columns the sink needs, and which rows it refuses."""

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, BooleanType, DataType, IntegerType, StringType, StructType

from headwater.protocol.limits import APPEND_BYTES_MAX
from headwater.spark.link import LinkSettings
from headwater.spark.options.sink import SinkOptions
from headwater.spark.options.values import OptionRefused
from headwater.spark.sink.delivery import WriteFailed
from headwater.spark.sink.rows import RowMapper, default_type, find_columns

BATCH = SinkOptions(LinkSettings("http://127.0.0.1:1"))
TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "array<int>": ArrayType(IntegerType()),
}


def struct(columns: str) -> StructType:
    """A schema; Spark's own parser for such strings needs a session."""
    found = StructType()
    for column in columns.split(", "):
        name, _, kind = column.partition(" ")
        found.add(name, TYPES[kind])
    return found


SIMPLE = struct("stream string, value string")


@pytest.mark.parametrize(
    "schema, options, sentence",
    [
        ("stream string", BATCH, r"There is no column value for the message; to_json\(struct\(\*\)\) makes one"),
        ("value string", BATCH, r"Say which streams to write to: "),
        ("stream string, value int", BATCH, r"The column value must be string or binary, not int; to_json\(struct"),
        ("stream int, value string", BATCH, r"The column stream must be string, not int\."),
        ("stream string, value string, close int", BATCH, r"The column close must be boolean, not int\."),
        ("stream string, value string", BATCH._replace(order=("at",)), r"There is no column 'at' to order by; "),
        (
            "stream string, value string, at array<int>",
            BATCH._replace(order=("at",)),
            r"The column at must be .*, not array<int>\.",
        ),
        ("stream string, value string", BATCH._replace(target="snapshot"), r"A snapshot needs a column offset, "),
    ],
)
def test_columns_that_are_missing_or_have_the_wrong_type_are_refused(
    schema: str, options: SinkOptions, sentence: str
) -> None:
    with pytest.raises(OptionRefused, match=f"^{sentence}"):
        find_columns(struct(schema), options)


def test_strings_become_json_and_bytes_stay_bytes_by_default() -> None:
    in_bytes = struct("stream string, value binary")
    assert default_type(SIMPLE, BATCH) == "application/json"
    assert default_type(in_bytes, BATCH) == "application/octet-stream"
    assert default_type(in_bytes, BATCH._replace(content_type="text/plain")) == "text/plain"


def rows(schema: str, options: SinkOptions, *values: tuple[object, ...]) -> list[dict[str, object]]:
    fields = struct(schema)
    batch = pa.RecordBatch.from_pylist([dict(zip(fields.names, row, strict=True)) for row in values])
    return list(RowMapper(find_columns(fields, options), options).rows(batch).to_pylist())


def test_names_are_full_or_in_the_bucket_of_an_option_or_a_column() -> None:
    two = "stream string, value string"
    three = f"bucket string, {two}"
    assert rows(two, BATCH, ("b/x", "1"))[0]["stream"] == "b/x"
    assert rows(two, BATCH._replace(bucket="b"), ("x/y", "1"))[0]["stream"] == "b/x/y"
    assert rows(three, BATCH, ("b", "x", "1"))[0]["stream"] == "b/x"
    assert rows(three, BATCH._replace(bucket="c"), ("b", "x", "1"))[0]["stream"] == "c/x"
    assert rows(three, BATCH._replace(stream="d/z"), ("b", "x", "1"))[0]["stream"] == "d/z"
    assert rows("value string", BATCH._replace(bucket="b", stream="z"), ("1",))[0]["stream"] == "b/z"


def test_a_row_may_close_its_stream_name_its_type_and_have_order_columns() -> None:
    schema = "stream string, value binary, close boolean, content_type string, at int, extra string"
    options = BATCH._replace(order=("at", "value"), content_type="text/plain")
    assert rows(schema, options, ("b/x", b"1", True, None, 7, "-"), ("b/x", b"2", None, "text/css", 8, "-")) == [
        {"stream": "b/x", "value": b"1", "close": True, "content_type": "text/plain", "order0": 7, "order1": b"1"},
        {"stream": "b/x", "value": b"2", "close": False, "content_type": "text/css", "order0": 8, "order1": b"2"},
    ]


@pytest.mark.parametrize(
    "row, sentence",
    [
        ((None, "1", None), r"A row has no stream; "),
        (("x", "1", None), r"The stream 'x' has no bucket; write bucket/x, or give the option bucket\."),
        (("b/x", None, None), r"A row for the stream 'b/x' has no value; give it one, or set its close to true\."),
        (("b/x", "", None), r"A value for the stream 'b/x' is empty; "),
        (("b/x", "x" * (APPEND_BYTES_MAX + 1), None), r"A value for the stream 'b/x' has more than 16777216 bytes, "),
    ],
)
def test_a_row_that_cannot_be_written_is_named_before_anything_is_sent(row: tuple[object, ...], sentence: str) -> None:
    with pytest.raises(WriteFailed, match=f"^{sentence}"):
        rows("stream string, value string, close boolean", BATCH, ("b/a", "1", True), row)
