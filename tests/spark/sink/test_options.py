"""What a writer may be told, and the columns that it needs."""

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, BooleanType, DataType, IntegerType, StringType, StructType

from headwater.protocol.limits import APPEND_BYTES_MAX, MESSAGES_PER_APPEND_MAX, NUMBER_MAX
from headwater.spark.link import LinkSettings
from headwater.spark.options.values import OptionRefused
from headwater.spark.sink.delivery import WriteFailed
from headwater.spark.sink.options import APPEND_BYTES, APPEND_MESSAGES, SinkOptions, parse_sink
from headwater.spark.sink.rows import RowReader, default_type, find_columns
from headwater.spark.sink.sink import batch_writer, stream_writer

URL = {"url": "http://127.0.0.1:1"}
LINK = LinkSettings("http://127.0.0.1:1")
BATCH = SinkOptions(LINK)
TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "array<int>": ArrayType(IntegerType()),
}


def struct(columns: str) -> StructType:
    """A schema; Spark's own parser of such words needs a session."""
    found = StructType()
    for column in columns.split(", "):
        name, _, kind = column.partition(" ")
        found.add(name, TYPES[kind])
    return found


SIMPLE = struct("stream string, value string")


def test_a_url_is_enough_for_a_batch() -> None:
    parsed = parse_sink(URL, streaming=False)
    assert parsed == SinkOptions(LINK)
    assert (parsed.append_bytes, parsed.append_messages) == (APPEND_BYTES, APPEND_MESSAGES)


def test_every_option_is_understood_without_regard_to_case() -> None:
    given = {
        "url": "http://127.0.0.1:1",
        "BUCKET": "b",
        "stream": "s",
        "producerid": "job",
        "producerepoch": "4",
        "createstreams": "false",
        "contenttype": "text/plain",
        "close": "true",
        "maxappendbytes": "64k",
        "maxappendmessages": "10",
        "ordercolumn": "day, at",
        "target": "streams",
        "token": "t",
    }
    assert parse_sink(given, streaming=False) == SinkOptions(
        LINK._replace(token="t"), "streams", "b", "s", "job", 4, False, "text/plain", True, 65_536, 10, ("day", "at")
    )


def test_a_streaming_query_writes_under_its_name_unless_told_otherwise() -> None:
    named = {**URL, "queryname": "copy", "checkpointlocation": "/x"}
    assert parse_sink(named, streaming=True).producer_id == "copy"
    assert parse_sink({**named, "producerId": "other"}, streaming=True).producer_id == "other"


@pytest.mark.parametrize(
    "given, sentence",
    [
        ({"produceId": "x"}, r"There is no option 'produceid'; did you mean producerId\?"),
        ({"producerId": "x"}, r"The options producerId and producerEpoch go together: "),
        ({"producerEpoch": "1"}, r"The options producerId and producerEpoch go together: "),
        ({"producerId": "x", "producerEpoch": "-1"}, r"The option producerEpoch is a whole number, 0 or more, "),
        ({"producerId": "x", "producerEpoch": str(NUMBER_MAX + 1)}, r"The option producerEpoch is at most "),
        ({"producerId": "é" * 128, "producerEpoch": "1"}, r"The option producerId is at most 255 bytes long\."),
        ({"bucket": "a/b"}, r"'a/b' is no bucket, "),
        ({"contentType": "json"}, r"The option contentType is like application/json or text/plain, not 'json'\."),
        ({"maxAppendBytes": str(APPEND_BYTES_MAX + 1)}, r"The option maxAppendBytes is at most 16777216, "),
        ({"maxAppendMessages": str(MESSAGES_PER_APPEND_MAX + 1)}, r"The option maxAppendMessages is at most 262144, "),
        ({"maxAppendMessages": "0"}, r"The option maxAppendMessages is a whole number, 1 or more, "),
        ({"close": "yes"}, r"The option close is one of true, false, not 'yes'\."),
        ({"target": "table"}, r"The option target is one of streams, snapshot, not 'table'\."),
        ({"target": "snapshot", "close": "true"}, r"The option close does nothing for target=snapshot; leave it out\."),
        ({"path": "b/x"}, r"A write has no path: name the streams in a column or an option stream, and call save"),
        ({"url": "host:1"}, r"Give the option url as http://host:port or https://host:port, not 'host:1'\."),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionRefused, match=f"^{sentence}"):
        parse_sink({**URL, **given}, streaming=False)


def test_a_streaming_query_without_a_name_is_refused() -> None:
    with pytest.raises(OptionRefused, match=r"^Give the query a name with queryName, or the option producerId: "):
        parse_sink(URL, streaming=True)


def test_a_streaming_query_has_its_own_epochs() -> None:
    with pytest.raises(OptionRefused, match=r"^The option producerEpoch is for batch writes; "):
        parse_sink({**URL, "producerId": "x", "producerEpoch": "1"}, streaming=True)


def test_nothing_is_overwritten() -> None:
    with pytest.raises(OptionRefused, match=r"^Streams are only ever added to, so there is no mode overwrite; "):
        batch_writer(URL, SIMPLE, overwrite=True)
    with pytest.raises(OptionRefused, match=r"^Streams are only ever added to, so there is no output mode complete; "):
        stream_writer({**URL, "queryName": "q"}, SIMPLE, overwrite=True)


# -- Columns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema, options, sentence",
    [
        ("stream string", BATCH, r"There is no column value, the message; to_json\(struct\(\*\)\) makes one"),
        ("value string", BATCH, r"Say where rows go: there is neither a column stream nor an option stream\."),
        ("stream string, value int", BATCH, r"The column value is string or binary, not int; to_json\(struct"),
        ("stream int, value string", BATCH, r"The column stream is string, not int\."),
        ("stream string, value string, close int", BATCH, r"The column close is boolean, not int\."),
        ("stream string, value string", BATCH._replace(order=("at",)), r"There is no column 'at' to order by\."),
        (
            "stream string, value string, at array<int>",
            BATCH._replace(order=("at",)),
            r"The column at is .*, not array<int>\.",
        ),
        ("stream string, value string", BATCH._replace(target="snapshot"), r"A snapshot needs a column offset: "),
    ],
)
def test_columns_that_are_missing_or_of_a_wrong_type_are_refused(
    schema: str, options: SinkOptions, sentence: str
) -> None:
    with pytest.raises(OptionRefused, match=f"^{sentence}"):
        find_columns(struct(schema), options)


def test_strings_become_json_and_bytes_stay_bytes_unless_told_otherwise() -> None:
    in_bytes = struct("stream string, value binary")
    assert default_type(SIMPLE, BATCH) == "application/json"
    assert default_type(in_bytes, BATCH) == "application/octet-stream"
    assert default_type(in_bytes, BATCH._replace(content_type="text/plain")) == "text/plain"


def rows(schema: str, options: SinkOptions, *values: tuple[object, ...]) -> list[dict[str, object]]:
    fields = struct(schema)
    batch = pa.RecordBatch.from_pylist([dict(zip(fields.names, row, strict=True)) for row in values])
    return list(RowReader(find_columns(fields, options), options).read(batch).to_pylist())


def test_names_are_whole_or_of_a_bucket_that_an_option_or_a_column_names() -> None:
    two = "stream string, value string"
    three = f"bucket string, {two}"
    assert rows(two, BATCH, ("b/x", "1"))[0]["stream"] == "b/x"
    assert rows(two, BATCH._replace(bucket="b"), ("x/y", "1"))[0]["stream"] == "b/x/y"
    assert rows(three, BATCH, ("b", "x", "1"))[0]["stream"] == "b/x"
    assert rows(three, BATCH._replace(bucket="c"), ("b", "x", "1"))[0]["stream"] == "c/x"
    assert rows(three, BATCH._replace(stream="d/z"), ("b", "x", "1"))[0]["stream"] == "d/z"
    assert rows("value string", BATCH._replace(bucket="b", stream="z"), ("1",))[0]["stream"] == "b/z"


def test_a_row_may_close_and_name_its_type_and_what_it_is_ordered_by() -> None:
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
        (("b/x", None, None), r"A row for the stream 'b/x' has no value; give it one, or let its close be true\."),
        (("b/x", "", None), r"A value for the stream 'b/x' is empty; "),
        (("b/x", "x" * (APPEND_BYTES_MAX + 1), None), r"A value for the stream 'b/x' has more than 16777216 bytes; "),
    ],
)
def test_a_row_that_cannot_be_written_is_named_before_anything_is_sent(row: tuple[object, ...], sentence: str) -> None:
    with pytest.raises(WriteFailed, match=f"^{sentence}"):
        rows("stream string, value string, close boolean", BATCH, ("b/a", "1", True), row)
