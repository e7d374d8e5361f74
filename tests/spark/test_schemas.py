"""Columns and batches of the source, exactly as Spark wants them."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType, VariantType, VariantVal

from headwater.lake.format import SCHEMA
from headwater.spark import schemas
from headwater.spark.options.reading import parse_source
from headwater.spark.options.values import OptionRefused
from headwater.spark.schemas import Shape


def shape(**options: str) -> Shape:
    return Shape(parse_source({"url": "http://127.0.0.1:1", "bucket": "team", **options}))


def rows(*payloads: bytes, content_type: str = "application/json") -> pa.Table:
    plain = {
        "bucket": "team",
        "stream": "notes",
        "incarnation": 3,
        "offset": 0,
        "next_offset": 1,
        "record": 0,
        "append": 0,
        "position": 4,
        "committed_at": datetime(2026, 1, 1, tzinfo=UTC),
        "content_type": content_type,
    }
    return pa.Table.from_pylist([{**plain, "payload": payload} for payload in payloads], SCHEMA)


def test_the_columns_are_those_of_the_lake_and_may_all_be_null() -> None:
    assert shape().columns == tuple(SCHEMA.names)
    assert all(field.nullable for field in shape().spark)
    assert shape().arrow == to_arrow_schema(shape().spark, timezone="UTC")
    assert [field.type for field in shape().arrow] == [field.type for field in SCHEMA]


def test_a_value_and_a_kind_come_last_unless_they_are_placed() -> None:
    assert shape(value="string", onTrimmed="bootstrap").columns == (*SCHEMA.names, "value", "kind")
    assert shape(value="string", columns="value,stream").columns == ("value", "stream")
    assert shape(value="string", columns="stream").columns == ("stream", "value")


def test_a_value_is_made_of_the_payload_even_if_that_is_not_asked_for() -> None:
    assert shape(columns="stream,offset").sources == {"stream", "offset"}
    assert shape(columns="stream", value="variant").sources == {"stream", "payload", "content_type"}


def test_other_columns_than_these_are_refused() -> None:
    shape(columns="stream").check(StructType([StructField("stream", StringType())]))
    with pytest.raises(OptionRefused, match="leave schema"):
        shape(columns="stream").check(StructType([StructField("strea", StringType())]))


def test_batches_have_the_schema_that_spark_checks() -> None:
    for options in (
        {},
        {"value": "string"},
        {"value": "variant"},
        {"columns": "offset,stream"},
        {"onTrimmed": "bootstrap"},
    ):
        made = shape(**options)
        [batch] = made.batches(iter([rows(b"1"), rows(), rows(b"2")]))
        assert batch.schema.equals(to_arrow_schema(made.spark, timezone="UTC"))
        assert batch.num_rows == 2


def test_batches_are_neither_tiny_nor_huge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "BATCH_ROWS", 5)
    sizes = [batch.num_rows for batch in shape().batches(rows(b"1", b"2") for _ in range(7))]
    assert sizes == [6, 6, 2]
    monkeypatch.setattr(schemas, "BATCH_BYTES", 1)
    assert [batch.num_rows for batch in shape().batches(rows(b"1", b"2") for _ in range(2))] == [2, 2]
    assert list(shape().batches(iter([]))) == []


def test_a_text_is_the_payload_and_null_where_it_is_no_text() -> None:
    made = shape(value="string", columns="payload").table(rows(b"gr\xc3\xbcn", b"\xff", b"x"))
    assert made["value"].to_pylist() == ["grün", None, "x"]


def test_a_variant_is_the_value_of_a_json_message_and_null_elsewhere() -> None:
    assert isinstance(shape(value="variant").spark["value"].dataType, VariantType)
    payloads = [b'{"a": [1, 2.5, null]}', b'"x"', b"null", b"\xff", b"nope"]
    made = shape(value="variant", columns="stream").table(rows(*payloads))["value"].to_pylist()
    parsed = [None if one is None else VariantVal(one["value"], one["metadata"]).toPython() for one in made]
    assert parsed == [{"a": [1, 2.5, None]}, "x", None, None, None]
    assert made[2] is not None, "a null is a value"
    other = shape(value="variant").table(rows(b"1", content_type="text/plain"))
    assert other["value"].to_pylist() == [None]


def test_messages_say_that_they_are_messages() -> None:
    assert shape(onTrimmed="bootstrap").table(rows(b"1"))["kind"].to_pylist() == ["message"]
