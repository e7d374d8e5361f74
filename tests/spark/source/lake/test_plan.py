"""Planning a read of the lake: the right segments, packed evenly, from a catalog alone."""

from pathlib import Path

import msgspec
import pytest

from headwater.client.operations import Fork
from headwater.lake.catalog import CatalogReader
from headwater.lake.iceberg.metadata import metadata_key
from headwater.lake.iceberg.reading import newest_table
from headwater.lake.scanning import EVER, RowFilter
from headwater.spark.link import Link, LinkSettings
from headwater.spark.options.source import Selection
from headwater.spark.source.filters import Bounds, Conditions
from headwater.spark.source.lake.plan import (
    LakePartition,
    LakePlanner,
    LakeUnusable,
    heading_up_to,
    newest_heading,
    open_lake,
    row_filter_for,
)
from headwater.spark.source.portions import pack, share
from headwater.streams.commands.streams import Delete
from headwater.testing import RunningServer

from ...streams import streams_in
from .small_lakes import SmallLake, options, read_heading, rows, small_lake, tables

__all__ = ["small_lake"]


def keys(partitions: list[LakePartition]) -> list[tuple[str, int, int]]:
    return [(one.listed.key, one.part, one.of) for partition in partitions for one in partition.slices]


def three_flushes(lake: SmallLake) -> None:
    for name in ("a/x", "b/x", "c/x"):
        lake.append(name, b"0123456789" * 10)
        lake.flush()


# -- Which rows -------------------------------------------------------------------------------------------------------


def test_all_rows_are_selected_by_default() -> None:
    assert row_filter_for(Selection(), None, None) == RowFilter()


def test_times_and_pushed_filters_are_combined() -> None:
    pushed = Conditions(bounds=(("position", Bounds(5, 9)), ("committed_at", Bounds(300, EVER))))
    assert row_filter_for(Selection("a/"), 200, 400, pushed) == RowFilter(None, "a/", 4, 9, 300, 400)
    assert row_filter_for(Selection("a/"), 350, None, pushed) == RowFilter(None, "a/", 4, 9, 350, EVER)


@pytest.mark.parametrize(
    ("strings", "prefixes", "prefix"),
    [
        ({"bucket": "team"}, {}, "team/"),
        ({"bucket": "team", "stream": "notes"}, {}, "team/notes"),
        ({"bucket": "team"}, {"stream": "no"}, "team/no"),
        ({"stream": "notes"}, {}, "te"),
        ({"bucket": "other"}, {}, "te"),
    ],
)
def test_a_pushed_name_makes_the_prefix_longer(strings: dict[str, str], prefixes: dict[str, str], prefix: str) -> None:
    pushed = Conditions(
        tuple((column, frozenset({value})) for column, value in strings.items()), tuple(prefixes.items())
    )
    assert row_filter_for(Selection("te"), None, None, pushed).prefix == prefix


# -- Which segments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("prefix", "segments"), [("b/", 1), ("", 3), ("d/", 0)])
def test_only_segments_that_may_have_the_names_are_read(small_lake: SmallLake, prefix: str, segments: int) -> None:
    three_flushes(small_lake)
    partitions = LakePlanner(options(), small_lake.store, small_lake.catalogs()).batch(RowFilter(prefix=prefix))
    assert len(keys(partitions)) == segments


def test_a_pushed_bucket_spares_segments_of_other_buckets(small_lake: SmallLake) -> None:
    three_flushes(small_lake)
    pushed = Conditions(strings=(("bucket", frozenset({"a", "c"})),))
    partitions = LakePlanner(options(), small_lake.store, small_lake.catalogs()).batch(RowFilter(), pushed)
    assert len(keys(partitions)) == 2


def test_a_pushed_bucket_does_not_spare_what_forks_have_from_other_buckets(
    lake_server: RunningServer, bucket: str
) -> None:
    pushed = Conditions(strings=(("bucket", frozenset({bucket})),))
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
        given = options(streams=f"{bucket}/fork,{sources.bucket}/x", via="lake")
        store = open_lake(link.status()["lake"]["url"])
        catalogs = CatalogReader(store)
        assert heading_up_to(link, store, link.flush()["0"], catalogs) is not None
    partitions = LakePlanner(given, store, catalogs).batch(row_filter_for(given.selection, None, None, pushed), pushed)
    found = rows(tables(partitions, selection=given.selection, conditions=pushed))
    assert [(row[0], row[-1]) for row in found] == [
        (f"{bucket}/fork", payload) for payload in (b"one", b"two", b"three")
    ]


def test_only_streams_read_dead_segments(small_lake: SmallLake) -> None:
    three_flushes(small_lake)
    small_lake.do(Delete("b/x"))
    catalogs = small_lake.catalogs()
    assert len(keys(LakePlanner(options(), small_lake.store, catalogs).batch(RowFilter()))) == 2
    assert len(keys(LakePlanner(options(), small_lake.store, catalogs).stream(RowFilter()))) == 3


def test_the_driver_reads_nothing_but_the_catalog(small_lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    three_flushes(small_lake)
    small_lake.catalog()
    reads: list[str] = []
    read = small_lake.store.read

    def noted(key: str, start: int = 0, size: int | None = None) -> bytes:
        reads.append(key)
        return read(key, start, size)

    monkeypatch.setattr(small_lake.store, "read", noted)
    catalogs = read_heading(small_lake.store)
    LakePlanner(options(), small_lake.store, catalogs).batch(RowFilter())
    LakePlanner(options(), small_lake.store, catalogs).stream(RowFilter())
    assert {key.rpartition(".")[2] for key in reads} == {"text", "json", "avro"}


def test_small_segments_share_a_partition_and_large_ones_are_cut(small_lake: SmallLake) -> None:
    three_flushes(small_lake)
    small_lake.append("d/x", b"0" * 1000)
    small_lake.flush()
    catalogs = small_lake.catalogs()

    def slices(**given: str) -> list[list[tuple[int, int]]]:
        planner = LakePlanner(options(**given), small_lake.store, catalogs, open_bytes=0, row_bytes=0)
        return [[(one.part, one.of) for one in partition.slices] for partition in planner.batch(RowFilter())]

    assert slices() == [[(0, 1)] * 4]
    assert slices(maxBytesPerPartition="500") == [[(0, 1)] * 3, [(0, 2)], [(1, 2)]]
    assert slices(maxBytesPerPartition="100") == [[(0, 1)]] * 3 + [[(part, 10)] for part in range(10)]
    for partitions_min in (2, 5, 7):
        assert len(slices(minPartitions=str(partitions_min))) >= partitions_min


def test_partitions_begin_with_the_oldest_rows(small_lake: SmallLake) -> None:
    three_flushes(small_lake)
    [partition] = LakePlanner(options(), small_lake.store, small_lake.catalogs()).stream(RowFilter())
    positions = [one.listed.segment.first_position for one in partition.slices]
    assert positions == sorted(positions)


def test_everything_is_packed_in_order() -> None:
    assert pack([], int, 5) == []
    for count in range(20):
        parts = [share(range(count), part, 3) for part in range(3)]
        assert [piece for part in parts for piece in part] == list(range(count))


# -- Where the lake is -------------------------------------------------------------------------------------------------


def test_a_lake_that_is_not_on_this_machine_cannot_be_reached(tmp_path: Path) -> None:
    for url in (str(tmp_path / "none"), (tmp_path / "none").as_uri(), "memory:", "gopher://x"):
        with pytest.raises(LakeUnusable, match="cannot be reached"):
            open_lake(url)
    assert open_lake(str(tmp_path)).url == tmp_path.as_uri()


def test_a_catalog_that_does_not_cover_a_position_is_written_again(small_lake: SmallLake) -> None:
    catalogs = CatalogReader(small_lake.store)
    assert heading_up_to(small_lake.link, small_lake.store, 0, catalogs) is None
    three_flushes(small_lake)
    catalog = small_lake.catalog()
    heading = heading_up_to(small_lake.link, small_lake.store, catalog.flushed, catalogs)
    assert heading == msgspec.structs.replace(catalog, segments=[])
    small_lake.append("a/x", b"more")
    newer = heading_up_to(small_lake.link, small_lake.store, small_lake.state.position, catalogs)
    assert newer is not None and newer.flushed >= small_lake.state.position
    with pytest.raises(LakeUnusable, match=f"has rows up to position {newer.flushed}, not up to 1000"):
        heading_up_to(small_lake.link, small_lake.store, 1000, catalogs)


def test_a_catalog_may_claim_less_than_the_one_before(small_lake: SmallLake) -> None:
    three_flushes(small_lake)
    before = small_lake.catalog()
    small_lake.append("a/x", b"more")
    assert small_lake.catalog().flushed < before.flushed
    found = heading_up_to(small_lake.link, small_lake.store, before.flushed, CatalogReader(small_lake.store))
    assert found is not None and found.flushed >= before.flushed


def test_a_damaged_catalog_is_named(small_lake: SmallLake) -> None:
    three_flushes(small_lake)
    small_lake.catalog()
    table = newest_table(small_lake.store, "messages")
    assert table is not None
    small_lake.store.store.create(metadata_key("messages", table.version + 1, table.log_id), b"{}")
    with pytest.raises(LakeUnusable, match=r"metadata.json is damaged"):
        newest_heading(small_lake.store, CatalogReader(small_lake.store))
