"""The table of the streams at scale: `python -m benchmarks.lake_streams [STREAMS]`.

Fills a state with this many streams in 1,000 buckets and writes the table to a temporary folder. It measures the work
of the loop's thread, how long it is at a time between two turns of another task, the work of all threads, and memory.
"""

import asyncio
import gc
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

from headwater.log.memory import MemoryLog
from headwater.node.committer import Done
from headwater.node.lake.lister import Lister
from headwater.node.lake.parts import LakeParts
from headwater.protocol.lifetimes import FOREVER
from headwater.storage.folder import FolderStore
from headwater.streams.commands import Command
from headwater.streams.sorted_names import SortedNames
from headwater.streams.state import State, Stream

PAGE_BYTES = 4096
MIB = 1 << 20
IDLE_SECONDS = 0.0001
"""A turn that took less did nothing."""


def filled(count: int) -> State:
    state = State("bench")
    for number in range(count):
        name, attrs = f"bucket-{number % 1000:04}/stream-{number:08}", b'{"owner":"user-%d"}' % number
        times = 10**15 + number, 10**15 + 2 * number, 0
        state.restore(Stream(name, number, "application/json", FOREVER, *times, number * 7, number, attrs=attrs))
    state.names, state.bucket_names = SortedNames(state.streams), SortedNames(state.lives)
    state.position = count
    gc.collect()
    gc.freeze()
    return state


def memory_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def never(command: Command, done: Done) -> None:
    raise AssertionError("the table is written without a command")


async def measure(state: State, folder: Path) -> None:
    parts = LakeParts(0, state, FolderStore(folder), never, lambda: 10**15, Counter(), MemoryLog(state.log_id))
    lister = Lister(parts)
    ended, before = Event(), memory_bytes()
    peak, stretches = [before], list[float]()

    def watch() -> None:
        while not ended.wait(0.02):
            peak.append(memory_bytes())

    async def take_turns() -> None:
        while not ended.is_set():
            began = time.thread_time()
            await asyncio.sleep(0.0001)
            stretches.append(time.thread_time() - began)

    watching, turns = Thread(target=watch), asyncio.get_running_loop().create_task(take_turns())
    watching.start()
    everything, own = time.process_time(), time.thread_time()
    await lister.write()
    everything, own = time.process_time() - everything, time.thread_time() - own
    ended.set()
    await turns
    watching.join()
    await lister.stop()
    stretches = sorted(one for one in stretches if one > IDLE_SECONDS)
    size = sum(path.stat().st_size for path in folder.glob("streams/data/*"))
    print(f"{len(state.streams):,} streams: {size / MIB:.0f} MiB in {len(list(folder.glob('streams/data/*')))} files")
    print(f"work: {everything:.1f} s, of which the loop's thread {own:.1f} s (this benchmark's own turns included)")
    half, most, last = (stretches[int(len(stretches) * part)] * 1e3 for part in (0.5, 0.99, 0.9999))
    print(f"at a time: 50 % {half:.1f} ms, 99 % {most:.1f} ms, longest {last:.1f} ms")
    print(f"memory: {(max(peak) - before) / MIB:.0f} MiB more than before")


if __name__ == "__main__":
    with TemporaryDirectory(prefix="headwater-bench-") as place:
        asyncio.run(measure(filled(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000), Path(place)))
