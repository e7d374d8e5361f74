"""Exports of a real server's streams: everything once, then what is new, despite kills in between."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from headwater.cli import main
from headwater.spark.jobs.export.job import ExportConfig, catalog_name, run
from headwater.spark.jobs.export.parquet import ParquetTable
from headwater.spark.jobs.export.shape import Shape
from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.report import JobFailed
from headwater.spark.link import Link, LinkSettings
from headwater.testing import RunningServer

from .exported_rows import append


class Killed(Exception):
    """Simulates a kill of the driver."""


def test_an_export_takes_everything_once_and_then_what_is_new(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = Origin(lake_server.url, bucket=bucket)
    config = ExportConfig(origin, str(tmp_path / "table"), shape=Shape("n long"), batch_bytes=20)
    append(lake_server, bucket, {"x": [b'{"n":%d}' % number for number in range(6)], "y": [b'{"n":7}']})
    first = run(spark, config)
    assert (first.facts["rows"], first.facts["streams"]) == (7, 2)
    assert first.facts["bytes"] == 7 * len(b'{"n":1}')
    assert isinstance(first.facts["batches"], int) and first.facts["batches"] > 1
    with Link(LinkSettings(lake_server.url)) as link:
        assert link.consumers()[str(first.facts["export"])] == {"0": first.facts["position"]}

    append(lake_server, bucket, {"y": [b'{"n":8}'], "z": [b'{"n":9}']})
    commit = ParquetTable.commit

    def dying(self: ParquetTable, written: Any) -> None:
        commit(self, written)
        raise Killed

    monkeypatch.setattr(ParquetTable, "commit", dying)
    with pytest.raises(Killed):
        run(spark, config)
    monkeypatch.setattr(ParquetTable, "commit", commit)
    third = run(spark, config)
    assert third.facts["repeated_batches"] == 1

    found = spark.read.parquet(str(tmp_path / "table")).orderBy("stream", "offset")
    assert [row["n"] for row in found.collect()] == [0, 1, 2, 3, 4, 5, 7, 8, 9]
    assert found.select("stream", "incarnation", "offset").distinct().count() == found.count()


def test_an_export_to_iceberg_keeps_to_its_table(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path
) -> None:
    append(lake_server, bucket, {"x": [b'{"n":1}']})
    uri = f"sqlite:///{tmp_path}/catalog.db"
    config = ExportConfig(
        Origin(lake_server.url, bucket=bucket), str(tmp_path / "data"), "iceberg", name=bucket, catalog=uri, table="a.b"
    )
    assert run(spark, config).facts["rows"] == 1
    for other, problem in (
        (replace(config, table="a.c"), r'holds an export to another table name \("a.b", not "a.c"\)'),
        (replace(config, catalog=f"{uri}2"), r"holds an export to another catalog \("),
        (replace(config, catalog=None), r"holds an export to another catalog \("),
    ):
        with pytest.raises(JobFailed, match=problem):
            run(spark, other)
    # Another folder is not enough to start over: the table must be dropped too.
    with pytest.raises(JobFailed, match=r"^The Iceberg table a.b holds the export "):
        run(spark, replace(config, to=str(tmp_path / "again")))
    assert run(spark, config).facts["rows"] == 0


def test_the_names_of_options_are_case_insensitive(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path
) -> None:
    append(lake_server, bucket, {"x": [b'{"n":1}']})
    early, late = (
        ExportConfig(Origin(lake_server.url, bucket=bucket, options={"startingtimestamp": since}), str(tmp_path / "to"))
        for since in ("2020-01-01T00:00:00Z", "2120-01-01T00:00:00Z")
    )
    assert run(spark, early).facts["rows"] == 1
    with pytest.raises(JobFailed, match="holds an export of other streams"):
        run(spark, late)


def test_an_export_records_its_catalog_without_secrets() -> None:
    assert catalog_name("postgresql+psycopg2://me:secret@db:5432/lake?password=secret") == (
        "postgresql+psycopg2://db:5432/lake"
    )
    assert catalog_name("sqlite:////data/catalog.db") == "sqlite:////data/catalog.db"
    assert catalog_name("http://catalog:8181/rest") == "http://catalog:8181/rest"


def test_an_invalid_export_is_refused_before_anything_is_written(
    spark: SparkSession, lake_server: RunningServer, tmp_path: Path
) -> None:
    to = str(tmp_path / "table")
    for config, problem in (
        (ExportConfig(Origin(lake_server.url), to), "streams"),
        (ExportConfig(Origin(lake_server.url, bucket="b", options={"via": "live"}), to), "sets the source option via"),
        (
            ExportConfig(Origin(lake_server.url, bucket="b", options={"StartingOffsets": "latest"}), to),
            "The export sets the source option StartingOffsets itself",
        ),
        (ExportConfig(Origin(lake_server.url, bucket="b"), to, "delta", Shape(variant=True)), "need --format parquet"),
        (ExportConfig(Origin(lake_server.url, bucket="b"), to, catalog="sqlite://"), "need --format iceberg"),
        (ExportConfig(Origin(lake_server.url, bucket="b"), "s3://b/x"), "not a valid S3 URL"),
        (ExportConfig(Origin(lake_server.url, bucket="b"), "s3://bucket/x"), "pass a folder as --checkpoint"),
    ):
        with pytest.raises(JobFailed, match=problem):
            run(spark, config)
    assert not Path(to).exists()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["--option", "via"], "'via' does not have the form name=value."),
        (["--format", "orc"], "'orc' is not one of 'parquet', 'delta', 'iceberg'"),
        (["--batch-mib", "0"], "0 is not in the range x>=1"),
    ],
)
def test_a_wrong_option_is_refused_before_spark_starts(given: list[str], problem: str) -> None:
    result = CliRunner().invoke(main, ["spark", "export", "--to", "x", *given])
    assert result.exit_code == 2 and problem in result.output
