"""A cluster under torture: faults of every kind while clients write and read, and then everything is compared."""

import asyncio
import os
import random
import statistics
import time
from collections import defaultdict
from pathlib import Path

import httpx2
import pytest

from .clients import TortureClients
from .faults import FAULTS
from .ledger import Ledger
from .nodes import TorturedCluster, tortured

pytestmark = pytest.mark.torture

FAULTS_TO_DO = int(os.environ.get("TORTURE_FAULTS", "10"))
SEED = int(os.environ.get("TORTURE_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
CHOSEN = [fault for fault in FAULTS if fault.__name__ in os.environ.get("TORTURE_ONLY", "").split(",")] or FAULTS
"""The kinds of faults, by their names if only some are wanted."""
PRODUCERS, PLAIN = 12, 6
READY_SECONDS = 90.0
QUIET_SECONDS = 1.0
"""How long the cluster runs whole between two faults, and before the first."""


async def until_ready(cluster: TorturedCluster) -> None:
    """Wait until every node serves again, by itself."""
    async with httpx2.AsyncClient(timeout=3) as http:
        deadline = time.monotonic() + READY_SECONDS
        for node in cluster.nodes:
            while True:
                try:
                    if (await http.get(f"{node.url}/readyz")).status_code == 200:
                        break
                except httpx2.TransportError:
                    pass
                assert node.runs, f"{node.name} ended by itself:\n{node.output[-3000:]}"
                assert time.monotonic() < deadline, f"{node.name} is not ready again:\n{node.output[-3000:]}"
                await asyncio.sleep(0.1)


async def messages(http: httpx2.AsyncClient, url: str, stream: str) -> list[bytes]:
    """All messages of a stream, as one node has them."""
    found, offset = b"", "-1"
    while True:
        answer = await http.get(f"{url}/v1/stream/{stream}", params={"offset": offset})
        assert answer.status_code == 200, f"{url} {stream}: {answer.status_code} {answer.text[:300]}"
        found, offset = found + answer.content, answer.headers["Stream-Next-Offset"]
        if "Stream-Up-To-Date" in answer.headers:
            return [message + b";" for message in found.split(b";")[:-1]]


async def compare(cluster: TorturedCluster, ledger: Ledger) -> None:
    """Every node has the same messages, and they are those of the ledger."""
    async with httpx2.AsyncClient(timeout=30) as http:
        for stream in ledger.streams:
            replicas = [await messages(http, url, stream) for url in cluster.urls]
            if any(replica != replicas[0] for replica in replicas):
                ledger.problems.append(f"{stream}: the nodes differ")
            ledger.compare(stream, replicas[0])


async def torture(folder: Path, faults: int, seed: int) -> tuple[Ledger, dict[str, list[float]]]:
    chance, ledger = random.Random(seed), Ledger()
    gaps: dict[str, list[float]] = defaultdict(list)
    async with tortured(folder) as cluster:
        await until_ready(cluster)
        clients = TortureClients(cluster.urls, ledger, seed)
        writing = asyncio.create_task(clients.run(PRODUCERS, PLAIN))
        await asyncio.sleep(QUIET_SECONDS)
        for number in range(faults):
            fault = CHOSEN[number] if number < len(CHOSEN) else chance.choice(CHOSEN)
            began = time.monotonic()
            await fault(cluster, chance)
            cluster.heal()
            await until_ready(cluster)
            await asyncio.sleep(QUIET_SECONDS)
            gaps[fault.__name__].append(ledger.longest_gap(began, time.monotonic()))
            assert not writing.done(), writing.result()
        clients.stopping = True
        await writing
        await until_ready(cluster)
        await compare(cluster, ledger)
    return ledger, gaps


def test_nothing_is_lost_doubled_or_stale_whatever_fails(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    ledger, gaps = asyncio.run(torture(tmp_path, FAULTS_TO_DO, SEED))
    print(f"{FAULTS_TO_DO} faults, {ledger.acknowledged} acknowledged, {ledger.fresh_reads} reads on other nodes")
    for name, seconds in gaps.items():
        print(f"{name}: without an acknowledgement {statistics.median(seconds):.1f} s, at most {max(seconds):.1f} s")
    assert not ledger.stale, f"seed {SEED}: {len(ledger.stale)} stale reads: {ledger.stale[:5]}"
    assert not ledger.problems, f"seed {SEED}: {len(ledger.problems)} problems: {ledger.problems[:10]}"
    assert ledger.acknowledged > 50 * FAULTS_TO_DO
    assert ledger.fresh_reads > 0
