"""A server is killed under bulk appends, many times; what it acknowledged is there, once and whole.

TESTS_CRASH_CYCLES says how often, TESTS_CRASH_SEED which choices are made; the instants are the machine's own.
"""

import os
import time
from pathlib import Path
from random import Random, SystemRandom

import pytest

from headwater.testing import RunningServer, running_server

from .bulk_writers import BulkLedger, BulkWriter, check
from .clients import Client
from .kills import SHORT_SYNCS

pytestmark = pytest.mark.crash

CYCLES = int(os.environ.get("TESTS_CRASH_CYCLES", "5"))
SEED = int(os.environ.get("TESTS_CRASH_SEED", SystemRandom().randrange(1 << 32)))
LOAD_SECONDS_MAX = 1.0
ANSWER_SECONDS_MAX = 60.0
FLAGS = (
    *("--journal-file-bytes", str(1 << 20), "--image-log-bytes", "500000"),
    *("--flush-segment-bytes", "100000", "--flush-bytes-max", "300000", "--lake-history-seconds", "0.5"),
)


def run_load(server: RunningServer, writers: list[BulkWriter], random: Random) -> None:
    """Run all writers until the server is killed, but not before each was answered once."""
    threads = [writer.start(server.url) for writer in writers]
    for writer, thread in zip(writers, threads, strict=True):
        until = time.monotonic() + ANSWER_SECONDS_MAX
        while thread.is_alive() and not writer.was_answered.wait(0.1):
            assert time.monotonic() < until, f"{writer.identity} was never answered:\n{server.output()}"
    time.sleep(random.uniform(0, LOAD_SECONDS_MAX))
    server.kill()
    for thread in threads:
        thread.join()
    for writer in writers:
        if writer.error is not None:
            raise writer.error


def check_all(server: RunningServer, ledger: BulkLedger) -> None:
    client = Client(server.url)
    check(ledger, client)
    client.close()
    complaints = [line for line in server.output().splitlines() if any(word in line for word in ("ERROR", "Traceback"))]
    assert not complaints, server.output()


def test_nothing_acknowledged_in_bulk_is_lost_or_doubled_when_a_server_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random, ledger = Random(SEED), BulkLedger()
    writers = [
        BulkWriter(f"writer-{number}", ledger, Random(random.random()), produces=number != 0) for number in range(3)
    ]
    for cycle in range(CYCLES):
        with running_server(*FLAGS, data=tmp_path, env=SHORT_SYNCS if cycle % 2 else None) as server:
            check_all(server, ledger)
            run_load(server, writers, random)
    with running_server(*FLAGS, data=tmp_path) as server:
        check_all(server, ledger)
        assert server.stop() == 0, server.output()
    with running_server(*FLAGS, data=tmp_path) as server:
        check_all(server, ledger)
    with capsys.disabled():
        counts = ledger.counts
        print(
            f"\n{CYCLES} kills under bulk appends (seed {SEED}): {counts['acknowledged']} rows acknowledged, ", end=""
        )
        print(f"{counts['checked']} checked, {counts['repeated']} sent again.")
    assert ledger.counts["checked"] == ledger.counts["acknowledged"] >= CYCLES * len(writers)
