"""Whatever is killed, a copy and an export contain every message once, unchanged and in order.

TESTS_SPARK_KILLS is the number of kills in each test, TESTS_SPARK_SEED the seed of the random choices. The
exact instants depend on the machine.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random, SystemRandom

import pyarrow.dataset as ds
import pytest

from headwater.spark.jobs.export.ledger import CHECKPOINT

from ..cluster.standalone import Cluster, standalone_cluster
from .aims import Aim, bytes_of_bucket, files_of_folder
from .checks import compare, read_streams
from .drivers import Driver, verb
from .run import SOURCE, Fire
from .server import MortalServer

pytestmark = pytest.mark.spark_slow

KILLS = int(os.environ.get("TESTS_SPARK_KILLS", "20"))
SEED = int(os.environ.get("TESTS_SPARK_SEED", SystemRandom().randrange(1 << 32)))
COPY = "copy"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.mark.parametrize("via", ["lake", "live"])
def test_a_copy_contains_everything_once_and_in_order(
    via: str, tmp_path: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    with MortalServer(tmp_path / "data") as server:
        # The lake keeps what was trimmed or deleted for a registered consumer; the server does not.
        fire = Fire(tmp_path, cluster, server, Random(SEED), hazards=via == "lake")
        checkpoint = tmp_path / "checkpoint"
        places = (str(checkpoint), SOURCE, COPY, "--via", via)
        command = [sys.executable, "-m", "tests.spark.fire.copy", server.url, cluster.url, *places]
        driver = Driver(command, tmp_path, "copy")
        try:
            killer = fire.burn(driver, Aim(checkpoint, bytes_of_bucket(server.url, COPY)), KILLS)
            driver.finish("--to-the-end")
        finally:
            driver.stop()
        fire.check_source()
        difference = compare(fire.ledger.everything(), read_streams(server.url, COPY))
    with capsys.disabled():
        seconds = time.monotonic() - began
        print(f"\nCopy ({via}, seed {SEED}, {seconds:.0f} s): {fire.summary(killer, driver)}\n{difference}")
    assert difference.is_none, str(difference)
    assert killer.half_written >= KILLS // 4, "too few kills hit a partly written batch, so the test proves little"


def test_an_export_contains_everything_once_and_in_order(
    tmp_path: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    began, table = time.monotonic(), tmp_path / "table"
    with MortalServer(tmp_path / "data") as server:
        fire = Fire(tmp_path, cluster, server, Random(SEED + 1), hazards=True)
        where = ("--bucket", SOURCE, "--to", str(table), "--batch-mib", "1")
        driver = Driver(verb("export", cluster, server.url, *where), tmp_path, "export")
        try:
            checkpoint = table / CHECKPOINT
            killer = fire.burn(driver, Aim(checkpoint, files_of_folder(table, checkpoint)), KILLS)
            driver.finish()
            # The verify job finds no mistakes either, including in deleted and trimmed streams.
            Driver(verb("verify", cluster, server.url, "--export", str(table)), tmp_path, "verify").finish()
        finally:
            driver.stop()
        fire.check_source()
    difference = compare(fire.ledger.everything(), read_table(table))
    with capsys.disabled():
        seconds = time.monotonic() - began
        print(f"\nExport (seed {SEED}, {seconds:.0f} s): {fire.summary(killer, driver)}\n{difference}")
    assert difference.is_none, str(difference)
    assert killer.half_written >= KILLS // 4, "too few kills hit a partly written batch, so the test proves little"


def read_table(folder: Path) -> dict[str, list[bytes]]:
    """The messages of a Parquet table, by stream and in the order in which they were written."""
    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table(
        ["stream", "position", "offset", "payload"]
    )
    found: dict[str, list[bytes]] = {}
    for row in table.sort_by([("position", "ascending"), ("offset", "ascending")]).to_pylist():
        found.setdefault(row["stream"], []).append(row["payload"])
    return found
