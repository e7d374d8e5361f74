"""The lake's tables at scale, by simulation: `python -m benchmarks.lake_tables [SEGMENTS] [DEAD_STREAMS] [SHAPE]`.

Lists this many segments with this many deleted streams in a temporary folder, then measures what one flush costs beside
them, in its thread and on the event loop, what a driver needs to plan a query of one stream, and how long a restarted
server takes to continue. No segment is written. With the shape `apart` no two segments have names in common, so most
manifests are skipped; with `groups` every 8 segments together have all names, as compaction leaves them where all
streams are written to all the time.
"""

import asyncio
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headwater.lake.catalog import CatalogReader
from headwater.lake.iceberg.messages import Heading
from headwater.lake.iceberg.tables import Changes, LakeTables
from headwater.lake.scanning import RowFilter, segments_for
from headwater.log.memory import MemoryLog
from headwater.node.clock import Clock
from headwater.node.committer import Done
from headwater.node.lake.cataloger import Cataloger
from headwater.node.lake.parts import LakeParts
from headwater.storage.folder import FolderStore
from headwater.storage.memory import MemoryStore
from headwater.storage.store import Store
from headwater.streams.cold import ALL, Held, Tombstone
from headwater.streams.commands import Command
from headwater.streams.segments import DeadRows, Segment
from headwater.streams.state import State

ROWS = 30_000
MIB = 1 << 20


GROUP = 8
TICK_SECONDS = 0.002


def segment(number: int, shape: str) -> Segment:
    """A segment of 50 streams and 32 MiB."""
    place = number if shape == "apart" else number % GROUP * 1_000_000
    first, last = f"s{place * 50:010}", f"s{place * 50 + (49 if shape == 'apart' else 49_999_999):010}"
    positions = number * ROWS, number * ROWS + ROWS - 1
    return Segment(
        f"19a89f62001{number:012x}",
        *positions,
        10**15 + number,
        10**15 + number + 1,
        f"team/{first}",
        f"team/{last}",
        ROWS,
        32 * MIB,
        11 * MIB,
        50_000,
        number,
        first,
        last,
        number * 50 + 1,
        number * 50 + 50,
        MIB,
    )


def history(segments: int, dead: int, shape: str) -> Changes:
    """All segments, and as many dead streams, spread over them."""
    tombstones: list[tuple[int, Tombstone | None]] = []
    for number in range(dead):
        at, slot = number % segments, number // segments
        rows = DeadRows(at, (slot % 50) * 600, 10)
        tombstones.append((number + 1, Tombstone(f"team/dead{number}", ALL, (rows,))))
    return Changes([(number, Held(segment(number, shape), ROWS)) for number in range(segments)], tombstones, [])


class Timed:
    """Prints how long a block took, and how much of that this thread worked."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> "Timed":
        self._started, self._worked = time.perf_counter(), time.thread_time()
        return self

    def __exit__(self, *_: object) -> None:
        took, worked = time.perf_counter() - self._started, time.thread_time() - self._worked
        print(f"{self.name}: {took:.3f} s, of which {worked:.3f} s of work", flush=True)


def tables_of(store: Store) -> LakeTables:
    return LakeTables(store, 0, "bench", history_seconds=86_400, now_ms=lambda: Clock().now() // 1000)


def commit(store: Store, segments: int, dead: int, shape: str) -> None:
    """List everything, then add flushes and deletions one by one."""
    tables = tables_of(store)
    with Timed(f"taking over {segments} segments and {dead} dead streams"):
        tables.update(history(segments, dead, shape))
    with Timed("the first commit, of everything"):
        tables.commit(Heading(segments * ROWS, segments * ROWS, 0, 10**15), ())
    for extra in range(5):
        number, position = segments + extra, (segments + extra + 1) * ROWS
        gone = Tombstone("team/gone", ALL, (DeadRows(extra, 29_000, 5),))
        with Timed("a commit of one flush and one deleted stream"):
            tables.update(Changes([(number, Held(segment(number, shape), ROWS))], [(dead + extra + 1, gone)], []))
            tables.commit(Heading(position, position, 0, 10**15), ())


def submit(command: Command, done: Done) -> None:
    raise AssertionError("A cataloger changes no state.")


async def watch_loop(store: Store, segments: int, dead: int, shape: str) -> None:
    """How long a commit keeps the event loop: the CPU time of its thread, and the longest pause."""
    state, changes = State("loop"), history(segments, dead, shape)
    for number, held in changes.segments:
        assert held is not None
        state.cold.keep(number, held)
    for incarnation, tombstone in changes.tombstones:
        assert tombstone is not None
        state.cold.hide(tombstone.name, incarnation, tombstone.below, tombstone.dead)
    state.position = state.cold.changed_at = state.cold.flushed = segments * ROWS
    log = MemoryLog(state.log_id)
    cataloger = Cataloger(LakeParts(0, state, store, submit, Clock().now, Counter(), log))
    await cataloger.write()
    for extra in range(5):
        number = segments + extra
        state.cold.keep(number, Held(segment(number, shape), ROWS))
        state.cold.hide("team/gone", dead + extra + 1, ALL, (DeadRows(extra, 29_000, 5),))
        state.position = state.cold.changed_at = state.cold.flushed = (number + 1) * ROWS
        before, _ = await paused(asyncio.sleep(0.3))
        during, worked = await paused(cataloger.write())
        print(f"a commit seen from the loop: {worked * 1e3:.1f} ms of its CPU time;", end=" ")
        print(f"longest pause {during * 1e3:.1f} ms, {before * 1e3:.1f} ms while nothing happens", flush=True)
    await cataloger.stop()


async def paused(work: Coroutine[Any, Any, None]) -> tuple[float, float]:
    """The longest pause of the event loop during some work, and the CPU time of its thread; in seconds."""
    task, longest, worked = asyncio.ensure_future(work), 0.0, time.thread_time()
    while not task.done():
        due = time.perf_counter() + TICK_SECONDS
        await asyncio.sleep(TICK_SECONDS)
        longest = max(longest, time.perf_counter() - due)
    await task
    return longest, time.thread_time() - worked


def restart(store: Store) -> None:
    """What a restarted server does."""
    with Timed("a restarted server finds what is listed"):
        tables_of(store).load()


def plan(store: Store) -> None:
    """What a driver does for a query of one stream, in a process of its own."""
    before, before_mib = resource.getrusage(resource.RUSAGE_SELF), peak_mib()
    with Timed("a driver plans a query of one stream"):
        reader = CatalogReader(store)
        assert reader.heading() is not None
        wanted = segments_for(RowFilter(names=frozenset(["team/s0000000777"])))
        found = reader.matching(wanted).segments
    after = resource.getrusage(resource.RUSAGE_SELF)
    worked = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{len(found)} segments may have it; {worked:.3f} s of CPU time in all threads;", end=" ")
    print(f"peak memory {before_mib} MiB before and {peak_mib()} MiB after it", flush=True)


def peak_mib() -> int:
    """The most memory that this process has had; `getrusage` would include its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def main(segments: str = "33000", dead: str = "1000000", shape: str = "apart") -> None:
    with TemporaryDirectory() as folder:
        store = FolderStore(Path(folder))
        commit(store, int(segments), int(dead), shape)
        restart(store)
        asyncio.run(watch_loop(MemoryStore(), int(segments), int(dead), shape))
        subprocess.run([sys.executable, "-m", "benchmarks.lake_tables", "plan", folder], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["plan"]:
        plan(FolderStore(Path(sys.argv[2])))
    else:
        main(*sys.argv[1:])
