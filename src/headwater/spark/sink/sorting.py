"""External merge sort: rows by stream and order columns, with bounded memory.

Rows are collected until they fill a run, sorted, and spilled to an unnamed file, which disappears with the process
however that ends. Finally the runs are merged. Rows with equal keys keep the order in which they arrived, so that the
result depends neither on the size of the batches nor on where a run was spilled.
"""

import math
import mmap
import os
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

RUN_BYTES = 128 * 1024 * 1024
"""Rows to hold before spilling them. While it sorts them, a worker needs about three times as much memory."""
BLOCK_BYTES = 4 * 1024 * 1024
"""The approximate size of a block of sorted rows, from which a request is made."""
MERGE_BYTES = 64 * 1024 * 1024
"""The approximate memory for merging, divided among all runs; each run gets at least MERGE_BLOCK_BYTES_MIN."""
MERGE_BLOCK_BYTES_MIN = 64 * 1024

STREAM = "stream"


class Sorter:
    """Takes rows in any order and returns them by stream, and within a stream by the order columns."""

    def __init__(
        self, order: Sequence[str] = (), *, run_bytes: int = RUN_BYTES, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self._order = tuple(order)
        self._run_bytes, self._block_bytes = run_bytes, block_bytes
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._spilled: list[IO[bytes]] = []

    def __enter__(self) -> "Sorter":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._spilled:
            file.close()

    @property
    def spills(self) -> int:
        return len(self._spilled)

    @property
    def empty(self) -> bool:
        """Whether no row was added."""
        return not self._held and not self._spilled

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; they have a column `stream` and the order columns."""
        if not len(batch):
            return
        if batch.nbytes > self._run_bytes and len(batch) > 1:
            half = len(batch) // 2
            self.add(batch.slice(0, half))
            self.add(batch.slice(half))
            return
        self._held.append(batch)
        self._held_bytes += batch.nbytes
        if self._held_bytes >= self._run_bytes:
            self._spill()

    def blocks(self) -> Iterator[pa.RecordBatch]:
        """All rows, sorted, one block at a time. Can be called once."""
        if not self._spilled:
            yield from self._take_held(self._block_bytes)
            return
        if self._held:
            self._spill()
        yield from merge(self._spilled, self._order)

    def _take_held(self, block_bytes: int) -> Iterator[pa.RecordBatch]:
        if not self._held:
            return
        rows = _joined(self._held)
        self._held, self._held_bytes = [], 0
        yield from sorted_blocks(rows, self._order, block_bytes)

    def _spill(self) -> None:
        file = tempfile.TemporaryFile(dir=_local_folder())  # noqa: SIM115 - read again when the runs are merged
        self._spilled.append(file)
        with pa.ipc.new_file(file, self._held[0].schema) as writer:
            for block in self._take_held(MERGE_BLOCK_BYTES_MIN):
                writer.write_batch(block)
        file.flush()


def sorted_blocks(rows: pa.RecordBatch, order: Sequence[str], block_bytes: int) -> Iterator[pa.RecordBatch]:
    """Rows by stream and order, in blocks of approximately the given size."""
    order_indices = _order_indices(rows, order)
    size = max(1, block_bytes * len(rows) // max(rows.nbytes, 1))
    for at in range(0, len(rows), size):
        yield rows.slice(at, size) if order_indices is None else rows.take(order_indices.slice(at, size))


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    # One array per column: taking rows from a chunked column would join its chunks each time.
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


def _order_indices(rows: pa.RecordBatch, order: Sequence[str]) -> pa.Array | None:
    """The row for each place in the sorted order; None if the rows are sorted already."""
    ranks = _ranks(rows[STREAM])
    if not order:
        if np.all(ranks[:-1] <= ranks[1:]):
            return None
        return pc.sort_indices(pa.array(ranks))
    keys = {name: rows[name] for name in order}
    by = [("", "ascending"), *((name, "ascending") for name in order)]
    return pc.sort_indices(pa.table({"": ranks, **keys}), sort_keys=by)


def _ranks(names: pa.Array) -> "np.ndarray[Any, np.dtype[np.int32]]":
    """Numbers that sort like the names; comparing them is much cheaper than comparing names."""
    encoded = names.dictionary_encode()
    by_name = pc.sort_indices(encoded.dictionary).to_numpy()
    ranks = np.empty(len(by_name), np.int32)
    ranks[by_name] = np.arange(len(by_name), dtype=np.int32)
    found: np.ndarray[Any, np.dtype[np.int32]] = ranks[encoded.indices.to_numpy()]
    return found


def merge(runs: Sequence[IO[bytes]], order: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of all runs, sorted; among rows with equal keys, those of an earlier run come first."""
    block_bytes = max(MERGE_BYTES // len(runs), MERGE_BLOCK_BYTES_MIN)
    cursors = [_RunCursor(number, run, order, block_bytes) for number, run in enumerate(runs)]
    while cursors := [cursor for cursor in cursors if cursor.load()]:
        # Rows up to the smallest of the last loaded keys are final: no run can still load anything before that key.
        until = min(cursor.last_key() for cursor in cursors)
        final = [part for cursor in cursors if len(part := cursor.take(until))]
        yield from sorted_blocks(_joined(final), order, BLOCK_BYTES)


class _RunCursor:
    """The next rows of one run, loaded into memory."""

    def __init__(self, number: int, run: IO[bytes], order: Sequence[str], block_bytes: int) -> None:
        self._number, self._order = number, order
        self._block_bytes = block_bytes
        self._reader = pa.ipc.open_file(pa.py_buffer(mmap.mmap(run.fileno(), 0, access=mmap.ACCESS_READ)))
        self._next = 0
        self._rows: pa.RecordBatch | None = None

    def load(self) -> bool:
        """Load rows if none are left in memory; whether there are any."""
        if self._rows is None or not len(self._rows):
            found, size = [], 0
            while self._next < self._reader.num_record_batches and size < self._block_bytes:
                found.append(self._reader.get_batch(self._next))
                size += found[-1].nbytes
                self._next += 1
            self._rows = _joined(found) if found else None
        return self._rows is not None

    def last_key(self) -> tuple[Any, ...]:
        assert self._rows is not None
        return self._key(len(self._rows) - 1)

    def take(self, until: tuple[Any, ...]) -> pa.RecordBatch:
        """The rows up to and including a key."""
        assert self._rows is not None
        count = bisect_right(range(len(self._rows)), until, key=self._key)
        taken, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        return taken

    def _key(self, at: int) -> tuple[Any, ...]:
        assert self._rows is not None
        return (*(_comparable(self._rows[name][at]) for name in (STREAM, *self._order)), self._number)


def _comparable(value: pa.Scalar) -> tuple[Any, ...]:
    """A key that compares like Arrow sorts the value: numbers, then NaN, then nulls."""
    if not value.is_valid:
        return (2,)
    if isinstance(value, pa.TimestampScalar | pa.Date32Scalar):
        # Python compares times in one zone by wall-clock time, which repeats when clocks are set back. It also has no
        # years before 1 or after 9999.
        return (0, value.value)
    if isinstance(value, pa.BinaryScalar):
        # Strings too: those from Spark need not be valid UTF-8.
        return (0, value.as_buffer().to_pybytes())
    plain = value.as_py()
    return (1,) if isinstance(plain, float) and math.isnan(plain) else (0, plain)


def _local_folder() -> str | None:
    """The folder that Spark is configured to spill to."""
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return folder if folder and Path(folder).is_dir() else None
