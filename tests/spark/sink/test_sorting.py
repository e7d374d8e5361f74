"""Rows are sorted, and the result depends neither on batches nor on spills."""

import math
import os
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.spark.sink.sorting import Sorter

NUMBERS = st.none() | st.integers(0, 5)
FLOATS = st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")])
TEXTS = st.none() | st.sampled_from(["", "a", "B", "é", "\U0001f30a", "￿"])
BYTES = st.none() | st.binary(max_size=2)
FLAGS = st.none() | st.booleans()
DECIMALS = st.none() | st.integers(-300, 300).map(lambda cents: Decimal(cents) / 100)
DAYS = st.none() | st.dates()
TIMES = st.none() | st.datetimes(timezones=st.just(UTC))


def keyed(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[str, Any]]]:
    return st.lists(st.tuples(st.sampled_from(["a", "b", "é", "￿", "\U0001f30a"]), keys), max_size=50)


def batches(rows: list[tuple[str, Any]], kind: pa.DataType, sizes: list[int]) -> list[pa.RecordBatch]:
    """Rows numbered by arrival, in batches of these sizes, used in rotation."""
    names, keys = ([row[at] for row in rows] for at in (0, 1))
    columns = [pa.array(names, pa.string()), pa.array(keys, kind), pa.array(range(len(rows)), pa.int64())]
    whole = pa.record_batch(columns, names=["stream", "key", "arrival"])
    found: list[pa.RecordBatch] = []
    at = 0
    while at < len(rows):
        size = sizes[len(found) % len(sizes)]
        found.append(whole.slice(at, size))
        at += size
    return found


def arrivals(given_batches: list[pa.RecordBatch], order: tuple[str, ...], run_bytes: int) -> list[int]:
    with Sorter(order, run_bytes=run_bytes, block_bytes=64) as sorter:
        for batch in given_batches:
            sorter.add(batch)
        return [number for block in sorter.blocks() for number in block["arrival"].to_pylist()]


def expected(rows: list[tuple[str, Any]], *, by_key: bool) -> list[int]:
    def rank(at: int) -> tuple[Any, ...]:
        name, key = rows[at]
        if not by_key or key is None:
            return (name, by_key * 2)
        return (name, 1) if isinstance(key, float) and math.isnan(key) else (name, 0, key)

    return sorted(range(len(rows)), key=rank)


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=5)
RUN_BYTES = st.sampled_from([1, 100, 400, 1_000_000])


@settings(deadline=None)
@given(keyed(NUMBERS), SIZES, RUN_BYTES)
def test_without_an_order_rows_keep_the_order_of_arrival(rows: list[Any], sizes: list[int], run_bytes: int) -> None:
    assert arrivals(batches(rows, pa.int64(), sizes), (), run_bytes) == expected(rows, by_key=False)


@pytest.mark.parametrize(
    "keys, kind",
    [
        (NUMBERS, pa.int64()),
        (FLOATS, pa.float64()),
        (DECIMALS, pa.decimal128(10, 2)),
        (TEXTS, pa.string()),
        (BYTES, pa.binary()),
        (FLAGS, pa.bool_()),
        (DAYS, pa.date32()),
        (TIMES, pa.timestamp("us", tz="UTC")),
        (FLOATS, pa.float32()),
    ],
    ids=["whole numbers", "fractions", "decimals", "texts", "bytes", "flags", "days", "times", "short fractions"],
)
def test_equal_rows_keep_the_order_of_arrival_wherever_runs_were_spilled(
    keys: st.SearchStrategy[Any], kind: pa.DataType
) -> None:
    @settings(deadline=None, max_examples=40)
    @given(keyed(keys), SIZES, RUN_BYTES)
    def check(rows: list[Any], sizes: list[int], run_bytes: int) -> None:
        assert arrivals(batches(rows, kind, sizes), ("key",), run_bytes) == expected(rows, by_key=True)

    check()


def test_the_hour_that_repeats_when_clocks_are_set_back_sorts_as_two_hours() -> None:
    five = datetime(2026, 11, 1, 5, tzinfo=UTC)
    # In New York this is one o'clock, and one hour later it is one o'clock again.
    rows = [("a", five + timedelta(minutes=minutes)) for minutes in (70, 30, 10, 80, 125, -5)]
    given_batches = batches(rows, pa.timestamp("us", tz="America/New_York"), [1])
    assert arrivals(given_batches, ("key",), 1_000_000) == [5, 2, 1, 0, 3, 4]
    assert arrivals(given_batches, ("key",), 1) == [5, 2, 1, 0, 3, 4]


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([2, None, -(10**17), 10**18, 1], pa.int64()).cast(pa.timestamp("us", tz="America/New_York")),
        pa.array([2, None, -(10**17), 10**18, 1], pa.int64()).cast(pa.timestamp("us")),
        pa.array([2, None, -(10**6), 10**7, 1], pa.int32()).cast(pa.date32()),
        pa.array([b"b", None, b"\x80", b"\xff", b"\xc3"], pa.binary()).view(pa.string()),
    ],
    ids=["times", "times without a zone", "days", "texts that are not UTF-8"],
)
def test_values_that_python_cannot_hold_are_ordered_too(keys: pa.Array) -> None:
    rows = pa.record_batch({"stream": ["a"] * 5, "key": keys, "arrival": range(5)})
    at_once = arrivals([rows], ("key",), 1_000_000)
    assert at_once[-1] == 1 and sorted(at_once) == list(range(5))
    assert arrivals([rows.slice(at, 1) for at in range(5)], ("key",), 1) == at_once


def test_rows_are_ordered_by_several_columns() -> None:
    rows = pa.record_batch({"stream": ["a"] * 4, "day": [2, 1, 2, 1], "key": ["x", "y", "w", "x"], "arrival": range(4)})
    assert arrivals([rows], ("day", "key"), 1_000_000) == [3, 1, 2, 0]
    assert arrivals([rows.slice(at, 1) for at in range(4)], ("day", "key"), 1) == [3, 1, 2, 0]


def open_in(folder: Path) -> int:
    files = [file.readlink() for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    return [file.parent for file in files].count(folder)


def test_runs_are_spilled_to_unnamed_files_in_the_local_folder_of_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    some = batches([("b", 1), ("a", 2), ("a", 3)], pa.int64(), [1])
    with Sorter(("key",), run_bytes=1) as sorter:
        for batch in some:
            sorter.add(batch)
        assert sorter.spills == 3
        assert (open_in(tmp_path), os.listdir(tmp_path)) == (3, [])
        assert [number for block in sorter.blocks() for number in block["arrival"].to_pylist()] == [1, 2, 0]
    assert open_in(tmp_path) == 0


def test_a_batch_larger_than_a_run_is_spilled_in_parts() -> None:
    (batch,) = batches([("a", number) for number in range(1000)], pa.int64(), [1000])
    with Sorter(("key",), run_bytes=batch.nbytes // 8) as sorter:
        sorter.add(batch)
        assert sorter.spills >= 8
        assert sum(len(block) for block in sorter.blocks()) == 1000


def test_no_rows_make_no_blocks() -> None:
    with Sorter() as sorter:
        sorter.add(batches([("a", 1)], pa.int64(), [1])[0].slice(0, 0))
        assert list(sorter.blocks()) == []
