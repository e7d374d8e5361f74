"""Spark with Iceberg's own runtime reads the tables by the server's REST catalog, and finds the rows of our own scan.

    ICEBERG_RUNTIME_JAR=iceberg-spark-runtime-4.1_2.13-1.12.0.jar pytest tests/spark/source/test_iceberg_runtime.py

The runtime must be of the installed PySpark's version; there is none for 4.3 yet.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from headwater.spark.session import session
from headwater.storage.folder import FolderStore
from headwater.testing import running_server

from ...http.sockets import Wire
from ...lake.built_lakes import Writer, tell_a_story
from ...lake.iceberg.test_other_engines import our_rows

JAR = os.environ.get("ICEBERG_RUNTIME_JAR", "")
KEYS = ("bucket", "stream", "incarnation", "offset", "payload")

pytestmark = [
    pytest.mark.spark_slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.skipif(not JAR, reason=f"ICEBERG_RUNTIME_JAR names no runtime for Spark {pyspark.__version__}"),
]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[tuple[str, FolderStore]]:

    with running_server(data=tmp_path) as server, Wire(server.url) as wire:
        for bucket in ("team", "team-a"):
            wire.ask("PUT", f"/{bucket}")
        tell_a_story(Writer(wire))
        yield server.url, FolderStore(tmp_path / "lake")


@pytest.fixture
def spark(lake: tuple[str, FolderStore]) -> Iterator[SparkSession]:
    made = session("iceberg", master="local[1]", iceberg=True, server=lake[0])
    yield made
    made.stop()


def test_iceberg_in_the_jvm_finds_the_rows_of_our_own_scan(lake: tuple[str, FolderStore], spark: SparkSession) -> None:
    found = [tuple(row) for row in spark.table("headwater.headwater.messages").select(*KEYS).collect()]
    ours = [tuple(row[key] for key in KEYS) for row in our_rows(lake[1]).to_pylist()]
    assert sorted((*row[:4], bytes(row[4])) for row in found) == sorted(ours)
    assert spark.sql("select * from headwater.headwater.messages.snapshots").count() > 1
    position = spark.sql("select max(position) from headwater.headwater.messages").first()
    assert position is not None
    assert position[0] == max(our_rows(lake[1])["position"].to_pylist()), "bounds are not taken for values"
