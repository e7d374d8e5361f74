"""Exports whose columns change: new columns and wider numbers extend the table, anything else is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from headwater.spark.jobs.export import job as export
from headwater.spark.jobs.export.iceberg import IcebergExport, open_catalog
from headwater.spark.jobs.export.job import ExportConfig
from headwater.spark.jobs.export.ledger import Columns, all_columns, change_columns, claim
from headwater.spark.jobs.export.shape import Shape, check_widening
from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.report import JobFailed
from headwater.spark.jobs.verify import job as verify
from headwater.storage.folder import FolderStore
from headwater.testing import RunningServer

from .exported_rows import append

Format = Literal["parquet", "delta", "iceberg"]
FORMATS: tuple[Format, ...] = ("parquet", "delta", "iceberg")
BIG = 2**40


class Killed(Exception):
    """Simulates a kill of the driver."""


def columns(ddl: str) -> StructType:
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def rows_in(kind: str, to: Path) -> Any:
    """The rows of a table in the order of the log, read by another engine."""
    if kind == "parquet":
        with duckdb.connect() as engine:
            read = f"read_parquet('{to}/**/*.parquet', hive_partitioning=true, union_by_name=true)"
            return engine.sql(f"select * from {read} order by position").to_arrow_table().to_pylist()
    if kind == "delta":
        return DeltaTable(to).to_pyarrow_table().sort_by("position").to_pylist()
    table = open_catalog(FolderStore(to), None).load_table(f"headwater.{to.name}")
    return table.scan().to_arrow().sort_by("position").to_pylist()


@pytest.mark.parametrize(
    ("kind", "schema", "problem"),
    [
        ("parquet", "`service.name` string", "has a dot; put the typed columns into a struct"),
        ("parquet", "n int, N int", "the column 'N' twice"),
        ("iceberg", "n int, m map<string, array<interval day to second>>", "'m' has the type interval day to second"),
        ("delta", "n int, s struct<v: variant>", "'s' has the type variant, which delta tables do not have"),
        ("iceberg", "n void", "'n' has the type void"),
    ],
)
def test_columns_that_cannot_be_are_refused_before_the_place_is_claimed(
    kind: Format, schema: str, *, problem: str, spark: SparkSession, lake_server: RunningServer, tmp_path: Path
) -> None:
    config = ExportConfig(Origin(lake_server.url, bucket="shop"), str(tmp_path / "table"), kind)
    with pytest.raises(JobFailed, match=problem):
        export.run(spark, replace(config, shape=Shape(schema)))
    assert list(FolderStore(tmp_path / "table").keys("")) == []


def test_a_field_with_a_dot_is_exported_in_a_struct(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path
) -> None:
    append(lake_server, bucket, {"x": [b'{"service.name":"shop"}']})
    shape = Shape("`service.name` string", into="value")
    export.run(spark, ExportConfig(Origin(lake_server.url, bucket=bucket), str(tmp_path / "table"), shape=shape))
    assert [row["value"] for row in rows_in("parquet", tmp_path / "table")] == [{"service.name": "shop"}]


@pytest.mark.parametrize("kind", FORMATS)
def test_new_fields_become_columns_of_the_table(
    kind: Format, spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path
) -> None:
    to = tmp_path / "table"
    plain = ExportConfig(Origin(lake_server.url, bucket=bucket), str(to), kind)
    append(lake_server, bucket, {"x": [b'{"n":1}']})
    export.run(spark, plain)
    number, wide = ("int", "long") if kind != "delta" else ("long", "long")
    append(lake_server, bucket, {"x": [b'{"n":2}']})
    export.run(spark, replace(plain, shape=Shape(f"n {number}, at struct<day int>")))
    append(lake_server, bucket, {"x": [b'{"n":%d,"item":"pen","at":{"day":4,"hour":5}}' % BIG]})
    last = replace(plain, shape=Shape(f"item string, at struct<day int, hour int>, n {wide}"))
    assert export.run(spark, last).facts["rows"] == 1
    found = [(row["n"], row["item"], row["at"] and row["at"]["hour"]) for row in rows_in(kind, to)]
    assert found == [(None, None, None), (2, None, None), (BIG, "pen", 5)]
    # Without new columns, nothing is recorded.
    append(lake_server, bucket, {"x": [b'{"n":3}']})
    export.run(spark, last)
    assert [row["n"] for row in rows_in(kind, to)] == [None, 2, BIG, 3]
    assert [one.batch for one in all_columns(FolderStore(to))] == [0, 1, 2]
    # Each file is verified by the columns with which it was written.
    assert verify.run(spark, verify.VerifyConfig(Origin(lake_server.url), str(to))).problems == ()

    with pytest.raises(JobFailed, match=r"cannot change so: the column at would be missing; use another --to\.$"):
        export.run(spark, replace(plain, shape=Shape(f"n {wide}, item string")))
    with pytest.raises(JobFailed, match=r"cannot change so: the column item would be missing; "):
        export.run(spark, plain)
    assert len(all_columns(FolderStore(to))) == 3


def test_a_run_that_was_killed_has_decided_the_columns(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "table"
    first = ExportConfig(Origin(lake_server.url, bucket=bucket), str(to), "iceberg", Shape("n int"))
    append(lake_server, bucket, {"x": [b'{"n":1}']})
    export.run(spark, first)
    append(lake_server, bucket, {"x": [b'{"n":2,"m":1.5}']})
    second, third = (replace(first, shape=Shape(f"n {kind}, m double")) for kind in ("int", "long"))

    def dying(self: IcebergExport, written: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(IcebergExport, "commit", dying)
        with pytest.raises(Killed):
            export.run(spark, second)
    with pytest.raises(JobFailed, match="the column m would be missing"):
        export.run(spark, first)
    # The columns may change again before the batch is committed.
    export.run(spark, third)
    assert [(row["n"], row["m"]) for row in rows_in("iceberg", to)] == [(1, None), (2, 1.5)]
    assert [one.batch for one in all_columns(FolderStore(to))] == [0, 1, 1]
    assert verify.run(spark, verify.VerifyConfig(Origin(lake_server.url), str(to))).problems == ()


@pytest.mark.parametrize(
    ("before", "after", "formats"),
    [
        ("a int", "a long", ("parquet", "iceberg")),
        ("a byte", "a int", ("parquet", "iceberg")),
        ("a float", "a double", ("parquet", "iceberg")),
        ("a int", "a double", ("parquet",)),
        ("a long", "a double", ()),
        ("a long", "a int", ()),
        ("a double", "a float", ()),
        ("a int", "a string", ()),
        ("a struct<b: int>", "a struct<b: long>", ("parquet", "iceberg")),
        ("a struct<b: int>", "a struct<c: int>", ()),
        ("a struct<b: int>", "a struct<b: int, c: int>", FORMATS),
        ("a int", "A int", ()),
        ("a int", "b string, a int", FORMATS),
    ],
)
def test_each_format_widens_what_it_can(
    spark: SparkSession, before: str, after: str, formats: tuple[Format, ...]
) -> None:
    def can(kind: Format) -> bool:
        try:
            check_widening(kind, "t", columns(before), columns(after))
        except JobFailed:
            return False
        return True

    assert tuple(filter(can, FORMATS)) == formats


def test_the_problem_with_a_change_is_named(spark: SparkSession) -> None:
    with pytest.raises(JobFailed) as caught:
        check_widening("parquet", "/t", columns("a struct<b: int>"), columns("a struct<b: string>"))
    assert str(caught.value) == (
        "The columns of the table at /t cannot change so: a.b is int and would be string; use another --to."
    )


def test_spark_reads_the_files_of_a_widened_parquet_table_with_its_columns(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path
) -> None:
    config = ExportConfig(Origin(lake_server.url, bucket=bucket), str(tmp_path / "t"), shape=Shape("a int, b int"))
    append(lake_server, bucket, {"x": [b'{"a":1,"b":2}']})
    export.run(spark, config)
    append(lake_server, bucket, {"x": [b'{"a":%d,"b":0.5,"c":"d"}' % BIG]})
    export.run(spark, replace(config, shape=Shape("a long, b double, c string")))
    rows = spark.read.schema("position long, a long, b double, c string").parquet(str(tmp_path / "t"))
    found = [(row["a"], row["b"], row["c"]) for row in rows.orderBy("position").collect()]
    assert found == [(1, 2.0, None), (BIG, 0.5, "d")]


def test_of_two_runs_that_change_the_columns_one_wins(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    claim(store, {"shape": {"schema": None}}, None)
    wider = Columns(1, {"schema": "a int"})
    change_columns(store, 1, wider)
    change_columns(store, 1, wider)
    with pytest.raises(JobFailed, match=r"^Another run has just changed the columns of .*; run this one again\.$"):
        change_columns(store, 1, Columns(1, {"schema": "b int"}))
    assert all_columns(store)[1:] == [wider]
