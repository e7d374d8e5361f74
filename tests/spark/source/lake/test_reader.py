"""Tasks read every live row once, however the work is cut, and verify everything that they read."""

import pickle

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.lake.format import SCHEMA
from headwater.lake.scanning import EVER, EVERYTHING, RowFilter
from headwater.lake.segments.reader import Footer, Read, SegmentDamaged, read_groups
from headwater.spark.options.source import Selection
from headwater.spark.source.filters import NO_CONDITIONS, Bounds, Conditions
from headwater.spark.source.lake import reader as lake_reader
from headwater.spark.source.lake.plan import LakePartition, LakePlanner, LakeUnusable, row_filter_for
from headwater.spark.source.lake.reader import narrowed
from headwater.streams.commands.streams import Delete

from ....doubles.faulty_store import Fault
from ....node.lake.small_lake import Chance
from .small_lakes import SmallLake, alive, opened, options, rows, small_lake, stored, tables

__all__ = ["small_lake"]

SEEDS = st.integers(0, 2**32)


def planned(
    lake: SmallLake, row_filter: RowFilter = EVERYTHING, conditions: Conditions = NO_CONDITIONS
) -> list[LakePartition]:
    return LakePlanner(options(), lake.store, lake.catalogs()).batch(row_filter, conditions)


def several(lake: SmallLake) -> None:
    """Three buckets and two flushes, with a deleted stream and a trimmed one."""
    for flush in range(2):
        for name in ("a-b/x", "a/x", "a/y", "b/x"):
            lake.append(name, b"%s-%d" % (name.encode(), flush), b"!")
        lake.flush(appends_max=3)
    lake.do(Delete("a/y"))
    lake.trim("a/x", 5, 1)


# -- Which rows --------------------------------------------------------------------------------------------------------


def test_live_rows_are_read_and_dead_ones_are_not(small_lake: SmallLake) -> None:
    several(small_lake)
    found = rows(tables(planned(small_lake)))
    assert found == alive(small_lake) != stored(small_lake)
    assert len(found) == 2 * 4 * 2 - 4 - 1


def test_a_stream_sees_dead_rows_too(small_lake: SmallLake) -> None:
    several(small_lake)
    partitions = LakePlanner(options(), small_lake.store, small_lake.catalogs()).stream(RowFilter())
    assert rows(tables(partitions)) == stored(small_lake)


@settings(deadline=None, max_examples=10)
@given(SEEDS, st.integers(1, 200), st.integers(1, 5))
def test_every_live_row_is_read_once_however_the_work_is_cut(seed: int, partition_bytes: int, parts: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        lake = opened(SmallLake(), patch)
        chance = Chance(lake, seed)
        for _ in range(3):
            for _ in range(chance.random.randint(0, 40)):
                chance.act()
            lake.compact(chance.random.randint(0, 2))
            catalogs, live = lake.catalogs(), alive(lake)
            chosen = options(maxBytesPerPartition=str(partition_bytes), minPartitions=str(parts))
            planner = LakePlanner(chosen, lake.store, catalogs, open_bytes=10, row_bytes=1)
            partitions = planner.batch(RowFilter())
            assert rows(tables(partitions)) == live
            for prefix in ("a", "a/", "a/x", "b/"):
                partitions = planner.batch(RowFilter(prefix=prefix))
                assert rows(tables(partitions)) == [row for row in live if row[0].startswith(prefix)]
            after, up_to = sorted(chance.random.choices(range(lake.state.position + 2), k=2))
            partitions = planner.batch(RowFilter(after=after, up_to=up_to))
            assert rows(tables(partitions)) == [row for row in live if after < row[5] <= up_to]
            names = frozenset(chance.random.choices(["a/x", "a-b/x", "b/y", "zz"], k=2))
            partitions = planner.batch(RowFilter(names=names))
            assert rows(tables(partitions)) == [row for row in live if row[0] in names]


def test_ledgers_of_the_sink_are_left_out_unless_their_bucket_is_asked_for(small_lake: SmallLake) -> None:
    for name in ("_sink/job", "_some/x", "a/x"):
        small_lake.append(name, b"1")
    small_lake.flush()
    for selection, names in (
        (Selection(pattern=".*"), {"_some/x", "a/x"}),
        (Selection(prefix="_s"), {"_some/x"}),
        (Selection(prefix="_sink/"), {"_sink/job"}),
    ):
        row_filter = row_filter_for(selection, None, None)
        found = rows(tables(planned(small_lake, row_filter), selection=selection))
        assert {row[0] for row in found} == names


def test_a_pattern_finds_names_that_match_as_a_whole(small_lake: SmallLake) -> None:
    several(small_lake)
    found = rows(tables(planned(small_lake), selection=Selection(pattern="a.*/x")))
    assert {row[0] for row in found} == {"a-b/x", "a/x"}
    found = rows(tables(planned(small_lake), selection=Selection(pattern="x", pattern_from=2)))
    assert {row[0] for row in found} == {"a/x", "b/x"}


@pytest.mark.parametrize(
    "conditions",
    [
        Conditions(strings=(("bucket", frozenset({"a", "b"})),)),
        Conditions(strings=(("stream", frozenset({"y"})), ("bucket", frozenset({"a"})))),
        Conditions(prefixes=(("stream", "x"),)),
        Conditions(bounds=(("offset", Bounds(1, 6)),)),
        Conditions(bounds=(("position", Bounds(5, 9)),)),
        Conditions(numbers=(("record", frozenset({1, 3})),)),
        Conditions(bounds=(("offset", Bounds(900, EVER)),)),
    ],
)
def test_conditions_are_applied_exactly(small_lake: SmallLake, conditions: Conditions) -> None:
    several(small_lake)
    everything = rows(tables(planned(small_lake)))
    row_filter = row_filter_for(Selection(), None, None, conditions)
    found = rows(tables(planned(small_lake, row_filter, conditions), conditions=conditions))
    columns = ("bucket", "stream", "offset", "record", "position")

    def matches(row: tuple[str, int, int, int, int, int, bytes]) -> bool:
        values = dict(zip(columns, (*row[0].split("/"), row[2], row[4], row[5]), strict=True))
        return (
            all(values[column] in strings for column, strings in conditions.strings)
            and all(str(values[column]).startswith(prefix) for column, prefix in conditions.prefixes)
            and all(low <= int(str(values[column])) <= high for column, (low, high) in conditions.bounds)
            and all(values[column] in numbers for column, numbers in conditions.numbers)
        )

    assert found == [row for row in everything if matches(row)]


def test_row_groups_that_cannot_match_are_not_read(small_lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    large = b"x" * 700_000
    for name in ("a/x", "b/x", "c/x"):
        small_lake.append(name, large)
        small_lake.append(name, large)
    small_lake.flush()
    read: list[int] = []

    def noted(source: Read, footer: Footer, indexes: list[int], columns: list[str]) -> pa.Table:
        read.extend(indexes)
        return read_groups(source, footer, indexes, columns)

    monkeypatch.setattr(lake_reader, "read_groups", noted)
    assert len(rows(tables(planned(small_lake)))) == 6
    groups = len(read)
    assert groups > 2
    for row_filter, conditions in (
        (RowFilter(prefix="b/"), Conditions()),
        (RowFilter(names=frozenset({"b/x"})), Conditions()),
        (RowFilter(), Conditions(strings=(("bucket", frozenset({"b"})),))),
        (RowFilter(up_to=2), Conditions()),
        (RowFilter(), Conditions(bounds=(("offset", Bounds(1, EVER)),))),
    ):
        read.clear()
        found = rows(tables(planned(small_lake, row_filter, conditions), conditions=conditions))
        assert found and len(read) < groups


# -- How they are read -------------------------------------------------------------------------------------------------


def test_only_the_columns_that_are_needed_are_read(small_lake: SmallLake) -> None:
    small_lake.append("a/x", b"one", b"two")
    small_lake.flush()
    for columns in ({"stream"}, {"payload", "offset"}, set(SCHEMA.names)):
        [table] = tables(planned(small_lake), frozenset(columns))
        assert set(table.column_names) == columns
    [table] = tables(planned(small_lake), frozenset())
    assert len(table) == 2
    [table] = tables(planned(small_lake, RowFilter(prefix="a/")), frozenset({"payload"}))
    assert table.column_names == ["payload"], "the whole segment has the prefix"


def test_unselected_payloads_are_not_fetched(small_lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    small_lake.append("a/x", *(bytes([number]) * 50_000 for number in range(10)))
    small_lake.flush()
    partitions = planned(small_lake)
    sizes: list[int] = []
    read = small_lake.store.read

    def noted(key: str, start: int = 0, size: int | None = None) -> bytes:
        data = read(key, start, size)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(small_lake.store, "read", noted)
    whole = list(tables(partitions, frozenset({"offset", "payload"})))
    with_payload = sum(sizes)
    sizes.clear()
    bare = list(tables(partitions, frozenset({"offset"})))
    assert bare[0]["offset"] == whole[0]["offset"]
    assert sum(sizes) < with_payload


def test_conditions_that_a_whole_segment_meets_are_not_checked_row_by_row(small_lake: SmallLake) -> None:
    several(small_lake)
    segment = small_lake.catalog().segments[0].segment
    positions = segment.first_position - 1, segment.last_position
    whole = RowFilter(None, segment.first_name[:1], *positions, segment.first_at, segment.last_at + 1)
    assert narrowed(whole, segment) == RowFilter()
    part = RowFilter(
        prefix="a/x", after=segment.first_position, up_to=segment.last_position - 1, since=segment.first_at + 1
    )
    assert narrowed(part, segment)._replace(until=EVER) == part._replace(until=EVER)


def test_partitions_can_be_pickled(small_lake: SmallLake) -> None:
    several(small_lake)
    partitions = planned(small_lake)
    assert rows(tables(pickle.loads(pickle.dumps(partitions)))) == alive(small_lake)


def test_a_damaged_row_group_is_never_read(small_lake: SmallLake) -> None:
    several(small_lake)
    partitions = planned(small_lake)
    list(tables(partitions))
    small_lake.store.plan["read"] = Fault.FLIP
    with pytest.raises(SegmentDamaged, match="damaged"):
        list(tables(partitions))


def test_the_error_for_a_missing_segment_says_that_the_read_took_too_long(small_lake: SmallLake) -> None:
    several(small_lake)
    partitions = planned(small_lake)
    for partition in partitions:
        for one in partition.slices:
            small_lake.store.delete(one.listed.key)
    with pytest.raises(LakeUnusable, match="lake-history-seconds"):
        list(tables(partitions))


def test_a_plan_outlives_a_compaction(small_lake: SmallLake) -> None:
    for _ in range(3):
        several(small_lake)
    live, partitions = alive(small_lake), planned(small_lake)
    assert small_lake.compact()
    assert rows(tables(partitions)) == live == rows(tables(planned(small_lake)))
