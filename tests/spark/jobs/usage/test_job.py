"""A usage report: what is measured, from made-up rows; and all of it, from a server's streams."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.report import JobFailed
from headwater.spark.jobs.usage import measures
from headwater.spark.jobs.usage.job import UsageConfig, run
from headwater.testing import RunningServer

from ..export.exported_rows import append, rows_of, together

NOON = datetime(2025, 11, 16, 12, tzinfo=UTC)


def times(rows: pa.Table, *seconds: float) -> pa.Table:
    """Rows that were committed so many seconds after noon."""
    at = rows.column_names.index("committed_at")
    moments = [NOON + timedelta(seconds=one) for one in seconds]
    return rows.set_column(at, rows.schema.field(at), pa.array(moments, rows.schema.field(at).type))


def test_measures_are_those_of_the_rows(spark: SparkSession) -> None:
    rows = together(
        times(rows_of("a/x", [b"1", b"22", b"333"]), 0, 10, 1000), times(rows_of("b/y", [b"4444", b"5"]), 5, 5)
    )
    events = measures.events(spark.createDataFrame(rows), None)
    span = measures.span(events)
    assert span is not None
    assert (span.streams, span.messages, span.bytes, span.timed) == (2, 5, 11, 3)
    assert (span.first_at, span.last_at) == (NOON.timestamp(), NOON.timestamp() + 1000)
    assert span.delay_quantiles is not None and span.delay_quantiles[0] == 10
    windows = measures.windows(events, 600).collect()
    assert [(row["begins"].timestamp(), row["messages"], row["bytes"], row["streams"]) for row in windows] == [
        (NOON.timestamp(), 4, 8, 2),
        (NOON.timestamp() + 600, 1, 3, 1),
    ]
    sessions = measures.sessions(events, 300)
    assert sorted((row["stream"], row["messages"], row["seconds"]) for row in sessions.collect()) == [
        ("x", 1, 0.0),
        ("x", 2, 10.0),
        ("y", 2, 0.0),
    ]
    told = {row["stream"]: row for row in measures.streams(events, sessions).collect()}
    assert (told["x"]["sessions"], told["x"]["longest_session"], told["x"]["largest"]) == (2, 10.0, 3)
    assert measures.histogram(events.rows, "bytes", 2) == [(0, 2), (1, 2), (2, 1)]
    assert [row["bucket"] for row in measures.shares(events.rows, "bucket", 1)] == ["a"]


def test_the_time_of_an_event_may_be_a_text_or_a_number(spark: SparkSession) -> None:
    second = int(NOON.timestamp())
    payloads = [
        b'{"at":"2025-11-16T11:59:59Z"}',
        b'{"at":%d}' % (second - 1),
        b'{"at":%d}' % (second * 1000 - 1000),
        b'{"at":%d}' % (second * 1_000_000 - 1_000_000),
        b'{"at":%d}' % (second * 1_000_000_000 - 1_000_000_000),
        b'{"at":"soon"}',
        b'{"other":1}',
        b"\xff",
    ]
    rows = times(rows_of("a/x", payloads), *[0] * len(payloads))
    delays = measures.events(spark.createDataFrame(rows), "at").rows.collect()
    assert [row["delay"] for row in delays] == [pytest.approx(1.0)] * 5 + [None] * 3
    nested = times(rows_of("a/x", [b'{"a":{"b":%d}}' % second]), 2)
    assert measures.events(spark.createDataFrame(nested), "$.a.b").rows.collect()[0]["delay"] == 2.0


def test_more_windows_than_a_report_can_have_are_refused_with_one_that_would_do(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(lake_server, bucket, {"x": [b"1", b"2"]})
    config = UsageConfig(Origin(lake_server.url, bucket=bucket), str(tmp_path / "report"), window_seconds=1)
    monkeypatch.setattr(measures, "WINDOWS_KEPT_MAX", 0)
    with pytest.raises(
        JobFailed, match=r"^The messages lie in up to \d windows of 1 seconds, and a report has at most 0; "
    ):
        run(spark, config)
    assert not (tmp_path / "report").exists()


YEAR = measures.Totals(1, 10**9, 10**9, NOON.timestamp(), NOON.timestamp() + 365 * 86_400, (), 0, None)


def test_the_windows_of_a_report_are_limited_by_their_number() -> None:
    with pytest.raises(
        JobFailed,
        match=r"^The messages lie in up to 31,536,001 windows of 1 seconds, and a report has at most 100,000; "
        r"use --window 600, or leave it out\.$",
    ):
        measures.check_windows(YEAR, 1)
    with pytest.raises(JobFailed, match=r"up to 105,121 windows of 300 seconds"):
        measures.check_windows(YEAR, 300)
    measures.check_windows(YEAR, 600)


def test_windows_without_a_message_do_not_count() -> None:
    measures.check_windows(YEAR._replace(messages=100_000), 1)
    with pytest.raises(JobFailed, match=r"up to 100,001 windows of 1 seconds"):
        measures.check_windows(YEAR._replace(messages=100_001), 1)


def test_a_report_is_a_page_and_two_tables_and_replaces_an_earlier_one(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path
) -> None:
    config = UsageConfig(Origin(lake_server.url, bucket=bucket), str(tmp_path / "report"), event_time="at", top=2)
    with pytest.raises(JobFailed, match="nothing to report on"):
        run(spark, config)
    message = b'{"at":"2025-11-16T12:00:00Z"}'
    append(lake_server, bucket, {"x": [message] * 3, "y": [message], "z": [message] * 2})
    # What stands in for an earlier report.
    (tmp_path / "report/streams.parquet").mkdir(parents=True)
    (tmp_path / "report/streams.parquet/part-0.parquet").write_bytes(b"older")
    (tmp_path / "report/report.html").write_text("older")
    facts = dict(run(spark, config).facts)
    assert (facts["streams"], facts["messages"], facts["bytes"]) == (3, 6, 6 * len(message))
    page = (tmp_path / "report/report.html").read_text()
    assert f"{bucket}/x" in page and f"{bucket}/z" in page and f"{bucket}/y" not in page
    table = spark.read.parquet(str(facts["table"])).orderBy("stream").collect()
    assert [(row["stream"], row["messages"]) for row in table] == [("x", 3), ("y", 1), ("z", 2)]
    windows = pq.read_table(tmp_path / "report/windows.parquet")
    assert sum(windows["messages"].to_pylist()) == 6
    with pytest.raises(JobFailed, match="is written into a folder"):
        run(spark, UsageConfig(config.origin, "s3://bucket/x"))
