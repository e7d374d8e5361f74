"""Admission control on the lake: batches end at positions, as far as the limits allow, and always make progress."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.lake.scanning import EVER, RowFilter
from headwater.spark.options.source import Selection
from headwater.spark.source.lake import stream as lake_admission
from headwater.spark.source.lake.stream import LakeAdmission, groups
from headwater.spark.source.portions import UNLIMITED, TriggerLimits

from ....node.lake.small_lake import Chance
from .small_lakes import Row, SmallLake, opened, small_lake, stored

__all__ = ["small_lake"]

ALL = Selection()


def size_of(rows: list[Row]) -> int:
    return sum(len(row[-1]) for row in rows)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 12), st.sampled_from(["", "a", "b/x"]))
def test_batches_are_within_their_limits_unless_one_position_is_not(
    seed: int, bytes_max: int, records_max: int, prefix: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        lake = opened(SmallLake(), patch)
        chance = Chance(lake, seed)
        for _ in range(40):
            chance.act()
        lake.flush()
        lake.compact(2)
        catalog = lake.catalog()
        mine = [row for row in stored(lake) if row[0].startswith(prefix)]
        admission = LakeAdmission(lake.store, ALL)
        after, found, limits = 0, list[Row](), TriggerLimits(bytes_max, records_max)
        while after < catalog.flushed:
            end = admission.end_of_batch(catalog, RowFilter(prefix=prefix, after=after, up_to=catalog.flushed), limits)
            assert after < end <= catalog.flushed
            batch = [row for row in mine if after < row[5] <= end]
            assert (size_of(batch) <= bytes_max and len(batch) <= records_max) or len({row[5] for row in batch}) == 1
            found += batch
            after = end
        assert sorted(found) == mine


def test_a_batch_reaches_as_far_as_the_limits_allow(small_lake: SmallLake) -> None:
    for number in range(12):
        small_lake.append("a/x", b"%02d" % number)
        if number % 3 == 2:
            small_lake.flush()
    catalog = small_lake.catalog()
    for records in range(1, 12):
        end = LakeAdmission(small_lake.store, ALL).end_of_batch(
            catalog, RowFilter(after=0, up_to=catalog.flushed), TriggerLimits(records_max=records)
        )
        assert sum(row[5] <= end for row in stored(small_lake)) == records
        end = LakeAdmission(small_lake.store, ALL).end_of_batch(
            catalog, RowFilter(after=0, up_to=catalog.flushed), TriggerLimits(bytes_max=2 * records + 1)
        )
        assert sum(row[5] <= end for row in stored(small_lake)) == records


def test_nothing_is_read_while_whole_segments_fit_and_little_otherwise(
    small_lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        small_lake.append("a/x", b"%d" % number)
        small_lake.append("a/y", b"%d" % number)
        small_lake.flush()
    catalog = small_lake.catalog()
    profiled: list[int] = []
    profile_of = lake_admission.profile_of

    def noted(store: object, group: list[object], *rest: object) -> object:
        profiled.append(len(group))
        return profile_of(store, group, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(lake_admission, "profile_of", noted)
    admission = LakeAdmission(small_lake.store, ALL)
    whole = RowFilter(after=0, up_to=catalog.flushed)
    assert admission.end_of_batch(catalog, whole, UNLIMITED) == catalog.flushed
    assert admission.end_of_batch(catalog, whole, TriggerLimits(records_max=12)) == catalog.flushed
    assert profiled == []
    end = admission.end_of_batch(catalog, whole, TriggerLimits(records_max=5))
    assert profiled == [1]
    admission.end_of_batch(catalog, whole._replace(after=end), TriggerLimits(records_max=1))
    assert profiled == [1], "the next batch reuses the profile of the segment that a batch ended in"


def test_segments_that_overlap_are_one_group(small_lake: SmallLake) -> None:
    for number in range(4):
        small_lake.append("a/x", b"%d" % number)
        small_lake.append("b/x", b"%d" % number)
        small_lake.flush(appends_max=1)
    found = [len(group) for group in groups(small_lake.catalog().segments)]
    assert found == [2, 2, 2, 2]
    assert list(groups([])) == []


def test_other_streams_do_not_count_towards_the_limits(small_lake: SmallLake) -> None:
    for _ in range(5):
        small_lake.append("a/x", b"x" * 50)
        small_lake.append("b/x", b"1")
        small_lake.flush()
    catalog = small_lake.catalog()
    wanted = RowFilter(prefix="b/", after=0, up_to=catalog.flushed)
    end = LakeAdmission(small_lake.store, ALL).end_of_batch(catalog, wanted, TriggerLimits(bytes_max=10))
    assert end == catalog.flushed, "bytes of other streams do not count"
    assert TriggerLimits().bytes_max == EVER
