"""A real server under load is killed again and again; nothing that it acknowledged is lost, changed or doubled.

HEADWATER_CRASH_CYCLES says how often, HEADWATER_CRASH_SEED which choices are made; the instants are the machine's own.
"""

import os
import time
from collections import Counter
from pathlib import Path
from random import Random, SystemRandom

import pytest

from headwater.testing import RunningServer, running_server

from .checks import check_all
from .kills import Killer
from .ledger import Kind, Ledger
from .messages import JSON, TEXT
from .writers import Appender, Forker, IdempotentProducer, Janitor, Reader, Writer

pytestmark = pytest.mark.crash

CYCLES = int(os.environ.get("HEADWATER_CRASH_CYCLES", "30"))
SEED = int(os.environ.get("HEADWATER_CRASH_SEED", SystemRandom().randrange(1 << 32)))
LOAD_SECONDS = 1.5
SEGMENT_BYTES = 1 << 20
IMAGE_LOG_BYTES = 500_000
FLAGS = ("--segment-bytes", str(SEGMENT_BYTES), "--image-log-bytes", str(IMAGE_LOG_BYTES))

KINDS = {
    **{f"text-{number}": Kind(TEXT) for number in range(12)},
    **{f"json-{number}": Kind(JSON) for number in range(6)},
    **{f"brief-{number}": Kind(TEXT, ttl_seconds=2) for number in range(3)},
    **{f"lasting-{number}": Kind(JSON, ttl_seconds=3600) for number in range(3)},
    **{f"fork-{number}": Kind(TEXT, source=f"text-{number}") for number in range(6)},
    **{f"fork-of-fork-{number}": Kind(TEXT, source=f"fork-{number}") for number in range(3)},
    "json-fork": Kind(JSON, source="json-0"),
}


def make_writers(ledger: Ledger, random: Random) -> list[Writer]:
    kinds = [Appender] * 3 + [IdempotentProducer] * 3 + [Janitor] * 2 + [Forker, Reader]
    return [kind(f"{kind.__name__}-{number}", ledger, Random(random.random())) for number, kind in enumerate(kinds)]


def run_load(server: RunningServer, writers: list[Writer], killer: Killer) -> None:
    """Have everybody write until the server is killed."""
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


def check_output(server: RunningServer) -> Counter[str]:
    """A server complains of nothing but a torn end."""
    lines = server.output().splitlines()
    complaints = [line for line in lines if any(word in line for word in ("ERROR", "CRITICAL", "Traceback"))]
    assert not complaints, server.output()
    return Counter(torn=sum("torn bytes" in line for line in lines), images=sum("image of" in line for line in lines))


def test_nothing_acknowledged_is_lost_when_a_server_is_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = Random(SEED)
    ledger = Ledger(KINDS)
    writers = make_writers(ledger, random)
    killer = Killer(tmp_path / "data", SEGMENT_BYTES, random)
    checked: Counter[str] = Counter()
    started = time.monotonic()
    try:
        for _ in range(CYCLES):
            with running_server(*FLAGS, data=tmp_path / "data") as server:
                checked += check_all(ledger, server.url)
                run_load(server, writers, killer)
                checked += check_output(server)
        for _ in range(2):
            with running_server(*FLAGS, data=tmp_path / "data") as server:
                checked += check_all(ledger, server.url)
                assert server.stop() == 0, server.output()
    finally:
        with capsys.disabled():
            print(f"\n{summary(killer, ledger, checked, time.monotonic() - started)}")
    assert killer.in_an_image >= CYCLES // 6, "too few kills hit an image; the test is blind there"


def summary(killer: Killer, ledger: Ledger, checked: Counter[str], seconds: float) -> str:
    return (
        f"{killer.kills} kills in {seconds:.0f} s (seed {SEED}): {killer.in_an_image} during an image, "
        f"{killer.in_a_spare} without a whole spare, {checked['torn']} with a torn end; "
        f"{checked['images']} images were finished.\n"
        f"{ledger.appends_acknowledged} appends were acknowledged; {checked['appends']} of them and {checked['reads']} "
        f"reads were checked where their streams still lived, {checked['bytes'] / 1e6:.0f} MB in all."
    )
