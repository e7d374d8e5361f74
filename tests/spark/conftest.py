"""One Spark session, and one server with a lake, for all tests without special needs."""

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from headwater.spark.link import Link, LinkSettings
from headwater.spark.session import DEFAULTS, session
from headwater.testing import RunningServer, running_server

from .streams import Streams, streams_in

_numbers = count(1)

QUICK = {
    "spark.driver.memory": "1g",
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""Settings that make small jobs fast; the optimizing compiler never pays off in a test."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    java = f"{DEFAULTS['spark.driver.extraJavaOptions']} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    conf = {
        **QUICK,
        "spark.driver.extraJavaOptions": f"{java} -Dderby.system.home={folder}",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(home_without_python(folder / "home")))
        spark = session("tests", master="local[2]", conf=conf)
    yield spark
    spark.stop()


def home_without_python(home: Path) -> Path:
    """Spark's own folder without its copy of pyspark, a zip of sources that each Python process would compile again."""
    home.mkdir()
    for part in ("bin", "jars"):
        (home / part).symlink_to(Path(pyspark.__file__).parent / part)
    return home


@pytest.fixture(scope="session")
def lake_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with a data directory and a lake in it; each test uses its own bucket there."""
    with running_server(data=tmp_path_factory.mktemp("server") / "data") as server:
        yield server
        # Whatever the tests did to the server, an error of its own would be in its log.
        first = server.output().partition("Traceback")[1:]
        assert not first[0], "".join(first)[:3000]


@pytest.fixture
def bucket() -> str:
    """A bucket that no other test uses."""
    return f"bucket-{next(_numbers)}-{os.getpid()}"


@pytest.fixture
def streams(lake_server: RunningServer, bucket: str) -> Iterator[Streams]:
    """The streams of the test's own bucket."""
    with streams_in(lake_server, bucket) as streams:
        yield streams


@pytest.fixture
def link(lake_server: RunningServer) -> Iterator[Link]:
    """A link to the shared server."""
    with Link(LinkSettings(lake_server.url)) as link:
        yield link


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """The checkpoint folder of a streaming query."""
    return str(tmp_path / "checkpoint")
