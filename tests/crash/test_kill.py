"""A real server is killed under load, many times; nothing it acknowledged is lost, changed or doubled.

TESTS_CRASH_CYCLES sets how often, TESTS_CRASH_SEED the random choices; the timing is not reproducible.
"""

import os
import time
from collections import Counter
from pathlib import Path
from random import Random, SystemRandom

import pytest

from headwater.testing import RunningServer, running_server

from .batchers import Batcher, BatchProducer
from .buckets import Estate, Landlord, Tenant, check_default_bucket, check_estate
from .checks import check_streams
from .clients import Client
from .kills import SHORT_SYNCS, Killer
from .ledger import Kind, Ledger
from .messages import JSON, TEXT
from .snapshot_checks import check_blobs, check_blobs_are_gone
from .snapshotters import Snapshotter
from .writers import Appender, Forker, IdempotentProducer, Janitor, Reader, Writer, delete

pytestmark = pytest.mark.crash

CYCLES = int(os.environ.get("TESTS_CRASH_CYCLES", "30"))
SEED = int(os.environ.get("TESTS_CRASH_SEED", SystemRandom().randrange(1 << 32)))
LOAD_SECONDS = 1.3
JOURNAL_FILE_BYTES = 1 << 20
IMAGE_LOG_BYTES = 500_000
FLAGS = (
    *("--journal-file-bytes", str(JOURNAL_FILE_BYTES), "--image-log-bytes", str(IMAGE_LOG_BYTES)),
    *("--flush-segment-bytes", "100000", "--lake-history-seconds", "0.5"),
)

KINDS = {
    **{f"text-{number}": Kind(TEXT, snapshots=number % 2 == 0) for number in range(12)},
    **{f"json-{number}": Kind(JSON, snapshots=number % 3 != 1) for number in range(6)},
    **{f"brief-{number}": Kind(TEXT, ttl_seconds=2, snapshots=True) for number in range(3)},
    **{f"lasting-{number}": Kind(JSON, ttl_seconds=3600) for number in range(3)},
    **{f"fork-{number}": Kind(TEXT, source=f"text-{number}", snapshots=number < 3) for number in range(6)},
    **{f"fork-of-fork-{number}": Kind(TEXT, source=f"fork-{number}") for number in range(3)},
    "json-fork": Kind(JSON, source="json-0", snapshots=True),
}


def make_writers(ledger: Ledger, estate: Estate, random: Random) -> list[Writer]:
    of_streams = (Appender, IdempotentProducer, Batcher, BatchProducer, Snapshotter, Janitor, Forker, Reader)
    pairs = (Appender, IdempotentProducer, Snapshotter, Janitor)
    writers: list[Writer] = [
        kind(f"{kind.__name__}-{number}", ledger, Random(random.random()))
        for number, kind in enumerate((*of_streams, *pairs))
    ]
    for number, tenancy in enumerate((Landlord, Tenant, Tenant)):
        writers.append(tenancy(f"{tenancy.__name__}-{number}", ledger, Random(random.random()), estate))
    return writers


def run_load(server: RunningServer, writers: list[Writer], killer: Killer) -> None:
    """Run all writers until the server is killed."""
    threads = [writer.start(server.url) for writer in writers]
    killer.kill(server, LOAD_SECONDS)
    killed_at = time.monotonic()
    for thread in threads:
        thread.join()
    for writer in writers:
        if writer.error is not None:
            raise writer.error
    early = [writer.identity for writer in writers if writer.ended_at < killed_at - 0.5]
    assert not early, f"{early} lost their connections while the server lived:\n{server.output()}"


def check_all(server: RunningServer, ledger: Ledger, estate: Estate, data: Path) -> Counter[str]:
    """Compare everything a server shows with what it acknowledged; how much was checked."""
    client = Client(server.url)
    heads, checked = check_streams(ledger, client)
    check_default_bucket(ledger, client, heads)
    checked += check_estate(estate, client)
    client.close()
    check_blobs(ledger, data / "snapshots")
    return checked


def delete_all(server: RunningServer, ledger: Ledger) -> None:
    client = Client(server.url)
    for life in [life for name in ledger.kinds for life in ledger.living(name)]:
        delete(client, ledger, life)
    client.close()


def check_output(server: RunningServer) -> Counter[str]:
    """A server reports nothing worse than a torn end."""
    lines = server.output().splitlines()
    complaints = [line for line in lines if any(word in line for word in ("ERROR", "CRITICAL", "Traceback"))]
    assert not complaints, server.output()
    return Counter(torn=sum("torn bytes" in line for line in lines), images=sum("image of" in line for line in lines))


def test_nothing_acknowledged_is_lost_when_a_server_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random, data = Random(SEED), tmp_path / "data"
    ledger, estate = Ledger(KINDS), Estate()
    writers = make_writers(ledger, estate, random)
    killer = Killer(data, JOURNAL_FILE_BYTES, random)
    checked: Counter[str] = Counter()
    started = time.monotonic()
    try:
        for cycle in range(CYCLES):
            ledger.trims = random.random() < 0.5
            retention = "snapshot" if ledger.trims else "explicit"
            flush_bytes = random.choice((2_000, 20_000, 100_000, 64 << 20))
            flags = (*FLAGS, "--retention", retention, "--flush-bytes-max", str(flush_bytes))
            with running_server(*flags, data=data, env=SHORT_SYNCS if cycle % 2 else None) as server:
                checked += check_all(server, ledger, estate, data)
                run_load(server, writers, killer)
                checked += check_output(server)
        for _ in range(2):
            with running_server(*FLAGS, data=data) as server:
                checked += check_all(server, ledger, estate, data)
                assert server.stop() == 0, server.output()
        with running_server(*FLAGS, data=data) as server:
            delete_all(server, ledger)
            check_blobs_are_gone(ledger, data / "snapshots")
    finally:
        with capsys.disabled():
            print(f"\n{summary(killer, ledger, estate, checked, time.monotonic() - started)}")
    assert killer.in_an_image >= CYCLES // 6, "too few kills hit an image; the test is blind there"
    assert killer.in_a_flush >= CYCLES // 10, "too few kills hit a flush; the test is blind there"
    assert any(bucket.dropped for bucket in estate.buckets), "no bucket was ever dropped; the test is blind there"


def summary(killer: Killer, ledger: Ledger, estate: Estate, checked: Counter[str], seconds: float) -> str:
    return (
        f"{killer.kills} kills in {seconds:.0f} s (seed {SEED}): {killer.in_an_image} during an image, "
        f"{killer.in_a_spare} without a whole spare, {killer.in_an_upload} during an upload, "
        f"{killer.in_a_flush} during a flush, {checked['torn']} with a torn end; {checked['images']} images were "
        "finished.\n"
        f"{ledger.appends_acknowledged} appends were acknowledged; {checked['appends']} of them and {checked['reads']} "
        f"reads were checked where their streams still lived, {checked['bytes'] / 1e6:.0f} MB in all.\n"
        f"{ledger.snapshots_acknowledged} snapshots were acknowledged; {checked['snapshots']} were compared, and "
        f"{checked['trimmed']} streams that begin later than at 0. {sum(bucket.opened for bucket in estate.buckets)} "
        f"buckets were opened and {sum(bucket.dropped for bucket in estate.buckets)} dropped; {checked['listed']} "
        f"streams were found listed in {checked['buckets']}."
    )
