"""The catalog of our own readers: it says what the tables were told to list, and the newest commit is in force."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from headwater.lake.catalog import CatalogReader, ForkRow, ListedSegment, read_catalog, read_forks, read_tombstones
from headwater.lake.damage import LakeDamaged
from headwater.lake.format import segment_key
from headwater.lake.iceberg.commits import Outdated
from headwater.lake.iceberg.messages import Heading
from headwater.lake.iceberg.metadata import hint_key
from headwater.lake.iceberg.reading import newest_table
from headwater.lake.iceberg.tables import Changes, LakeTables
from headwater.lake.scanning import RowFilter, segments_for
from headwater.storage.store import KeyExists, Store, StoreFailed
from headwater.streams.cold import ALL, Held, Tombstone
from headwater.streams.segments import DeadRows

from ..doubles.faulty_store import Fault, FaultyStore
from .lives import ID, plain, write

SEGMENT = replace(write([plain("team/b", 4, 6), plain("team/ä", 3, 5)]).segment, last_position=9)
FORKS = [
    ForkRow("team/fork", 11, False, "team/ä", 3, 0, 5),
    ForkRow("team/gone", 12, True, "team/fork", 11, 2, 2),
]
HELD = Held(SEGMENT, 1)
DEAD = Tombstone("team/b", ALL, (DeadRows(5, 0, 1),))


def tables_of(store: Store, history_seconds: float = 60.0) -> LakeTables:
    clock = iter(range(1_000, 10_000_000, 1_000))
    return LakeTables(store, 0, "abc", history_seconds=history_seconds, now_ms=lambda: next(clock))


def changes(
    number: int = 5, held: Held | None = HELD, *, dead: bool = True, forks: Sequence[ForkRow] = FORKS
) -> Changes:
    tombstones: list[tuple[int, Tombstone | None]] = [(4, DEAD)] if dead else []
    return Changes([(number, held)], tombstones, [(row.incarnation, row) for row in forks])


def heading(position: int = 20, flushed: int = 19) -> Heading:
    return Heading(position, flushed, 4, 1_700_000_000_000_000)


def committed(store: Store, position: int = 20) -> LakeTables:
    tables = tables_of(store)
    tables.update(changes())
    tables.commit(heading(position), ())
    return tables


def test_a_catalog_is_read_back_as_it_was_written(store: Store) -> None:
    committed(store)
    catalog = read_catalog(store)
    assert catalog is not None
    [listed] = catalog.segments
    assert listed.deletes is not None
    assert listed == ListedSegment(segment_key(0, 0, 9, ID), 5, 1, SEGMENT, listed.deletes)
    assert (catalog.shard, catalog.log_id, catalog.position, catalog.flushed, catalog.dropped, catalog.at) == (
        *(0, "abc", 20, 19, 4),
        1_700_000_000_000_000,
    )
    assert read_tombstones(store, catalog).to_pylist() == [{"incarnation": 4, "below": ALL}]
    assert read_forks(store, catalog) == FORKS


def test_an_empty_lake_has_tables_with_columns(store: Store) -> None:
    tables_of(store).commit(heading(), ())
    catalog = read_catalog(store)
    assert catalog is not None
    assert catalog.segments == []
    assert len(read_tombstones(store, catalog)) == 0
    assert read_forks(store, catalog) == []


def test_the_last_commit_is_in_force_even_if_the_hint_is_older_or_gone(store: Store) -> None:
    tables = committed(store)
    hint = store.read(hint_key("messages"))
    tables.update(changes(6, Held(replace(SEGMENT, id=f"{ID}x"), 2)))
    tables.commit(heading(30), ())
    assert _position(store) == 30
    store.replace(hint_key("messages"), hint)
    assert _position(store) == 30
    store.delete(hint_key("messages"))
    assert _position(store) == 30


def _position(store: Store) -> int:
    catalog = read_catalog(store)
    return 0 if catalog is None else catalog.position


def test_a_new_process_continues_where_the_last_one_stopped_and_repeats_nothing(store: Store) -> None:
    committed(store)
    before = sorted(item.key for item in store.items(""))
    tables = tables_of(store)
    tables.update(changes())
    tables.commit(heading(), ())
    assert sorted(item.key for item in store.items("")) == before
    tables.update(changes(6, Held(replace(SEGMENT, id=f"{ID}x"), 2)))
    tables.commit(heading(21), ())
    catalog = read_catalog(store)
    assert catalog is not None
    assert {listed.number for listed in catalog.segments} == {5, 6}


def test_a_server_that_is_behind_the_table_commits_nothing(store: Store) -> None:
    committed(store, 40)
    behind = tables_of(store)
    behind.update(changes(7, None))
    with pytest.raises(Outdated, match="position 40"):
        behind.commit(heading(30), ())
    assert _position(store) == 40


def test_of_two_servers_that_commit_at_the_same_time_one_fails_and_then_continues(store: Store) -> None:
    first, second = committed(store), tables_of(store)
    second.update(changes())
    second.commit(heading(), ())
    first.update(changes(6, Held(replace(SEGMENT, id=f"{ID}x"), 2)))
    second.update(changes(6, Held(replace(SEGMENT, id=f"{ID}x"), 2)))
    first.commit(heading(21), ())
    with pytest.raises(KeyExists):
        second.commit(heading(22), ())
    second.commit(heading(22), ())
    catalog = read_catalog(store)
    assert catalog is not None
    assert catalog.position == 22
    assert {listed.number for listed in catalog.segments} == {5, 6}


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.TRUNCATE, Fault.FLIP, Fault.LOSE])
@pytest.mark.parametrize("step", ["deletes/", "-data.avro", "-deletes.avro", "-list.avro", ".json", "forks/data"])
def test_a_commit_that_fails_at_any_step_leaves_the_last_one_or_its_own_and_is_repeated(
    fault: Fault, step: str
) -> None:
    store = FaultyStore()
    tables = committed(store)
    tables.update(changes(6, Held(replace(SEGMENT, id=f"{ID}x"), 2), forks=FORKS[:1]))
    tables.update(Changes([], [(3, Tombstone("team/ä", ALL, (DeadRows(6, 1, 1),)))], [(12, None)]))
    store.fail_next("create", fault, step)
    with pytest.raises(StoreFailed):
        tables.commit(heading(30), ())
    try:
        assert _position(store) in (20, 30)
    except LakeDamaged:
        assert fault in (Fault.TRUNCATE, Fault.FLIP)
    tables.commit(heading(31), ())
    catalog = read_catalog(store)
    assert catalog is not None
    assert catalog.position == 31
    assert {listed.number for listed in catalog.segments} == {5, 6}
    assert read_forks(store, catalog) == FORKS[:1]
    assert sorted(read_tombstones(store, catalog)["incarnation"].to_pylist()) == [3, 4]


def test_what_failed_commits_leave_behind_is_deleted() -> None:
    store = FaultyStore()
    tables = tables_of(store, history_seconds=0.0)
    tables.update(changes())
    for step in ("-list.avro", "-deletes.avro", ".json"):
        store.fail_next("create", Fault.FAIL_AFTER, step)
        with pytest.raises(StoreFailed):
            tables.commit(heading(), ())
    tables.commit(heading(), ())
    tables.tidy(())
    kept = [item.key for item in store.store.items("messages/")]
    assert len([key for key in kept if key.endswith(".avro")]) == 3
    assert len([key for key in kept if "/deletes/" in key]) == 1
    assert _position(store) == 20


def test_a_lake_that_was_moved_is_listed_anew() -> None:
    store, other = FaultyStore(), FaultyStore()
    committed(store)
    for item in store.items(""):
        other.create(item.key, store.read(item.key))
    other.store.url = "s3://elsewhere"  # type: ignore[misc]
    assert _position(other) == 20
    tables = tables_of(other)
    tables.update(changes())
    tables.commit(heading(21), ())
    table = newest_table(other, "messages")
    assert table is not None
    assert table.url == "s3://elsewhere"
    assert len(table.snapshots) == 1
    assert _position(other) == 21


def test_a_reader_reads_only_what_has_changed_since_the_last_time() -> None:
    store = FaultyStore()
    tables, reads, read = committed(store), list[str](), store.read

    def counted(key: str, start: int = 0, size: int | None = None) -> bytes:
        reads.append(key)
        return read(key, start, size)

    store.read = counted  # type: ignore[method-assign]
    reader = CatalogReader(store)
    first = reader.read()
    reads.clear()
    assert reader.read() == first
    assert len(reads) == 1
    tables.update(Changes([], [(3, Tombstone("team/ä", ALL, (DeadRows(5, 1, 1),)))], []))
    tables.commit(heading(21), ())
    reads.clear()
    later = reader.read()
    assert later is not None
    assert later.position == 21
    assert later.segments[0].deletes != first.segments[0].deletes  # type: ignore[union-attr]
    assert not [key for key in reads if key.endswith("-data.avro")], "that manifest is as before"


def many_segments(count: int) -> Changes:
    """Segments with names and positions of their own; every second one has a dead row."""
    segments: list[tuple[int, Held | None]] = []
    tombstones: list[tuple[int, Tombstone | None]] = []
    for number in range(count):
        first, last = f"team/{number:05}-a", f"team/{number:05}-b"
        one = replace(SEGMENT, id=f"{ID}{number}", first_name=first, last_name=last)
        one = replace(one, first_position=10 * number, last_position=10 * number + 9, first_at=number, last_at=number)
        segments.append((number, Held(one, one.rows)))
        if number % 2:
            tombstones.append((number, Tombstone(first, ALL, (DeadRows(number, 0, 1),))))
    return Changes(segments, tombstones, [])


@pytest.mark.parametrize(
    ("row_filter", "segments", "manifests"),
    [
        (RowFilter(names=frozenset({"team/00700-a"})), 1, (1, 1)),
        (RowFilter(names=frozenset({"team/01101-a", "team/00101-b"})), 2, (2, 2)),
        (RowFilter(names=frozenset({"team/00700-aa"})), 1, (1, 1)),
        (RowFilter(names=frozenset({"tean"})), 0, (0, 0)),
        (RowFilter(prefix="team/006"), 100, (1, 1)),
        (RowFilter(after=11_979), 2, (1, 1)),
        (RowFilter(after=4, up_to=25), 3, (1, 1)),
        (RowFilter(since=600, until=610), 10, (1, 1)),
        (RowFilter(), 1200, (3, 2)),
    ],
)
def test_only_the_manifests_that_a_filter_needs_are_read(
    row_filter: RowFilter, segments: int, manifests: tuple[int, int]
) -> None:
    store = FaultyStore()
    tables, reads, read = tables_of(store), list[str](), store.read
    tables.update(many_segments(1200))
    tables.commit(heading(12_000), ())
    whole = read_catalog(store)
    assert whole is not None

    def counted(key: str, start: int = 0, size: int | None = None) -> bytes:
        reads.append(key)
        return read(key, start, size)

    store.read = counted  # type: ignore[method-assign]
    reader, may_hold = CatalogReader(store), segments_for(row_filter)
    reader.heading()
    found = reader.matching(may_hold).segments
    assert found == [one for one in whole.segments if may_hold(one.segment)]
    assert len(found) == segments
    assert [one.deletes is not None for one in found] == [one.number % 2 == 1 for one in found]
    assert (
        tuple(len([key for key in reads if key.endswith(end)]) for end in ("-data.avro", "-deletes.avro")) == manifests
    )


def test_sources_of_forks_count_among_the_names_of_a_filter() -> None:
    store = FaultyStore()
    tables = tables_of(store)
    tables.update(many_segments(1200))
    tables.commit(heading(12_000), ())
    reader = CatalogReader(store)
    reader.heading()
    fork = ForkRow("team/fork", 9_999, False, "team/00700-a", 700, 0, 10)
    wanted = RowFilter(names=frozenset({"team/fork"}))
    assert [one.number for one in reader.matching(segments_for(wanted, [fork])).segments] == [700]
    assert reader.matching(segments_for(wanted)).segments == []
