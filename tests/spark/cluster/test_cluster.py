"""A standalone cluster with two workers runs the source, the sink and the jobs, as a user would run them."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.spark.link import Link, LinkSettings
from headwater.testing import RunningServer, running_server

from ..fire.checks import compare, read_streams
from ..fire.drivers import Driver, verb
from ..fire.ledger import Ledger
from ..fire.test_under_fire import read_table
from .standalone import DRIVER_CONF, ROOT, SPARK_HOME, Cluster, environment, standalone_cluster

pytestmark = pytest.mark.spark_slow

SOURCE = "source"
STREAMS = 40
TURNS = 12
MESSAGES = 20
SUBMIT_SECONDS_MAX = 420.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(data=tmp_path_factory.mktemp("server") / "data") as server:
        yield server


@pytest.fixture(scope="module")
def ledger(server: RunningServer) -> Ledger:
    """Streams that were written in many flushes, so that there is something to compact."""
    ledger = Ledger(STREAMS, hazards=False)
    with Link(LinkSettings(server.url)) as link:
        for _ in range(TURNS):
            append(link, ledger)
            link.flush()
    return ledger


def append(link: Link, ledger: Ledger) -> None:
    """Append a few more messages to every stream."""
    timelines = ledger.timelines
    columns = {
        "stream": [f"{SOURCE}/{timeline.name}" for timeline in timelines],
        "messages": [timeline.messages(timeline.acknowledged, MESSAGES) for timeline in timelines],
        "content_type": [timeline.content_type for timeline in timelines],
        "create": [True] * len(timelines),
    }
    answers = link.append(pa.table(columns))
    assert set(answers["status"].to_pylist()) == {200}, answers
    for timeline in timelines:
        timeline.acknowledged += MESSAGES


def run(name: str, cluster: Cluster, server: RunningServer, folder: Path, *options: str) -> dict[str, Any]:
    """Run a job on the cluster; its report."""
    job = Driver(verb(name, cluster, server.url, *options, "--json"), folder, name)
    job.finish()
    report: dict[str, Any] = json.loads(job.output().splitlines()[-1])
    assert report["ok"], report
    return report


@pytest.mark.parametrize("via", ["lake", "live"])
def test_a_stream_is_read_and_written_by_executors(
    via: str, cluster: Cluster, server: RunningServer, ledger: Ledger, tmp_path: Path
) -> None:
    places = (str(tmp_path / "checkpoint"), SOURCE, f"copy-{via}", "--via", via, "--to-the-end")
    command = [sys.executable, "-m", "tests.spark.fire.copy", server.url, cluster.url, *places]
    Driver(command, tmp_path, "copy").finish()
    difference = compare(ledger.everything(), read_streams(server.url, f"copy-{via}"))
    assert difference.is_none, str(difference)


def test_a_submitted_job_reads_and_writes_streams(cluster: Cluster, server: RunningServer, ledger: Ledger) -> None:
    settings = [word for item in DRIVER_CONF.items() for word in ("--conf", "=".join(item))]
    job = [str(Path(__file__).with_name("counts.py")), server.url, SOURCE, "counts"]
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.url, *settings, *job]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=SUBMIT_SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    counts = {
        name: [json.loads(message) for message in found] for name, found in read_streams(server.url, "counts").items()
    }
    assert counts == {
        name: [{"messages": len(messages), "bytes": sum(map(len, messages))}]
        for name, messages in ledger.everything().items()
    }


def test_jobs_compact_export_and_verify_the_lake(
    cluster: Cluster, server: RunningServer, ledger: Ledger, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    export = ("--bucket", SOURCE, "--to", str(table))
    run("export", cluster, server, tmp_path, *export)
    compacted = run("compact", cluster, server, tmp_path)
    assert compacted["segments_after"] < TURNS, compacted
    with Link(LinkSettings(server.url)) as link:
        append(link, ledger)
    exported = run("export", cluster, server, tmp_path, *export)
    assert exported["rows"] == STREAMS * MESSAGES, exported
    difference = compare(ledger.everything(), read_table(table))
    assert difference.is_none, str(difference)
    difference = compare(ledger.everything(), read_streams(server.url, SOURCE))
    assert difference.is_none, str(difference)
    verified = run("verify", cluster, server, tmp_path, "--bucket", SOURCE, "--export", str(table))
    assert not verified["problems"], verified
