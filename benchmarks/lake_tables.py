"""The lake's tables at scale, by simulation: `python -m benchmarks.lake_tables [SEGMENTS] [DEAD_STREAMS] [FOLDER]`.

Lists this many segments with this many deleted streams, in memory or in a folder, then measures what one flush costs
beside them, what a driver needs to plan a query of one stream, and how long a restarted server takes to continue. No
segment is written.
"""

import resource
import sys
import time
from pathlib import Path

from headwater.lake.catalog import read_catalog
from headwater.lake.iceberg.messages import Heading
from headwater.lake.iceberg.tables import Changes, LakeTables
from headwater.lake.scanning import RowFilter, live_rows
from headwater.node.lake.cataloger import wall_ms
from headwater.storage.folder import FolderStore
from headwater.storage.memory import MemoryStore
from headwater.storage.store import Store
from headwater.streams.cold import ALL, Held, Tombstone
from headwater.streams.segments import DeadRows, Segment

ROWS = 30_000
MIB = 1 << 20


def segment(number: int) -> Segment:
    """A segment of 50 streams and 32 MiB."""
    first, last = f"s{number * 50:010}", f"s{number * 50 + 49:010}"
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


def history(segments: int, dead: int) -> Changes:
    """All segments, and as many dead streams, spread over them."""
    tombstones: list[tuple[int, Tombstone | None]] = []
    for number in range(dead):
        at, slot = number % segments, number // segments
        rows = DeadRows(at, (slot % 50) * 600, 10)
        tombstones.append((number + 1, Tombstone(f"team/dead{number}", ALL, (rows,))))
    return Changes([(number, Held(segment(number), ROWS)) for number in range(segments)], tombstones, [])


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
    return LakeTables(store, 0, "bench", history_seconds=86_400, now_ms=wall_ms)


def commit(store: Store, segments: int, dead: int) -> None:
    """List everything, then add flushes and deletions one by one."""
    tables = tables_of(store)
    with Timed(f"taking over {segments} segments and {dead} dead streams"):
        tables.update(history(segments, dead))
    with Timed("the first commit, of everything"):
        tables.commit(Heading(segments * ROWS, segments * ROWS, 0, 10**15), ())
    for extra in range(5):
        number, position = segments + extra, (segments + extra + 1) * ROWS
        gone = Tombstone("team/gone", ALL, (DeadRows(extra, 29_000, 5),))
        with Timed("a commit of one flush and one deleted stream"):
            tables.update(Changes([(number, Held(segment(number), ROWS))], [(dead + extra + 1, gone)], []))
            tables.commit(Heading(position, position, 0, 10**15), ())


def plan(store: Store) -> None:
    """What a restarted server does, and what a driver does."""
    with Timed("a restarted server finds what is listed"):
        tables_of(store).load()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    with Timed("a driver plans a query of one stream"):
        catalog = read_catalog(store)
        assert catalog is not None
        wanted = RowFilter(names=frozenset(["team/s0000000777"]))
        found = live_rows(catalog, None, (), wanted, inherited=False).segments
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{len(found)} of {len(catalog.segments)} segments; peak memory {before} MiB before and {after} MiB after it")


def main(segments: str = "33000", dead: str = "1000000", folder: str = "") -> None:
    if folder:
        commit(FolderStore(Path(folder)), int(segments), int(dead))
        plan(FolderStore(Path(folder)))
    else:
        store = MemoryStore()
        commit(store, int(segments), int(dead))
        plan(store)


if __name__ == "__main__":
    main(*sys.argv[1:])
