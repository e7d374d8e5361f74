"""Continuous exports: one process keeps a table up to date until it is told to stop."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from headwater.cli import main
from headwater.spark.jobs.export import job as export
from headwater.spark.jobs.export.job import ExportConfig, Exporter, Stopped
from headwater.spark.jobs.export.ledger import CHECKPOINT
from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.report import JobFailed
from headwater.testing import RunningServer

from .exported_rows import append

WAIT_SECONDS_MAX = 120


def rows_in(to: Path) -> int:
    return ds.dataset(to, partitioning="hive").count_rows() if any(to.glob("day=*")) else 0


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.1)


def test_a_continuous_export_takes_what_is_new_until_it_is_stopped(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path
) -> None:
    to, stop = tmp_path / "table", threading.Event()
    origin = Origin(lake_server.url, bucket=bucket, options={"flushInterval": "100ms"})
    config = ExportConfig(origin, str(to), interval_seconds=0.1)
    append(lake_server, bucket, {"x": [b"1", b"2"]})
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(export.run, spark, config, stop)
        try:
            wait_for(lambda: rows_in(to) == 2 or running.done())
            append(lake_server, bucket, {"x": [b"3"], "y": [b"4"]})
            wait_for(lambda: rows_in(to) == 4 or running.done())
        finally:
            stop.set()
        report = running.result(WAIT_SECONDS_MAX)
    assert (report.facts["rows"], report.facts["repeated_batches"], report.facts["streams"]) == (4, 0, None)
    assert rows_in(to) == 4
    # A later run without --continuous resumes from there.
    append(lake_server, bucket, {"x": [b"5"]})
    assert export.run(spark, ExportConfig(origin, str(to))).facts["rows"] == 1


def test_a_stop_lets_the_batch_in_progress_finish_and_begins_no_other(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to, stop = tmp_path / "table", threading.Event()
    origin = Origin(lake_server.url, bucket=bucket)
    config = ExportConfig(origin, str(to), interval_seconds=0.0, batch_bytes=1)
    for number in range(3):
        append(lake_server, bucket, {f"x{number}": [b"%d" % number]})
        with origin.link() as link:
            link.flush()
    one_batch = Exporter._export

    def stopped_meanwhile(self: Exporter, rows: DataFrame, batch: int) -> None:
        stop.set()
        one_batch(self, rows, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Exporter, "_export", stopped_meanwhile)
        report = export.run(spark, config, stop)
    assert (report.facts["batches"], rows_in(to)) == (1, 1)
    assert export.run(spark, ExportConfig(origin, str(to))).facts["rows"] == 2
    assert rows_in(to) == 3


def test_a_second_run_at_the_same_time_is_told_about_the_first(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "table"
    config = ExportConfig(Origin(lake_server.url, bucket=bucket), str(to))
    append(lake_server, bucket, {"x": [b"1"]})
    one_batch = Exporter._export

    def done_by_another_too(self: Exporter, rows: DataFrame, batch: int) -> None:
        one_batch(self, rows, batch)
        (to / CHECKPOINT / "commits").mkdir(exist_ok=True)
        (to / CHECKPOINT / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    with monkeypatch.context() as patch:
        patch.setattr(Exporter, "_export", done_by_another_too)
        with pytest.raises(JobFailed, match="Another run of this export is in progress"):
            export.run(spark, config)
    export.run(spark, config)
    assert rows_in(to) == 1


def test_a_batch_that_begins_after_the_stop_is_not_recorded_as_done(spark: SparkSession) -> None:
    stop = threading.Event()
    stop.set()
    exporter = Exporter(None, None, stop=stop)  # type: ignore[arg-type]
    with pytest.raises(Stopped):
        exporter(spark.range(1), 0)


def test_a_signal_ends_the_command_with_its_report(lake_server: RunningServer, bucket: str, tmp_path: Path) -> None:
    append(lake_server, bucket, {"x": [b"1", b"2", b"3"]})
    to = tmp_path / "table"
    command = [sys.executable, "-m", "headwater", "spark", "export", "--url", lake_server.url, "--bucket", bucket]
    options = ["--to", str(to), "--continuous", "--interval", "500ms", "--json", "--master", "local[1]"]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env=dict(os.environ)
    ) as process:
        try:
            wait_for(lambda: rows_in(to) == 3 or process.poll() is not None)
        finally:
            process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=WAIT_SECONDS_MAX)
    assert (process.returncode, json.loads(out)["rows"]) == (0, 3), err.decode()


@pytest.mark.parametrize(
    ("given", "code", "problem"),
    [
        (["--interval", "10s"], 2, "The option --interval needs --continuous."),
        (["--continuous", "--interval", "soon"], 2, "must be a duration such as 500ms, 10s or 2m, not 'soon'"),
        (["--into", "value"], 1, "The option --into needs --schema."),
        (["--catalog", "sqlite://"], 1, "The options --catalog and --table need --format iceberg."),
        (["--option", "color=red"], 1, "There is no option 'color'"),
        ([], 1, "got no answer: [Errno 111] Connection refused."),
    ],
)
def test_what_needs_no_spark_is_checked_before_it_starts(
    given: list[str], code: int, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("headwater.spark.session.session", never)
    to = tmp_path / "table"
    command = ["spark", "export", "--url", "http://127.0.0.1:9", "--bucket", "shop", "--to", str(to)]
    result = CliRunner().invoke(main, [*command, *given])
    assert (result.exit_code, problem in result.stderr) == (code, True), result.stderr
    assert not to.exists()
