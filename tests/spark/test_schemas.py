"""The source's columns and batches match what Spark expects exactly."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType, VariantType, VariantVal

from headwater.lake.format import SCHEMA
from headwater.spark.options.source import SourceOptions, parse_source
from headwater.spark.options.values import OptionRefused
from headwater.spark.schemas import SourceSchema


def parsed(**options: str) -> SourceOptions:
    return parse_source({"url": "http://127.0.0.1:1", "bucket": "team", **options})


def schema(**options: str) -> SourceSchema:
    return SourceSchema(parsed(**options))


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
    assert schema().columns == tuple(SCHEMA.names)
    assert all(field.nullable for field in schema().spark)
    assert schema().arrow == to_arrow_schema(schema().spark, timezone="UTC")
    assert [field.type for field in schema().arrow] == [field.type for field in SCHEMA]


def test_value_and_kind_come_last_unless_columns_places_them() -> None:
    assert schema(value="string", onTrimmed="bootstrap").columns == (*SCHEMA.names, "value", "kind")
    assert schema(value="string", columns="value,stream").columns == ("value", "stream")
    assert schema(value="string", columns="stream").columns == ("stream", "value")


def test_a_value_is_made_from_the_payload_even_if_that_is_not_selected() -> None:
    assert schema(columns="stream,offset").sources == {"stream", "offset"}
    assert schema(columns="stream", value="variant").sources == {"stream", "payload", "content_type"}


def test_other_columns_than_these_are_refused() -> None:
    schema(columns="stream").check(StructType([StructField("stream", StringType())]))
    with pytest.raises(OptionRefused, match="leave schema"):
        schema(columns="stream").check(StructType([StructField("strea", StringType())]))


def test_batches_have_the_schema_that_spark_checks() -> None:
    for options in (
        {},
        {"value": "string"},
        {"value": "variant"},
        {"columns": "offset,stream"},
        {"onTrimmed": "bootstrap"},
    ):
        made = schema(**options)
        [batch] = made.batches(iter([rows(b"1"), rows(), rows(b"2")]))
        assert batch.schema.equals(to_arrow_schema(made.spark, timezone="UTC"))
        assert batch.num_rows == 2


def test_batches_are_neither_tiny_nor_huge() -> None:
    by_rows = SourceSchema(parsed(), batch_rows=5)
    assert [batch.num_rows for batch in by_rows.batches(rows(b"1", b"2") for _ in range(7))] == [6, 6, 2]
    by_bytes = SourceSchema(parsed(), batch_bytes=1)
    assert [batch.num_rows for batch in by_bytes.batches(rows(b"1", b"2") for _ in range(2))] == [2, 2]
    assert list(schema().batches(iter([]))) == []


def test_a_string_value_is_the_payload_or_null_where_it_is_not_utf_8() -> None:
    made = schema(value="string", columns="payload").table(rows(b"gr\xc3\xbcn", b"\xff", b"x"))
    assert made["value"].to_pylist() == ["grün", None, "x"]


def test_a_variant_is_the_value_of_a_json_message_and_null_elsewhere() -> None:
    assert isinstance(schema(value="variant").spark["value"].dataType, VariantType)
    payloads = [b'{"a": [1, 2.5, null]}', b'"x"', b"null", b"\xff", b"nope"]
    made = schema(value="variant", columns="stream").table(rows(*payloads))["value"].to_pylist()
    parsed = [None if one is None else VariantVal(one["value"], one["metadata"]).toPython() for one in made]
    assert parsed == [{"a": [1, 2.5, None]}, "x", None, None, None]
    assert made[2] is not None, "a null is a value"
    other = schema(value="variant").table(rows(b"1", content_type="text/plain"))
    assert other["value"].to_pylist() == [None]


def test_the_kind_of_a_message_is_message() -> None:
    assert schema(onTrimmed="bootstrap").table(rows(b"1"))["kind"].to_pylist() == ["message"]
