"""How large row groups should be: `python -m benchmarks.row_groups [MIB ...]`, by default 1, 4 and 8.

Writes the same segments with each size, then measures what the server does for a GET of one small cold stream (read one
row group from the store, verify and decode it; the footer is cached) on a folder and on S3, and Spark's own scans of
everything and of two columns. Rounds are interleaved. S3 is the server of the tests, on this machine.
"""

import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.spark_scenes import Stopwatch
from headwater.lake.format import GROUP_BYTES, GROUP_ROWS, new_segment_id, segment_key
from headwater.lake.segments import writer
from headwater.lake.segments.reader import SERVED, Footer, Group, Read, read_footer, read_group, read_groups
from headwater.lake.segments.writer import SegmentWriter, Written
from headwater.load.loads import percentiles
from headwater.protocol import message_ends
from headwater.spark.session import session
from headwater.storage.opening import open_store
from headwater.storage.store import Store
from headwater.streams.hot import Hot
from headwater.streams.segments import Extent, Rows
from headwater.testing.s3_server import S3NotStarted, running_s3

SEGMENTS = 4
STREAMS = 8_000
"""In each segment: 4 KB each, 32 MB together."""
MESSAGES = 20
GETS = 400
ROUNDS = 5
SEED = 7
SCANS = {"everything": None, "two columns": ["position", "committed_at"]}


class Stored(NamedTuple):
    """A segment in the stores, with its parsed footer."""

    key: str
    footer: Footer
    lives: list[Rows]


def written(number: int, group_mib: int) -> Written:
    """A segment of small streams; half of every message is compressible."""
    chance = random.Random(number)
    with patch.multiple(writer, GROUP_BYTES=group_mib * GROUP_BYTES, GROUP_ROWS=group_mib * GROUP_ROWS):
        segment = SegmentWriter(new_segment_id(0, f"{number}{group_mib}"), number * STREAMS, (number + 1) * STREAMS - 1)
        for stream in range(STREAMS):
            at = number * STREAMS + stream
            messages = [b'{"id":%d,"note":"%s"}' % (at, chance.randbytes(90).hex().encode()) for _ in range(MESSAGES)]
            ends = message_ends.pack([sum(map(len, messages[: index + 1])) for index in range(MESSAGES)])
            hot = Hot(0, b"".join(messages), ends, 0, at, 10**15 + at, None)
            segment.add(f"team/s{at:08}", at + 1, "application/json", [hot])
        return segment.finish()


def stored(stores: Sequence[Store], group_mib: int) -> Iterator[Stored]:
    for number in range(SEGMENTS):
        data, segment, lives = written(number, group_mib)
        key = segment_key(group_mib, segment.first_position, segment.last_position, segment.id)
        for store in stores:
            store.create(key, data)
        yield Stored(key, read_footer(partial(stores[0].read, key), segment), lives)


def get(store: Store, one: Stored, rows: Rows) -> int:
    """Read one stream as the server does when it has nothing cached but the footer; the bytes that were read."""
    [piece] = one.footer.locate(Extent(0, rows.row, rows.rows, rows.start, rows.end, rows.record), rows.start, rows.end)
    read: Read = partial(store.read, one.key)
    Group(one.footer.segment.id, read_group(read, one.footer, piece.group, SERVED)).run(piece.row, piece.rows)
    return one.footer.groups[piece.group].size


def measure_gets(name: str, store: Store, sizes: dict[int, list[Stored]]) -> None:
    chance, times, read = random.Random(SEED), {size: list[int]() for size in sizes}, dict.fromkeys(sizes, 0)
    cpu = dict.fromkeys(sizes, 0.0)
    for _ in range(GETS):
        segment, life = chance.randrange(SEGMENTS), chance.randrange(STREAMS)
        for size, segments in sizes.items():
            began, cpu_began = time.perf_counter_ns(), time.process_time()
            read[size] += get(store, segments[segment], segments[segment].lives[life])
            times[size].append((time.perf_counter_ns() - began) // 1000)
            cpu[size] += time.process_time() - cpu_began
    for size, latencies in times.items():
        found = percentiles(latencies)
        print(
            f"| {size} MiB | GET, {name} | p50 {found['p50'] / 1e3:.1f} ms, p99 {found['p99'] / 1e3:.1f} ms, "
            f"{cpu[size] / GETS * 1e3:.1f} ms of CPU, {read[size] / GETS / 1e6:.2f} MB read |",
            flush=True,
        )


def measure_scans(spark: SparkSession, folder: Store, sizes: dict[int, list[Stored]]) -> None:
    samples: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for turn in range(-1, ROUNDS):
        for size, segments in sizes.items():
            files = [f"{folder.url}/{one.key}" for one in segments]
            for scan, columns in SCANS.items():
                rows = spark.read.parquet(*files)
                rows = rows.select(*columns) if columns else rows
                watch = Stopwatch()
                rows.write.format("noop").mode("overwrite").save()
                if turn >= 0:
                    samples.setdefault((size, f"Spark, {scan}"), []).append(watch.stop().times)
                began, cpu_began = time.perf_counter(), time.process_time()
                decode(folder, segments, columns)
                if turn >= 0:
                    took = time.perf_counter() - began, time.process_time() - cpu_began
                    samples.setdefault((size, f"a task's decoding, {scan}"), []).append(took)
    for (size, scan), taken in samples.items():
        seconds, cpu_seconds = (statistics.median(one) for one in zip(*taken, strict=True))
        print(f"| {size} MiB | {scan} | {seconds:.2f} s, {cpu_seconds:.2f} s of CPU |", flush=True)


def decode(store: Store, segments: Sequence[Stored], columns: list[str] | None) -> None:
    """Decode everything as the tasks of `format("headwater")` do, about 8 MiB at a time."""
    for one in segments:
        groups = range(len(one.footer.groups))
        each = max(1, 8 * len(groups) * GROUP_BYTES // one.footer.segment.payload_bytes)
        for first in range(0, len(groups), each):
            table: pa.Table = read_groups(
                partial(store.read, one.key), one.footer, groups[first : first + each], columns
            )
            assert len(table)


def main(*given: str) -> None:
    sizes = [int(size) for size in given] or [1, 4, 8]
    with ExitStack() as stack:
        folder = open_store(stack.enter_context(tempfile.TemporaryDirectory()))
        stores = {"folder": folder}
        try:
            s3 = stack.enter_context(running_s3())
            stack.enter_context(patch.dict(os.environ, s3.environment))
            stores["S3"] = open_store(f"s3://{s3.bucket}/lake")
        except S3NotStarted as missing:
            print(f"S3 is not measured: {missing}")
        lakes = {size: list(stored(list(stores.values()), size)) for size in sizes}
        print(f"{SEGMENTS} segments of {STREAMS:,} streams of {MESSAGES} messages; load {os.getloadavg()[0]:.1f}")
        for size, segments in lakes.items():
            footer, segment = segments[0].footer, segments[0].footer.segment
            shape = f"{len(footer.groups)} row groups, {segment.size / 1e6:.2f} MB, footer {segment.footer_bytes:,} B"
            print(f"| {size} MiB | a segment | {shape} |")
        for name, store in stores.items():
            measure_gets(name, store, lakes)
        spark = session("row groups", conf={"spark.driver.memory": "2g"})
        try:
            measure_scans(spark, folder, lakes)
        finally:
            spark.stop()
        print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
