"""A usage report: its measures on made-up rows, and a whole report on the streams of a server."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headwater.spark.jobs import usage
from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.report import JobFailed
from headwater.spark.jobs.usage import UsageConfig, run
from headwater.testing import RunningServer

from ..export.exported_rows import append, rows_of, together

NOON = datetime(2025, 11, 16, 12, tzinfo=UTC)


def times(rows: pa.Table, *seconds: float) -> pa.Table:
    """Rows with these commit times, in seconds after noon."""
    at = rows.column_names.index("committed_at")
    moments = [NOON + timedelta(seconds=one) for one in seconds]
    return rows.set_column(at, rows.schema.field(at), pa.array(moments, rows.schema.field(at).type))


def test_measures_are_those_of_the_rows(spark: SparkSession) -> None:
    rows = together(
        times(rows_of("a/x", [b"1", b"22", b"333"]), 0, 10, 1000), times(rows_of("b/y", [b"4444", b"5"]), 5, 5)
    )
    events = usage.as_events(spark.createDataFrame(rows), None)
    totals = usage.measure_totals(events)
    assert (totals["streams"], totals["messages"], totals["bytes"]) == (2, 5, 11)
    assert (totals["first_at"], totals["last_at"]) == (NOON, NOON + timedelta(seconds=1000))
    assert (totals["bytes_p50"], totals["delay_p50"], totals["delay_p99"]) == (2, 10, 990)
    windows = usage.measure_windows(events, 600).toArrow().to_pylist()
    assert [(row["begins"], row["messages"], row["bytes"], row["streams"]) for row in windows] == [
        (NOON, 4, 8, 2),
        (NOON + timedelta(seconds=600), 1, 3, 1),
    ]
    streams = usage.measure_streams(events, 300)
    found = {row["stream"]: row for row in streams.collect()}
    assert (found["x"]["sessions"], found["x"]["longest_session"], found["x"]["largest"]) == (2, 10.0, 3)
    assert (found["y"]["sessions"], found["y"]["longest_session"], found["y"]["delay_p50"]) == (1, 0.0, 0.0)
    assert usage.shares(streams, "bucket", 1) == [{"bucket": "a", "streams": 1, "messages": 3, "bytes": 6}]


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
    delays = usage.as_events(spark.createDataFrame(rows), "at").collect()
    assert [row["delay"] for row in delays] == [pytest.approx(1.0)] * 5 + [None] * 3
    nested = times(rows_of("a/x", [b'{"a":{"b":%d}}' % second]), 2)
    assert usage.as_events(spark.createDataFrame(nested), "$.a.b").collect()[0]["delay"] == 2.0


def test_a_report_is_a_page_and_two_tables_and_replaces_an_earlier_one(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path
) -> None:
    config = UsageConfig(Origin(lake_server.url, bucket=bucket), str(tmp_path / "report"), event_time="at", top=2)
    with pytest.raises(JobFailed, match="nothing to report"):
        run(spark, config)
    message = b'{"at":"2025-11-16T12:00:00Z"}'
    append(lake_server, bucket, {"x": [message] * 3, "y": [message], "z": [message] * 2})
    # An earlier report.
    (tmp_path / "report/streams.parquet").mkdir(parents=True)
    (tmp_path / "report/streams.parquet/part-0.parquet").write_bytes(b"older")
    (tmp_path / "report/report.html").write_text("older")
    (tmp_path / "report/windows.parquet").write_bytes(b"older")
    facts = dict(run(spark, config).facts)
    assert (facts["streams"], facts["messages"], facts["bytes"]) == (3, 6, 6 * len(message))
    page = (tmp_path / "report/report.html").read_text()
    assert "<td>x</td>" in page and "<td>z</td>" in page and "<td>y</td>" not in page
    table = spark.read.parquet(str(facts["table"])).orderBy("stream").collect()
    assert [(row["stream"], row["messages"]) for row in table] == [("x", 3), ("y", 1), ("z", 2)]
    windows = pq.read_table(tmp_path / "report/windows.parquet")
    assert sum(windows["messages"].to_pylist()) == 6 and facts["windows"] == len(windows)
    with pytest.raises(JobFailed, match="is not a local folder"):
        run(spark, UsageConfig(config.origin, "s3://bucket/x"))
