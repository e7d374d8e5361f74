"""Spark against a server that asks for tokens and has a listener for operators: each job with just its own grants."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.client import Client
from headwater.spark.failures import LinkRefused
from headwater.spark.jobs import compact, usage
from headwater.spark.jobs.export import job as export
from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.report import JobFailed
from headwater.spark.jobs.snapshot import job as snapshot
from headwater.spark.jobs.snapshot.folds import reducer
from headwater.spark.jobs.verify import job as verify
from headwater.spark.link import Link, LinkSettings

from ..http.guarded import Guarded, guarded

GRANTS = {
    "live": ["pipeline,read shop/*"],
    "sink": ["pipeline,append,create shop/*"],
    "snapshot": ["pipeline,read,snapshot shop/*"],
    "lake": ["pipeline,read *"],
    "compact": ["admin,pipeline *"],
    "reader": ["read *"],
}
MESSAGES = [b'{"n":%d}' % number for number in range(20)]


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    with guarded(folder, GRANTS, "--ops", "127.0.0.1:0", data=folder / "data") as found:
        with Client(f"{found.server.url}/v1/stream", token=found.tokens["root"]) as client:
            for bucket in ("shop", "bank"):
                stream = client.stream(f"{bucket}/orders", content_type="application/json")
                stream.create()
                for message in MESSAGES:
                    stream.append(message)
        yield found
        assert "Traceback" not in found.server.output()


def given(guard: Guarded, who: str, **more: str) -> dict[str, str]:
    return {"url": guard.server.url, "token": guard.tokens[who], **more}


def origin(guard: Guarded, who: str, bucket: str = "shop", **more: str) -> Origin:
    return Origin(guard.server.url, bucket, options={"token": guard.tokens[who], **more})


def rows(spark: SparkSession, guard: Guarded, who: str, **more: str) -> DataFrame:
    return spark.read.format("headwater").options(**given(guard, who, **more)).load()


@pytest.mark.parametrize(("who", "via"), [("live", "live"), ("live", "auto"), ("lake", "lake"), ("lake", "live")])
def test_the_source_needs_pipeline_and_read(spark: SparkSession, guard: Guarded, who: str, via: str) -> None:
    assert rows(spark, guard, who, bucket="shop", via=via).count() >= len(MESSAGES)


@pytest.mark.parametrize("via", ["live", "lake"])
def test_a_streaming_query_needs_no_more(spark: SparkSession, guard: Guarded, via: str, tmp_path: Path) -> None:
    options = given(guard, via, bucket="shop", streams="orders", via=via, startingOffsets="earliest")
    stream = spark.readStream.format("headwater").options(**options).load()
    query = (
        stream.writeStream.format("memory")
        .queryName(f"guarded_{via}")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert spark.table(f"guarded_{via}").count() == len(MESSAGES)


def test_the_sink_writes_below_its_grants_only(spark: SparkSession, guard: Guarded) -> None:
    for bucket in ("shop", "bank"):
        table = spark.range(3).coalesce(1).select(F.lit(f"{bucket}/new").alias("stream"), F.lit("1").alias("value"))
        writing = table.write.format("headwater").options(**given(guard, "sink")).mode("append")
        if bucket == "shop":
            writing.save()
        else:
            with pytest.raises(PySparkException, match="give the option tokenFile"):
                writing.save()
    assert rows(spark, guard, "live", bucket="shop", streams="new", via="live").count() == 3


def test_snapshots_are_made_of_the_server_by_who_may_not_read_the_lake(spark: SparkSession, guard: Guarded) -> None:
    config = snapshot.SnapshotConfig(origin(guard, "snapshot", streams="orders"), reducer("counter"))
    report = snapshot.run(spark, config)
    assert (report.ok, report.facts["published"], report.facts["via"]) == (True, 1, "live")


def test_the_lake_is_exported_verified_and_measured_with_pipeline_and_read(
    spark: SparkSession, guard: Guarded, tmp_path: Path
) -> None:
    done = export.run(spark, export.ExportConfig(origin(guard, "lake", "bank"), str(tmp_path / "table")))
    assert done.facts["rows"] == len(MESSAGES)
    assert verify.run(spark, verify.VerifyConfig(origin(guard, "lake", "bank"))).ok
    report = usage.run(spark, usage.UsageConfig(origin(guard, "lake", "bank"), str(tmp_path / "usage")))
    assert report.facts["messages"] == len(MESSAGES)


def test_who_may_not_read_the_lake_is_told_so(spark: SparkSession, guard: Guarded, tmp_path: Path) -> None:
    hidden = "shows its lake only to those with the grant 'pipeline \\*'"
    with pytest.raises(PySparkException, match=hidden):
        rows(spark, guard, "live", bucket="shop", via="lake").count()
    with pytest.raises(JobFailed, match=hidden):
        export.run(spark, export.ExportConfig(origin(guard, "live"), str(tmp_path / "table")))
    with pytest.raises(JobFailed, match=hidden):
        verify.run(spark, verify.VerifyConfig(origin(guard, "live")))
    with pytest.raises(JobFailed, match=hidden):
        compact.run(spark, compact.CompactConfig(LinkSettings(guard.server.url, guard.tokens["live"])))
    report = usage.run(spark, usage.UsageConfig(origin(guard, "live"), str(tmp_path / "usage")))
    assert report.facts["streams"] in (1, 2)


def test_the_lake_is_compacted_with_admin_and_pipeline(spark: SparkSession, guard: Guarded) -> None:
    with Client(f"{guard.server.url}/v1/stream", token=guard.tokens["root"]) as client, flushing(guard) as link:
        stream = client.stream("bank/many", content_type="application/json")
        stream.create()
        for message in MESSAGES[:10]:
            stream.append(message)
            link.flush()
    report = compact.run(spark, compact.CompactConfig(LinkSettings(guard.server.url, guard.tokens["compact"])))
    assert report.ok, report.problems


def flushing(guard: Guarded) -> Link:
    return Link(LinkSettings(guard.server.url, guard.tokens["root"]))


def test_without_a_pipeline_right_the_log_says_nothing(guard: Guarded) -> None:
    with Link(LinkSettings(guard.server.url, guard.tokens["reader"])) as link, pytest.raises(LinkRefused):
        link.log()
    with Link(LinkSettings(guard.server.url, guard.tokens["live"])) as link:
        assert (link.log().has_lake, link.log().lake_url) == (True, None)
    with Link(LinkSettings(guard.server.url, guard.tokens["lake"])) as link:
        assert (link.log().lake_url or "").endswith("lake")
