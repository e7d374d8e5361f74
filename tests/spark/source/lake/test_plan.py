"""Planning a read of the lake: the right segments, well packed, from a catalog alone."""

from pathlib import Path

import pytest

from headwater.client.operations import Fork
from headwater.lake.scanning import EVER, RowFilter
from headwater.spark.link import Link, LinkSettings
from headwater.spark.options.reading import Selection
from headwater.spark.source.filters import Bounds, Conditions
from headwater.spark.source.lake import plan as lake_plan
from headwater.spark.source.lake.plan import (
    LakeUnusable,
    LakeWork,
    catalog_up_to,
    newest_catalog,
    plan_batch,
    plan_stream,
    reach,
    wanted_of,
)
from headwater.spark.source.packing import pack, share
from headwater.streams.commands import Delete
from headwater.testing import RunningServer

from ...streams import streams_in
from .small_lakes import SmallLake, options, rows, small_lake, tables

__all__ = ["small_lake"]


def keys(works: list[LakeWork]) -> list[tuple[str, int, int]]:
    return [(one.listed.key, one.part, one.of) for work in works for one in work.slices]


def three_flushes(lake: SmallLake) -> None:
    for name in ("a/x", "b/x", "c/x"):
        lake.append(name, b"0123456789" * 10)
        lake.flush()


# -- What is asked for -------------------------------------------------------------------------------------------------


def test_all_is_asked_for_unless_something_is_said() -> None:
    assert wanted_of(Selection(), None, None) == RowFilter()


def test_times_and_pushed_filters_come_together() -> None:
    given = Conditions(bounds=(("position", Bounds(5, 9)), ("committed_at", Bounds(300, EVER))))
    assert wanted_of(Selection("a/"), 200, 400, given) == RowFilter(None, "a/", 4, 9, 300, 400)
    assert wanted_of(Selection("a/"), 350, None, given) == RowFilter(None, "a/", 4, 9, 350, EVER)


@pytest.mark.parametrize(
    ("words", "beginnings", "prefix"),
    [
        ({"bucket": "team"}, {}, "team/"),
        ({"bucket": "team", "stream": "notes"}, {}, "team/notes"),
        ({"bucket": "team"}, {"stream": "no"}, "team/no"),
        ({"stream": "notes"}, {}, "te"),
        ({"bucket": "other"}, {}, "te"),
    ],
)
def test_a_pushed_name_makes_the_prefix_longer(words: dict[str, str], beginnings: dict[str, str], prefix: str) -> None:
    given = Conditions(tuple((column, frozenset({word})) for column, word in words.items()), tuple(beginnings.items()))
    assert wanted_of(Selection("te"), None, None, given).prefix == prefix


# -- Which segments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("prefix", "segments"), [("b/", 1), ("", 3), ("d/", 0)])
def test_only_segments_that_may_have_the_names_are_read(small_lake: SmallLake, prefix: str, segments: int) -> None:
    three_flushes(small_lake)
    works = plan_batch(options(), small_lake.store, small_lake.catalog(), RowFilter(prefix=prefix))
    assert len(keys(works)) == segments


def test_a_pushed_bucket_spares_segments_of_other_buckets(small_lake: SmallLake) -> None:
    three_flushes(small_lake)
    given = Conditions(words=(("bucket", frozenset({"a", "c"})),))
    works = plan_batch(options(), small_lake.store, small_lake.catalog(), RowFilter(), given)
    assert len(keys(works)) == 2


def test_a_pushed_bucket_does_not_spare_what_forks_have_from_other_buckets(
    lake_server: RunningServer, bucket: str
) -> None:
    given = Conditions(words=(("bucket", frozenset({bucket})),))
    with (
        Link(LinkSettings(lake_server.url)) as link,
        streams_in(lake_server, f"{bucket}-source") as sources,
        streams_in(lake_server, bucket) as streams,
    ):
        link.flush()
        sources.make("x", b"one", b"two")
        link.flush()
        streams.stream("fork").create(fork=Fork(f"/ds/{sources.bucket}/x"))
        streams.append("fork", b"three")
        asked = options(streams=f"{bucket}/fork,{sources.bucket}/x", via="lake")
        store = reach(link.status()["lake"]["url"])
        catalog = catalog_up_to(link, store, link.flush()["0"])
    assert catalog is not None
    works = plan_batch(asked, store, catalog, wanted_of(asked.selection, None, None, given), given)
    found = rows(tables(works, selection=asked.selection, conditions=given))
    assert [(row[0], row[-1]) for row in found] == [
        (f"{bucket}/fork", payload) for payload in (b"one", b"two", b"three")
    ]


def test_dead_segments_are_for_streams_only(small_lake: SmallLake) -> None:
    three_flushes(small_lake)
    small_lake.do(Delete("b/x"))
    catalog = small_lake.catalog()
    assert len(keys(plan_batch(options(), small_lake.store, catalog, RowFilter()))) == 2
    assert len(keys(plan_stream(options(), small_lake.store, catalog, RowFilter()))) == 3


def test_the_driver_reads_nothing_but_the_catalog(small_lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    three_flushes(small_lake)
    small_lake.catalog()
    reads: list[str] = []
    read = small_lake.store.read

    def noted(key: str, start: int = 0, size: int | None = None) -> bytes:
        reads.append(key)
        return read(key, start, size)

    monkeypatch.setattr(small_lake.store, "read", noted)
    catalog = newest_catalog(small_lake.store)
    assert catalog is not None
    plan_batch(options(), small_lake.store, catalog, RowFilter())
    plan_stream(options(), small_lake.store, catalog, RowFilter())
    assert [key.rpartition(".")[2] for key in reads] == ["json"]


def test_small_segments_share_a_partition_and_large_ones_are_cut(
    small_lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_plan, "OPEN_BYTES", 0)
    monkeypatch.setattr(lake_plan, "ROW_BYTES", 0)
    three_flushes(small_lake)
    small_lake.append("d/x", b"0" * 1000)
    small_lake.flush()
    catalog = small_lake.catalog()

    def shape(**given: str) -> list[list[tuple[int, int]]]:
        works = plan_batch(options(**given), small_lake.store, catalog, RowFilter())
        return [[(one.part, one.of) for one in work.slices] for work in works]

    assert shape() == [[(0, 1)] * 4]
    assert shape(maxBytesPerPartition="500") == [[(0, 1)] * 3, [(0, 2)], [(1, 2)]]
    assert shape(maxBytesPerPartition="100") == [[(0, 1)]] * 3 + [[(part, 10)] for part in range(10)]
    for partitions_min in (2, 5, 7):
        assert len(shape(minPartitions=str(partitions_min))) >= partitions_min


def test_partitions_begin_with_what_is_oldest(small_lake: SmallLake) -> None:
    three_flushes(small_lake)
    [work] = plan_stream(options(), small_lake.store, small_lake.catalog(), RowFilter())
    positions = [one.listed.segment.first_position for one in work.slices]
    assert positions == sorted(positions)


def test_what_is_packed_is_all_of_it_in_order() -> None:
    assert pack([], int, 5) == []
    assert pack([3, 3, 3], int, 6, pieces_max=1) == [[3], [3], [3]]
    for count in range(20):
        parts = [share(range(count), part, 3) for part in range(3)]
        assert [piece for part in parts for piece in part] == list(range(count))


# -- Where the lake is -------------------------------------------------------------------------------------------------


def test_a_lake_that_is_not_on_this_machine_cannot_be_reached(tmp_path: Path) -> None:
    for url in (str(tmp_path / "none"), (tmp_path / "none").as_uri(), "memory:", "gopher://x"):
        with pytest.raises(LakeUnusable, match="cannot be reached"):
            reach(url)
    assert reach(str(tmp_path)).url == tmp_path.as_uri()


def test_a_catalog_that_does_not_tell_of_a_position_is_made_anew(small_lake: SmallLake) -> None:
    assert catalog_up_to(small_lake.link, small_lake.store, 0) is None
    three_flushes(small_lake)
    catalog = small_lake.catalog()
    assert catalog_up_to(small_lake.link, small_lake.store, catalog.flushed) == catalog
    small_lake.append("a/x", b"more")
    newer = catalog_up_to(small_lake.link, small_lake.store, small_lake.state.position)
    assert newer is not None and newer.flushed >= small_lake.state.position
    with pytest.raises(LakeUnusable, match=f"has rows up to position {newer.flushed}, not up to 1000"):
        catalog_up_to(small_lake.link, small_lake.store, 1000)


def test_a_catalog_may_say_less_than_the_one_before(small_lake: SmallLake) -> None:
    three_flushes(small_lake)
    before = small_lake.catalog()
    small_lake.append("a/x", b"more")
    assert small_lake.catalog().flushed < before.flushed
    found = catalog_up_to(small_lake.link, small_lake.store, before.flushed)
    assert found is not None and found.flushed >= before.flushed


def test_a_damaged_catalog_is_named(small_lake: SmallLake) -> None:
    three_flushes(small_lake)
    small_lake.catalog()
    small_lake.store.store.create("catalog/shard=0/00000000000000099999.json", b"{}")
    with pytest.raises(LakeUnusable, match=r"99999.json is damaged"):
        newest_catalog(small_lake.store)
