"""A scan of a lake without a server finds what the server would answer."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pytest
from crc32c import crc32c

from headwater.lake.catalog import (
    TOMBSTONES,
    Catalog,
    Deletes,
    ForkRow,
    ListedSegment,
    read_catalog,
    read_forks,
    read_tombstones,
)
from headwater.lake.damage import LakeDamaged
from headwater.lake.datasets import dataset
from headwater.lake.format import SCHEMA, segment_key
from headwater.lake.scanning import EVERYTHING, NEEDED, Inherited, Plan, RowFilter, inheritance, live_rows
from headwater.lake.segments.object_files import read_columns
from headwater.lake.segments.reader import SegmentDamaged
from headwater.lake.verify.verifier import Verifier
from headwater.storage.memory import MemoryStore
from headwater.storage.opening import open_store
from headwater.storage.store import Store

from .built_lakes import Content, act_randomly, contents_of, plan_of, scanned, tell_a_story, writing
from .lives import plain, rows_of, write


class History(NamedTuple):
    """A lake with a history, and its server's answers about it."""

    store: Store
    contents: dict[str, Content]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    data = tmp_path_factory.mktemp("history")
    with writing(data) as writer:
        tell_a_story(writer)
        contents = writer.contents()
    return History(open_store(str(data / "lake")), contents)


# -- The server's answers ---------------------------------------------------------------------------------------------


def test_every_stream_is_found_byte_for_byte_as_the_server_answers_it(history: History) -> None:
    assert contents_of(scanned(history.store, plan_of(history.store))) == history.contents


def test_the_history_has_every_hard_case(history: History) -> None:
    """Otherwise the test above would prove little."""
    gone = {"team/deleted", "team/ghost", "team/middle", "team/short", "team/dead-fork"}
    assert not gone & history.contents.keys()
    assert history.contents["team/again"].body == b"a second life goes on"
    assert history.contents["team/fork-inside"].body == b"hello worbehind the cut"
    assert history.contents["team/fork-of-ghost"].body == b"hello world an"
    assert history.contents["team/last"].body == b"hello ownmiddle last"
    assert history.contents["team/fork-of-documents"].body == b'[{"a":1},{"a":[2,"\xc3\xa4"]},true]'
    assert history.contents["team/trimmed"].start == 6
    assert history.contents["team/trimmed-hot"].start == 25
    assert history.contents["team/fork-trimmed"].body == b"after"
    assert history.contents["team/fork-of-trimmed"].body == b"world and all kept on"


def test_each_stream_is_found_alone(history: History) -> None:
    for name, content in history.contents.items():
        plan = plan_of(history.store, RowFilter(names=frozenset([name])))
        assert contents_of(scanned(history.store, plan)) == {name: content}


@pytest.mark.parametrize("prefix", ["team/", "team-a/", "team/fork", "team/fork-of-", "te", "team/plain"])
def test_the_streams_of_a_prefix_are_found_alone(history: History, prefix: str) -> None:
    expected = {name: content for name, content in history.contents.items() if name.startswith(prefix)}
    assert expected
    assert contents_of(scanned(history.store, plan_of(history.store, RowFilter(prefix=prefix)))) == expected


def test_without_forks_every_live_row_is_there_once(history: History) -> None:
    catalog = read_catalog(history.store)
    assert catalog is not None
    plan = live_rows(catalog, read_tombstones(history.store, catalog))
    rows = scanned(history.store, plan)
    places = list(zip(rows["incarnation"].to_pylist(), rows["offset"].to_pylist(), strict=True))
    assert len(set(places)) == len(places)
    assert set(zip(rows["bucket"].to_pylist(), rows["stream"].to_pylist(), strict=True)) <= {
        tuple(name.split("/", 1)) for name in history.contents
    }


def test_without_tombstones_dead_rows_are_found_too(history: History) -> None:
    catalog = read_catalog(history.store)
    assert catalog is not None
    rows = scanned(history.store, live_rows(catalog, None))
    assert len(rows) == sum(listed.segment.rows for listed in catalog.segments)
    assert "deleted" in rows["stream"].to_pylist()


def test_positions_divide_all_rows_into_batches_without_loss(history: History) -> None:
    catalog = read_catalog(history.store)
    assert catalog is not None
    everything = scanned(history.store, plan_of(history.store))
    for boundary in range(0, catalog.position + 1, 7):
        parts = [
            plan_of(history.store, row_filter) for row_filter in (RowFilter(up_to=boundary), RowFilter(after=boundary))
        ]
        found = [part for part in parts if part.segments]
        tables = [scanned(history.store, part) for part in found]
        assert sum(map(len, tables)) == len(everything)
        for table, part in zip(tables, found, strict=True):
            above = part is parts[1]
            assert all((position > boundary) == above for position in table["position"].to_pylist())


def test_times_divide_all_rows_into_batches_without_loss(history: History) -> None:
    everything = scanned(history.store, plan_of(history.store))
    times = sorted(set(everything["committed_at"].cast(pa.int64()).to_pylist()))
    for boundary in (times[0], times[len(times) // 2], times[-1]):
        plans = [
            plan_of(history.store, row_filter) for row_filter in (RowFilter(until=boundary), RowFilter(since=boundary))
        ]
        assert sum(len(scanned(history.store, plan)) for plan in plans if plan.segments) == len(everything)


def test_columns_that_a_plan_needs_are_enough(history: History) -> None:
    plan = plan_of(history.store)
    everything = scanned(history.store, plan)
    columns = list(NEEDED)
    tables = [plan.rows(table) for listed in plan.segments for table in read_columns(history.store, listed, columns)]
    assert pa.concat_tables(tables).equals(everything.select(columns))


def test_a_dataset_has_all_rows_of_the_segments(history: History) -> None:
    catalog = read_catalog(history.store)
    assert catalog is not None
    rows = dataset(history.store, catalog.segments).to_table()
    assert rows.sort_by("position").schema.equals(SCHEMA)
    assert len(rows) == sum(listed.segment.rows for listed in catalog.segments)


def test_a_dataset_opens_only_segments_with_the_requested_positions(history: History) -> None:
    catalog = read_catalog(history.store)
    assert catalog is not None
    last = max(catalog.segments, key=lambda listed: listed.segment.first_position)
    opened: list[str] = []

    class Watched:
        url = history.store.url
        create, replace, delete = history.store.create, history.store.replace, history.store.delete
        items, remove_leftovers = history.store.items, history.store.remove_leftovers

        def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
            opened.append(key)
            return history.store.read(key, start, size)

    condition = pa.compute.field("position") >= last.segment.first_position
    rows = dataset(Watched(), catalog.segments).to_table(filter=condition)
    assert set(opened) == {last.key}
    assert len(rows) == last.segment.rows


@pytest.mark.parametrize("seed", range(6))
def test_any_history_is_found_as_the_server_answers_it(tmp_path: Path, seed: int) -> None:
    with writing(tmp_path) as writer:
        act_randomly(writer, Random(seed), 150)
        contents = writer.contents()
    store = open_store(str(tmp_path / "lake"))
    found = contents_of(scanned(store, plan_of(store)))
    empty = {name for name, content in contents.items() if not content.body}
    assert found == {name: content for name, content in contents.items() if name not in empty}
    assert [str(problem) for problem in Verifier(store).problems()] == []


def test_a_lake_on_s3_is_found_as_the_server_answers_it(tmp_path: Path, s3_url: str) -> None:
    with writing(tmp_path, "--lake", s3_url) as writer:
        tell_a_story(writer)
        contents = writer.contents()
    store = open_store(s3_url)
    assert contents_of(scanned(store, plan_of(store))) == contents
    assert list(Verifier(store).problems()) == []


# -- Forks, by hand ----------------------------------------------------------------------------------------------------


def fork(incarnation: int, source: int, start: int, to: int, *, deleted: bool = False) -> ForkRow:
    return ForkRow(f"b/{incarnation}", incarnation, deleted, f"b/{source}", source, start, to)


def pieces(*forks: ForkRow) -> list[tuple[int, int, int, int]]:
    return [(piece.incarnation, piece.source_incarnation, piece.start, piece.to) for piece in inheritance(forks)]


def test_a_fork_has_what_is_below_its_fork_point() -> None:
    assert pieces(fork(9, 1, 0, 50)) == [(9, 1, 0, 50)]


def test_a_fork_that_was_trimmed_past_its_fork_point_has_nothing_of_its_source() -> None:
    assert pieces(fork(9, 1, 50, 50)) == []


def test_a_chain_is_followed_to_where_each_byte_was_written() -> None:
    chain = fork(5, 1, 0, 50), fork(7, 5, 0, 80), fork(9, 7, 20, 90)
    assert pieces(*chain) == [
        (5, 1, 0, 50),
        (7, 1, 0, 50),
        (7, 5, 50, 80),
        (9, 1, 20, 50),
        (9, 5, 50, 80),
        (9, 7, 80, 90),
    ]


def test_a_fork_below_the_fork_point_of_its_source_has_nothing_of_the_source_itself() -> None:
    assert pieces(fork(5, 1, 0, 50), fork(7, 5, 0, 30)) == [(5, 1, 0, 50), (7, 1, 0, 30)]


def test_a_deleted_fork_is_not_a_stream_but_links_others() -> None:
    assert pieces(fork(5, 1, 0, 50, deleted=True), fork(7, 5, 0, 80)) == [(7, 1, 0, 50), (7, 5, 50, 80)]


def test_a_fork_keeps_bytes_that_its_source_has_trimmed() -> None:
    assert pieces(fork(5, 1, 50, 50), fork(7, 5, 0, 80)) == [(7, 1, 0, 50), (7, 5, 50, 80)]


def test_a_fork_of_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="its own ancestor"):
        inheritance([fork(5, 7, 0, 50), fork(7, 5, 0, 50)])


@pytest.mark.parametrize(
    ("start", "to", "expected"),
    [
        (0, 9, [(0, b"aaa"), (3, b"bbb"), (6, b"ccc")]),
        (0, 7, [(0, b"aaa"), (3, b"bbb"), (6, b"c")]),
        (1, 8, [(1, b"aa"), (3, b"bbb"), (6, b"cc")]),
        (4, 5, [(4, b"b")]),
        (3, 6, [(3, b"bbb")]),
        (9, 12, []),
    ],
)
def test_a_message_is_cut_where_a_fork_has_only_a_part_of_it(
    start: int, to: int, expected: list[tuple[int, bytes]]
) -> None:
    written = write([plain("b/s", 1, 3, 3, 3), plain("b/t", 2, 4)])
    listed = ListedSegment("key", 1, 4, written.segment)
    plan = Plan([listed], None, [Inherited("b/fork", 9, "b/s", 1, start, to)], EVERYTHING)
    [table] = [pa.Table.from_pylist(rows_of([plain("b/s", 1, 3, 3, 3), plain("b/t", 2, 4)]), SCHEMA)]
    found = [row for part in plan.inherited(table) for row in part.to_pylist()]
    assert [(row["offset"], row["payload"]) for row in found] == expected
    assert {(row["bucket"], row["stream"], row["incarnation"]) for row in found} <= {("b", "fork", 9)}
    assert all(row["next_offset"] - row["offset"] == len(row["payload"]) for row in found)
    assert plan.own(table) is table


# -- Which segments ----------------------------------------------------------------------------------------------------


def catalog_of(*segments: tuple[str, str, int, int]) -> Catalog:
    """A catalog of segments with these names and positions; a time is a position."""
    listed = []
    for number, (first_name, last_name, first, last) in enumerate(segments):
        segment = write(
            [plain(first_name, 1, 1), *([plain(last_name, 2, 1)] if last_name != first_name else [])]
        ).segment
        changes = {
            "first_position": first,
            "last_position": last,
            "first_at": first,
            "last_at": last,
            "id": f"{number}",
        }
        facts = {name: getattr(segment, name) for name in segment.__struct_fields__} | changes
        listed.append(ListedSegment(segment_key(0, first, last, str(number)), number, 1, type(segment)(**facts)))
    return Catalog("key", 1, 0, "j", 100, 100, 0, 100, listed, "f", 2)


def numbers(plan: Plan) -> list[int]:
    return [listed.number for listed in plan.segments]


NO_TOMBSTONES = TOMBSTONES.empty_table()
SOME = catalog_of(("a/x", "b/y", 1, 10), ("b/x", "b/z", 11, 20), ("c/a", "c/b", 11, 20), ("a-b/x", "a/a", 21, 30))


@pytest.mark.parametrize(
    ("row_filter", "expected"),
    [
        (EVERYTHING, [0, 1, 2, 3]),
        (RowFilter(prefix="b/"), [0, 1]),
        (RowFilter(prefix="b/z"), [1]),
        (RowFilter(prefix="c"), [2]),
        (RowFilter(prefix="a"), [0, 3]),
        (RowFilter(prefix="a-"), [3]),
        (RowFilter(prefix="d"), []),
        (RowFilter(names=frozenset(["b/xx"])), [0, 1]),
        (RowFilter(names=frozenset(["b/xx", "c/b"])), [0, 1, 2]),
        (RowFilter(names=frozenset(["b/xx", "c/b"]), prefix="c"), [2]),
        (RowFilter(names=frozenset()), []),
        (RowFilter(after=10), [1, 2, 3]),
        (RowFilter(after=9), [0, 1, 2, 3]),
        (RowFilter(up_to=10), [0]),
        (RowFilter(up_to=11), [0, 1, 2]),
        (RowFilter(since=21), [3]),
        (RowFilter(until=11), [0]),
        (RowFilter(until=12, after=10), [1, 2]),
    ],
)
def test_segments_that_cannot_have_requested_rows_are_not_read(row_filter: RowFilter, expected: list[int]) -> None:
    assert numbers(live_rows(SOME, NO_TOMBSTONES, (), row_filter)) == expected


def test_the_segments_of_a_forks_sources_are_read_with_it() -> None:
    forks = [ForkRow("z/fork", 9, False, "c/a", 1, 0, 5)]
    assert numbers(live_rows(SOME, NO_TOMBSTONES, forks, RowFilter(prefix="z/"))) == [2]
    assert numbers(live_rows(SOME, NO_TOMBSTONES, forks, RowFilter(prefix="z/"), inherited=False)) == []
    assert numbers(live_rows(SOME, NO_TOMBSTONES, forks, RowFilter(prefix="y/"))) == []


# -- Damage ------------------------------------------------------------------------------------------------------------


def test_a_store_without_a_catalog_has_none() -> None:
    assert read_catalog(MemoryStore()) is None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"3", b'{"properties": {}}', b'{"properties": 3}'])
def test_a_metadata_file_that_cannot_be_decoded_is_damage(data: bytes) -> None:
    store = MemoryStore()
    store.create("messages/metadata/0000000007-abc.metadata.json", data)
    with pytest.raises(LakeDamaged, match=r"0000000007-abc\.metadata\.json is damaged"):
        read_catalog(store)


SPOILED = msgspec.structs.replace(SOME.segments[0], deletes=Deletes("f", 9, 2, 1))


@pytest.mark.parametrize("read", [read_tombstones, read_forks])
@pytest.mark.parametrize("data", [None, b"", b"PAR1 and no more"])
def test_a_table_that_is_missing_or_damaged_is_damage(
    read: Callable[[Store, Catalog], object], data: bytes | None
) -> None:
    store = MemoryStore()
    if data is not None:
        store.create("f", data)
    with pytest.raises(LakeDamaged):
        read(store, msgspec.structs.replace(SOME, segments=[SPOILED]))


def test_a_table_with_other_columns_is_damage() -> None:
    store = MemoryStore()
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(TOMBSTONES.empty_table(), sink)
    data = bytes(sink.getvalue())
    store.create("f", data)
    with pytest.raises(LakeDamaged, match="checksum"):
        read_forks(store, SOME)
    with pytest.raises(LakeDamaged, match="columns"):
        read_forks(store, msgspec.structs.replace(SOME, forks_crc=crc32c(data)))
    listed = msgspec.structs.replace(SPOILED, deletes=Deletes("f", len(data), crc32c(data), 1))
    with pytest.raises(LakeDamaged, match="cannot be decoded"):
        read_tombstones(store, msgspec.structs.replace(SOME, segments=[listed]))


def test_columns_of_a_damaged_page_are_not_decoded() -> None:
    written = write([plain("b/s", 1, 3, 3, 3)])
    data = bytearray(written.data)
    data[30] ^= 1
    store = MemoryStore()
    store.create("key", bytes(data))
    with pytest.raises(SegmentDamaged):
        list(read_columns(store, ListedSegment("key", 1, 3, written.segment), ["bucket", "stream"]))
