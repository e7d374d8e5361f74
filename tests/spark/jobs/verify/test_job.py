"""Server, lake and export compared: first without problems, then with forged data."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headwater.client import Client, Fork
from headwater.lake.catalog import read_catalog
from headwater.lake.format import SCHEMA, segment_key
from headwater.lake.iceberg.messages import Heading
from headwater.lake.iceberg.tables import Changes, LakeTables
from headwater.spark.jobs.export import job as export
from headwater.spark.jobs.export.delta import DeltaExport
from headwater.spark.jobs.export.iceberg import IcebergExport
from headwater.spark.jobs.export.shape import Shape
from headwater.spark.jobs.export.tables import TableFile
from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.report import JobFailed
from headwater.spark.jobs.verify import job as verify
from headwater.spark.jobs.verify.judging import Finding
from headwater.spark.link import Link, LinkSettings
from headwater.storage.opening import open_store
from headwater.storage.store import Store
from headwater.streams.cold import Held
from headwater.testing import RunningServer

from ....lake.forged_lakes import forge
from ..export.exported_rows import append

MESSAGES = [b"10", b"20", b"30", b"40", b"50"]
AHEAD = 10**15
"""A position that no server reaches in a test; a forged catalog claims that the lake is complete up to it."""


def prepare(server: RunningServer, bucket: str) -> None:
    """Streams of many kinds."""
    names = ("changed", "ended", "extra", "fine", "gap", "missing", "swapped", "trimmed")
    append(server, bucket, dict.fromkeys(names, MESSAGES))
    append(server, bucket, dict.fromkeys(names, MESSAGES))
    with Client(f"{server.url}/v1/stream") as client:
        client.stream(f"{bucket}/fork").create(fork=Fork(f"/v1/stream/{bucket}/fine"))
        client.stream(f"{bucket}/empty").create("text/plain")
        produced = client.stream(f"{bucket}/produced")
        produced.create("text/plain")
        for epoch, seq in ((0, 0), (0, 1), (3, 0)):
            produced.append_once(b"some", producer_id="p", epoch=epoch, seq=seq)
    append(server, bucket, {"fork": MESSAGES})


def forge_export(folder: Path, stream: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the rows of one stream in the files of an export."""
    for path in sorted(folder.glob("day=*/bucket-*/*.parquet")):
        table = pq.ParquetFile(path).read()
        names = table["stream"].to_pylist()
        if stream in names:
            first, count = names.index(stream), names.count(stream)
            parts = [table.slice(0, first), change(table.slice(first, count)), table.slice(first + count)]
            pq.write_table(pa.concat_tables(parts), path)
            return
    raise AssertionError(f"no file has the stream {stream}")


def with_payloads(rows: pa.Table, *payloads: bytes) -> pa.Table:
    at = rows.column_names.index("payload")
    return rows.set_column(at, rows.schema.field(at), pa.array(payloads, pa.binary()))


def forged_lake(real: Store, forged: Store, bucket: str, stream: str) -> None:
    """Write a lake that lacks one message of a stream, at offset 2, and is otherwise consistent."""
    catalog = read_catalog(real)
    assert catalog is not None
    listed: list[tuple[int, Held | None]] = []
    for one in catalog.segments:
        data, segment = real.read(one.key), one.segment
        table = pq.read_table(pa.BufferReader(data)).cast(SCHEMA)
        rows = list(zip(*(table[name].to_pylist() for name in ("bucket", "stream", "offset")), strict=True))
        if (bucket, stream, 2) in rows:
            at = rows.index((bucket, stream, 2))
            data, segment = forge([pa.concat_tables([table.slice(0, at), table.slice(at + 1)]).combine_chunks()])
            first, last = one.segment.first_position, one.segment.last_position
            segment = msgspec.structs.replace(segment, first_position=first, last_position=last)
        forged.create(segment_key(0, segment.first_position, segment.last_position, segment.id), data)
        listed.append((one.number, Held(segment, segment.rows)))
    tables = LakeTables(forged, 0, catalog.log_id, history_seconds=60, now_ms=lambda: 0)
    tables.update(Changes(listed, [], []))
    tables.commit(Heading(AHEAD, AHEAD, catalog.dropped, catalog.at), ())


@pytest.fixture
def exported(spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path) -> tuple[Origin, Path]:
    """Streams, an export of them, and changes to the streams after the export."""
    prepare(lake_server, bucket)
    origin, to = Origin(lake_server.url, bucket=bucket), tmp_path / "table"
    export.run(spark, export.ExportConfig(origin, str(to)))
    with Link(LinkSettings(lake_server.url)) as link:
        link.publish_snapshot(f"{bucket}/trimmed", 10, b"[]", "application/json")
    with Client(f"{lake_server.url}/v1/stream") as client:
        client.stream(f"{bucket}/ended").delete()
    append(lake_server, bucket, {"fine": MESSAGES, "late": MESSAGES})
    return origin, to


def test_correct_data_passes_and_every_forgery_is_found(
    spark: SparkSession, lake_server: RunningServer, exported: tuple[Origin, Path], tmp_path: Path
) -> None:
    origin, to = exported
    bucket = str(origin.bucket)
    report = verify.run(spark, verify.VerifyConfig(Origin(lake_server.url), str(to), hashes=str(tmp_path / "hashes")))
    assert report.problems == ()
    facts = dict(report.facts)
    assert facts["streams"] == 11
    assert (facts["export_messages_of_ended_lives"], facts["messages_not_exported_yet"]) == (10, 10)
    # The server serves inherited messages under the fork, the lake has them under the source.
    assert (facts["server_messages"], facts["lake_messages"]) == (5 * 10 + 5 + 15 + 15 + 3 + 5, 83)
    hashes = {row["name"]: row for row in spark.read.parquet(str(tmp_path / "hashes")).collect()}
    assert hashes[f"{bucket}/fine"]["hash"] == hashes[f"{bucket}/fine"]["lake_hash"]
    assert hashes[f"{bucket}/fine"]["hash_as_exported"] == hashes[f"{bucket}/fine"]["export_hash"]

    forge_export(to, "missing", lambda rows: rows.slice(1))
    forge_export(to, "extra", lambda rows: pa.concat_tables([rows, rows.slice(2, 1)]))
    forge_export(to, "changed", lambda rows: with_payloads(rows, b"11", *rows["payload"].to_pylist()[1:]))
    forge_export(to, "swapped", lambda rows: with_payloads(rows, *reversed(rows["payload"].to_pylist())))
    with Link(LinkSettings(lake_server.url)) as link:
        real = open_store(link.status()["lake"]["url"])
    forged_lake(real, open_store(str(tmp_path / "lake")), bucket, "gap")
    forged = Origin(lake_server.url, options={"lake": str(tmp_path / "lake")})
    report = verify.run(spark, verify.VerifyConfig(forged, str(to)))
    found = {problem.partition(" ")[0].partition("/")[2]: problem for problem in report.problems}
    assert "1 message missing from the export, the first at offset 0" in found.pop("missing")
    assert "1 message extra or repeated in the export, the first at offset 4" in found.pop("extra")
    assert "1 message changed in the export, the first at offset 0" in found.pop("changed")
    assert "changed in the export, the first at offset 0" in found.pop("swapped")
    assert "1 message missing from the lake, the first at offset 2" in found.pop("gap")
    # The forged catalog has no tombstones.
    assert set(found) <= {"ended", "trimmed"}
    assert not report.ok


TYPED = Shape("n long, at timestamp, tags map<string,long>, deep struct<a: array<double>>")
TYPED_MESSAGES = [
    b'{"n":1,"at":"2025-01-02T03:04:05.123456Z","tags":{"a":1,"b":2},"deep":{"a":[1.5,null]}}',
    b'{"n":"no"}',
    b'{"n":3,"tags":{}}',
]


def with_column(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, values)


def problems_of(spark: SparkSession, to: Path, server: RunningServer) -> dict[str, str]:
    report = verify.run(spark, verify.VerifyConfig(Origin(server.url), str(to)))
    return {problem.partition(" ")[0].partition("/")[2]: problem.partition("): ")[2] for problem in report.problems}


def test_every_column_that_queries_use_is_compared(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path
) -> None:
    names = ("corrupt", "deep", "fine", "n", "tags", "time")
    append(lake_server, bucket, dict.fromkeys(names, TYPED_MESSAGES))
    to = tmp_path / "table"
    export.run(spark, export.ExportConfig(Origin(lake_server.url, bucket=bucket), str(to), shape=TYPED))
    assert problems_of(spark, to, lake_server) == {}

    forge_export(to, "n", lambda rows: with_column(rows, "n", pa.array([1, None, 4])))
    forge_export(to, "corrupt", lambda rows: with_column(rows, "_corrupt", pa.nulls(3, pa.string())))
    late = pa.array([1735787045123457, None, None], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    forge_export(to, "time", lambda rows: with_column(rows, "at", late))
    tags = pa.array([[("a", 1), ("b", 3)], None, []], pa.map_(pa.string(), pa.int64()))
    forge_export(to, "tags", lambda rows: with_column(rows, "tags", tags))
    forge_export(
        to, "deep", lambda rows: with_column(rows, "deep", pa.array([{"a": [1.5]}, None, None], rows["deep"].type))
    )
    second = len(TYPED_MESSAGES[0])
    assert problems_of(spark, to, lake_server) == {
        "n": f"in the export the column n is not what the payload says, at offset {second + len(TYPED_MESSAGES[1])}.",
        "corrupt": f"in the export the column _corrupt is not what the payload says, at offset {second}.",
        "time": "in the export the column at is not what the payload says, at offset 0.",
        "tags": "in the export the column tags is not what the payload says, at offset 0.",
        "deep": "in the export the column deep is not what the payload says, at offset 0.",
    }

    (file,) = to.glob("day=*/bucket-*/*.parquet")
    held = pq.ParquetFile(file).read()
    pq.write_table(held.drop_columns(["at"]), file)
    assert problems_of(spark, to, lake_server)["fine"] == (
        "in the export there is no column at, at offset 0 (and 2 more)."
    )
    pq.write_table(with_column(held, "n", held["n"].cast(pa.string())), file)
    assert problems_of(spark, to, lake_server)["fine"] == (
        "in the export the column n has the type string, at offset 0 (and 2 more)."
    )


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_row_in_another_partition_than_its_own_is_found(
    kind: Literal["parquet", "delta", "iceberg"],
    spark: SparkSession,
    lake_server: RunningServer,
    bucket: str,
    tmp_path: Path,
) -> None:
    append(lake_server, bucket, {"x": [b"1", b"2"]})
    to = tmp_path / "table"
    shape = Shape(variant=True) if kind == "parquet" else Shape("n long")
    export.run(spark, export.ExportConfig(Origin(lake_server.url, bucket=bucket), str(to), kind, shape))
    assert problems_of(spark, to, lake_server) == {}
    if kind == "parquet":
        (day,) = to.glob("day=*")
        moved = day.rename(to / "day=2024-02-29")
        assert problems_of(spark, to, lake_server) == {
            "x": "in the export the table lists the row under the day 2024-02-29, at offset 0 (and 1 more)."
        }
        (moved / f"bucket-{bucket}").rename(moved / "bucket-other")
        moved.rename(day)
        assert problems_of(spark, to, lake_server) == {
            "x": "in the export the table lists the row in the bucket 'other', at offset 0 (and 1 more)."
        }
        return
    tables: type[Any] = DeltaExport if kind == "delta" else IcebergExport
    listed = tables.files

    def elsewhere(self: Any) -> Iterator[TableFile]:
        for file in listed(self):
            yield file._replace(day="2024-02-29")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "files", elsewhere)
        assert problems_of(spark, to, lake_server) == {
            "x": "in the export the table lists the row under the day 2024-02-29, at offset 0 (and 1 more)."
        }


def test_a_changed_variant_is_found(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path
) -> None:
    append(lake_server, bucket, {"x": [b'{"a":1}', b'{"a":2}'], "y": [b"1"]})
    to = tmp_path / "table"
    shape = Shape(variant=True)
    export.run(spark, export.ExportConfig(Origin(lake_server.url, bucket=bucket), str(to), shape=shape))
    assert problems_of(spark, to, lake_server) == {}
    forge_export(to, "x", lambda rows: with_column(rows, "value", rows["value"].take(pa.array([0, 0]))))
    assert problems_of(spark, to, lake_server) == {
        "x": "in the export the column value is not what the payload says, at offset 7."
    }


def test_an_invalid_configuration_fails_with_one_sentence(
    spark: SparkSession, lake_server: RunningServer, bucket: str, tmp_path: Path
) -> None:
    for config, problem in (
        ({"export": str(tmp_path)}, "There is no export at"),
        ({"export": "gs://x"}, "is not a valid table URL"),
        ({}, "streams"),
    ):
        with pytest.raises(JobFailed, match=problem):
            verify.run(spark, verify.VerifyConfig(Origin(lake_server.url), **dict[str, Any](config)))


def test_problems_found_while_the_server_is_written_to_are_checked_again(
    spark: SparkSession, lake_server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = [Finding("b/x", 1, "lake", "something"), Finding("b/y", 2, "server", "something else")]
    config = verify.VerifyConfig(Origin(lake_server.url, bucket="b"), problems_max=2)
    origins: list[Origin] = []
    for results, problems in (
        ([verify.Comparison({}, wrong, 2, False), verify.Comparison({}, wrong[1:], 1, False)], 1),
        ([verify.Comparison({}, wrong, 2, True)], 2),
        ([verify.Comparison({}, wrong, 7, False), verify.Comparison({}, wrong, 2, False)], 3),
    ):

        def compare(
            self: verify.Verifier, hashes: str | None = None, results: list[verify.Comparison] = results
        ) -> verify.Comparison:
            origins.append(self.origin)
            return results.pop(0)

        monkeypatch.setattr(verify.Verifier, "compare", compare)
        report = verify.run(spark, config)
        assert len(report.problems) == problems and results == []
    assert (origins[1].bucket, origins[1].streams) == (None, ["b/x", "b/y"])
    assert report.problems[-1] == "There are 5 more problems."
