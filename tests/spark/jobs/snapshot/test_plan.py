"""The plan of a snapshot job: which streams are folded, from where to where, and in which bins."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.spark.jobs.snapshot.plan import PENDING, Pending, choose, packed, pending_rows, split

DESCRIBED = pa.schema(
    [
        ("stream", pa.string()),
        ("incarnation", pa.int64()),
        ("start", pa.int64()),
        ("tail", pa.int64()),
        ("content_type", pa.string()),
        ("snapshot", pa.int64()),
    ]
)


def described(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], DESCRIBED)


def test_streams_with_enough_new_history_are_chosen() -> None:
    page = described(
        ("team/new", 1, 0, 100, "application/json", None),
        ("team/short", 2, 0, 99, "application/json", None),
        ("team/folded", 3, 0, 500, "application/json; charset=utf-8", 400),
        ("team/fresh", 4, 200, 450, "application/json", 400),
        ("team/bytes", 5, 0, 500, "text/plain", None),
        ("team/a/b", 6, 0, 500, "application/json", None),
        ("team/streams", 7, 0, 500, "application/json", None),
        ("abc/x", 8, 0, 500, "application/json", None),
        ("_default/x", 9, 0, 500, "application/json", None),
    )
    chosen = choose([page, page.slice(0, 0)], 100)
    assert list(pending_rows(chosen.pending)) == [
        Pending("team/new", 1, 0, 100, False),
        Pending("team/folded", 3, 400, 500, True),
        Pending("_default/x", 9, 0, 500, False),
    ]
    assert (chosen.streams, chosen.unchanged, chosen.not_json, chosen.unaddressed) == (9, 2, 1, 3)
    assert (chosen.new_bytes, chosen.retained_bytes) == (700, 100 + 99 + 500 + 250 + 5 * 500)


def test_without_streams_nothing_is_chosen() -> None:
    assert choose([], 1).pending.equals(PENDING.empty_table())
    assert packed(PENDING.empty_table(), 4) == []


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=60), st.integers(1, 8))
def test_bins_hold_every_stream_once_and_in_order(sizes: list[int], bins_min: int) -> None:
    rows = [(f"team/{number:03}", number, 0, size, False) for number, size in enumerate(sizes)]
    pending = pa.table([list(column) for column in zip(*rows, strict=True)], PENDING)
    bins = packed(pending, bins_min)
    assert pa.concat_tables(bins).equals(pending)
    assert all(len(one) for one in bins)


def test_streams_of_one_size_fill_bins_evenly() -> None:
    rows = [(f"team/{number:03}", number, 0, 1000, False) for number in range(100)]
    pending = pa.table([list(column) for column in zip(*rows, strict=True)], PENDING)
    assert [len(one) for one in packed(pending, 4)] == [25] * 4


def test_forks_with_inherited_bytes_to_fold_are_separated_from_other_streams() -> None:
    rows = [("team/plain", 1, 0, 9, False), ("team/fork", 2, 0, 9, False), ("team/beyond", 3, 5, 9, True)]
    pending = pa.table([list(column) for column in zip(*rows, strict=True)], PENDING)
    own, inherited = split(pending, {2: 4, 3: 5, 8: 9})
    assert [one.stream for one in pending_rows(own)] == ["team/plain", "team/beyond"]
    assert [one.stream for one in pending_rows(inherited)] == ["team/fork"]
