"""The sink publishes rows as snapshots."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructType

from headwater.spark.options.sink import parse_sink
from headwater.spark.sink.delivery import WriteFailed
from headwater.spark.sink.snapshots import BEYOND, GONE, MISSING, UNADDRESSED, Published, SnapshotTask, check_published
from headwater.testing import RunningServer, running_server

SCHEMA = (
    StructType()
    .add("stream", StringType())
    .add("offset", LongType())
    .add("value", StringType())
    .add("content_type", StringType())
)
KINDS = (pa.string(), pa.int64(), pa.string(), pa.string())


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as found:
        yield found


def make(server: RunningServer, name: str, messages: Iterable[str]) -> None:
    for method, message in (("PUT", ""), *(("POST", message) for message in messages)):
        headers = {"Content-Type": "text/plain"}
        with urlopen(Request(f"{server.url}/v1/stream/{name}", message.encode(), headers, method=method)) as response:
            assert response.status in (201, 204)


def snapshot(server: RunningServer, name: str) -> tuple[str, str, bytes]:
    """The offset, the type and the bytes of the newest snapshot."""
    with urlopen(f"{server.url}/ds/{name}/snapshot") as response:
        offset = response.headers["Stream-Snapshot-Offset"]
        return str(int(offset)), response.headers["Content-Type"], response.read()


def publish(server: RunningServer, *rows: tuple[str, int | None, str | None, str | None]) -> Published:
    batch = pa.record_batch(
        [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), KINDS, strict=True)],
        names=SCHEMA.names,
    )
    options = parse_sink({"url": server.url, "target": "snapshot"}, streaming=False)
    return SnapshotTask(options, SCHEMA).write([batch])


def test_a_row_becomes_the_snapshot_of_its_stream(server: RunningServer) -> None:
    make(server, "made/x", "abcdef")
    assert publish(server, ("made/x", 3, '{"abc": 1}', None)) == Published(1)
    assert snapshot(server, "made/x") == ("3", "application/json", b'{"abc": 1}')
    assert publish(server, ("made/x", 6, "abcdef", "text/plain")) == Published(1)
    assert snapshot(server, "made/x") == ("6", "text/plain", b"abcdef")


@pytest.mark.parametrize("late", [2, 4], ids=["at an earlier offset", "at the same"])
def test_a_snapshot_that_is_too_old_is_skipped(server: RunningServer, late: int) -> None:
    make(server, f"late/{late}", "abcdef")
    publish(server, (f"late/{late}", 4, "1", None))
    assert publish(server, (f"late/{late}", late, "2", None)) == Published(0, 1)
    assert snapshot(server, f"late/{late}")[2] == b"1"


@pytest.mark.parametrize("before", [None, 4], ids=["without a snapshot", "with an earlier one"])
def test_a_snapshot_beyond_the_end_of_its_stream_fails(server: RunningServer, before: int | None) -> None:
    name = f"beyond/{before}"
    make(server, name, "abcdef")
    if before is not None:
        publish(server, (name, before, "1", None))
    report = publish(server, (name, 7, "2", None), (name, 2**63 - 1, "3", None))
    assert report == Published(0, 0, Counter({BEYOND: 2}), name)
    with pytest.raises(WriteFailed, match=rf"^2 of 2 snapshots were not published: 2 {BEYOND} \('{name}'\)\.$"):
        check_published([report])
    assert publish(server, (name, 6, "4", None)) == Published(1)


def test_failures_are_counted_by_reason(server: RunningServer) -> None:
    make(server, "some/x", "abcdef")
    make(server, "some/x/y", "abcdef")
    make(server, "abc/x", "abcdef")
    report = publish(server, *((name, 1, "1", None) for name in ("some/x", "some/x/y", "abc/x", "some/z")))
    assert (report.published, report.failed) == (1, Counter({UNADDRESSED: 2, MISSING: 1}))
    assert report.example in ("some/x/y", "abc/x", "some/z")


@pytest.mark.parametrize("row", [("a/x", None, "1", None), ("a/x", 1, None, None), ("a/x", -1, "1", None)])
def test_a_row_without_an_offset_or_a_value_fails_the_task(
    server: RunningServer, row: tuple[str, int | None, str | None, str | None]
) -> None:
    with pytest.raises(WriteFailed, match=r"^A snapshot of the stream 'a/x' has no valid offset or no value; "):
        publish(server, row)


def test_a_refusal_that_a_retry_would_not_change_fails_the_task(server: RunningServer) -> None:
    make(server, "within/x", ["ab"])
    with pytest.raises(WriteFailed, match=r"^The snapshot of 'within/x' at offset 1 was refused with 400: The offset "):
        publish(server, ("within/x", 1, "1", None))


def test_some_failures_are_a_warning_and_failure_of_all_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    failed = Published(0, 0, Counter({GONE: 2, UNADDRESSED: 1}), "a/b/c")
    with caplog.at_level(logging.WARNING):
        check_published([Published(3), None, failed, Published(0, 1)])
    assert caplog.messages == [
        "3 of 7 snapshots were not published: 2 are of streams that were deleted, "
        "1 have stream names that no snapshot URL can express, such as one with two slashes ('a/b/c')."
    ]
    with pytest.raises(WriteFailed, match=r"^3 of 3 snapshots were not published: 2 are of streams that were deleted"):
        check_published([failed, Published()])
    check_published([Published(), None])


def test_a_table_of_snapshots_is_published(spark: SparkSession, lake_server: RunningServer, bucket: str) -> None:
    for name in ("x", "y"):
        make(lake_server, f"{bucket}/{name}", "abc")
    rows = spark.createDataFrame([("x", 3, "X"), ("y", 2, "Y")], "stream string, offset long, value string")
    writing = rows.write.format("headwater").options(url=lake_server.url, target="snapshot", bucket=bucket)
    writing.option("contentType", "text/plain").mode("append").save()
    assert snapshot(lake_server, f"{bucket}/x") == ("3", "text/plain", b"X")
    assert snapshot(lake_server, f"{bucket}/y") == ("2", "text/plain", b"Y")
    with pytest.raises(HTTPError):
        snapshot(lake_server, f"{bucket}/z")
