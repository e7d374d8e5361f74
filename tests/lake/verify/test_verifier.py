"""Every problem of a lake is reported, and none of an intact lake."""

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from headwater.lake.catalog import Catalog, ForkRow, read_catalog
from headwater.lake.verify.verifier import Verifier
from headwater.storage.memory import MemoryStore
from headwater.storage.opening import open_store
from headwater.storage.store import StoreFailed
from headwater.streams.cold import ALL

from ...doubles.faulty_store import FaultyStore
from ..built_lakes import tell_a_story, writing
from ..forged_lakes import TombstoneRow, lake_of, problems, table_of
from ..lives import Life, NewAppend, life
from ..relisting import relist

# -- Damage to what a server wrote -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("data")
    with writing(data) as writer:
        tell_a_story(writer)
    return data / "lake"


@pytest.fixture
def lake(original: Path, tmp_path: Path) -> Path:
    """A lake to damage."""
    return Path(shutil.copytree(original, tmp_path / "lake"))


def catalog_of(lake: Path) -> Catalog:
    catalog = read_catalog(open_store(str(lake)))
    assert catalog is not None
    return catalog


def a_table(lake: Path, kind: str) -> Path:
    """The file of the forks, or one of deleted rows."""
    catalog = catalog_of(lake)
    deletes = [one.deletes.key for one in catalog.segments if one.deletes is not None]
    return lake / (catalog.forks_key if kind == "forks" else deletes[0])


def segments(lake: Path) -> list[Path]:
    return sorted(lake.glob("segments/*/*.parquet"))


def spoil(path: Path, change: Callable[[bytearray], object]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def test_an_intact_lake_has_no_problems(lake: Path) -> None:
    verifier = Verifier(open_store(str(lake)), json_values=True)
    assert list(verifier.problems()) == []
    assert verifier.segments == len(segments(lake))
    assert verifier.rows > verifier.live_rows > 0
    assert verifier.bytes == sum(path.stat().st_size for path in segments(lake))


def test_progress_ends_with_all_bytes(lake: Path) -> None:
    reported: list[tuple[int, int]] = []
    verifier = Verifier(open_store(str(lake)), progress=lambda done, total: reported.append((done, total)))
    assert list(verifier.problems()) == []
    assert reported == sorted(reported)
    assert reported[-1] == (verifier.bytes, verifier.bytes)


def test_a_lake_without_a_catalog_has_no_problems_and_no_rows(tmp_path: Path) -> None:
    verifier = Verifier(open_store(str(tmp_path)))
    assert list(verifier.problems()) == []
    assert verifier.segments == 0


@pytest.mark.parametrize("seed", range(40))
def test_any_flipped_bit_of_a_segment_is_found(lake: Path, seed: int) -> None:
    random = Random(seed)
    path = random.choice(segments(lake))
    bit = random.randrange(path.stat().st_size * 8)

    def flip(data: bytearray) -> None:
        data[bit // 8] ^= 1 << bit % 8

    spoil(path, flip)
    found = problems(open_store(str(lake)))
    assert found
    assert all(path.name in line for line in found), found


@pytest.mark.parametrize("left", [0, 1, 100, -1])
def test_a_segment_that_was_cut_short_is_found(lake: Path, left: int) -> None:
    path = segments(lake)[0]
    spoil(path, lambda data: data.__delitem__(slice(left, None)))
    found = problems(open_store(str(lake)))
    assert found
    assert all(path.name in line for line in found), found


def test_a_segment_that_has_grown_is_found_or_harmless(lake: Path) -> None:
    """Readers use the size in the catalog, so they never see the bytes after it."""
    spoil(segments(lake)[0], lambda data: data.extend(b"more"))
    assert problems(open_store(str(lake))) == []


def test_a_missing_segment_is_found(lake: Path) -> None:
    path = segments(lake)[1]
    path.unlink()
    assert problems(open_store(str(lake))) == [f"segments/shard=0/{path.name}: the object is missing"]


@pytest.mark.parametrize("kind", ["deletes", "forks"])
def test_a_missing_table_is_found(lake: Path, kind: str) -> None:
    path = a_table(lake, kind)
    path.unlink()
    assert problems(open_store(str(lake))) == [f"{path.relative_to(lake)}: it is missing"]


@pytest.mark.parametrize("kind", ["deletes", "forks"])
def test_damage_to_the_pages_of_a_table_is_found_and_segments_are_verified_too(lake: Path, kind: str) -> None:
    path = a_table(lake, kind)
    spoil(path, lambda data: data.__setitem__(40, data[40] ^ 1))
    missing = segments(lake)[0]
    missing.unlink()
    found = problems(open_store(str(lake)))
    assert len(found) == 2, found
    assert path.name in found[0]
    assert missing.name in found[1]


@pytest.mark.parametrize("left", [0, 1, 100, -1])
@pytest.mark.parametrize("ending", [".metadata.json", "-list.avro", "-data.avro", "-deletes.avro"])
def test_metadata_that_was_cut_short_is_found(lake: Path, left: int, ending: str) -> None:
    path = max(lake.glob(f"messages/metadata/*{ending}"))
    spoil(path, lambda data: data.__delitem__(slice(left, None)))
    [found] = problems(open_store(str(lake)))
    assert found.startswith(f"messages/metadata/{path.name}: it")


@pytest.mark.parametrize("seed", range(20))
def test_any_flipped_bit_of_what_a_snapshot_needs_is_found(lake: Path, seed: int) -> None:
    random, catalog = Random(seed), catalog_of(lake)
    newest = [max(lake.glob(f"messages/metadata/*{end}")) for end in (".metadata.json", "-list.avro", "-data.avro")]
    path = random.choice([*newest, lake / catalog.forks_key, a_table(lake, "deletes")])
    bit = random.randrange(path.stat().st_size * 8)

    def flip(data: bytearray) -> None:
        data[bit // 8] ^= 1 << bit % 8

    spoil(path, flip)
    assert any(path.name in line for line in problems(open_store(str(lake))))


@pytest.mark.parametrize(
    ("fact", "change"),
    [
        ("id", lambda old: f"{old}0"),
        ("first_position", lambda old: old + 1),
        ("last_position", lambda old: old - 1),
        ("first_at", lambda old: old + 1),
        ("last_at", lambda old: old + 1),
        ("first_name", lambda old: f"{old}!"),
        ("last_name", lambda old: f"{old}!"),
        ("rows", lambda old: old + 1),
        ("payload_bytes", lambda old: old + 1),
        ("size", lambda old: old - 1),
        ("footer_bytes", lambda old: old - 1),
        ("footer_bytes", lambda old: old * 1000),
        ("footer_crc", lambda old: old ^ 1),
        ("low_stream", lambda old: f"{old}!"),
        ("high_stream", lambda old: old[:-1]),
        ("low_incarnation", lambda old: old + 1),
        ("high_incarnation", lambda old: old - 1),
        ("high_offset", lambda old: old - 1),
        ("live_rows", lambda old: -1),
        ("live_rows", lambda old: 0),
    ],
)
def test_a_wrong_fact_in_the_catalog_is_found(lake: Path, fact: str, change: Callable[[Any], Any]) -> None:
    catalog, store = catalog_of(lake), open_store(str(lake))
    number = max(
        range(len(catalog.segments)),
        key=lambda at: (catalog.segments[at].deletes is not None, catalog.segments[at].live_rows),
    )
    listed = catalog.segments[number]
    if fact == "live_rows":
        listed = replace(listed, live_rows=change(listed.live_rows))
    else:
        segment = replace(listed.segment, **{fact: change(getattr(listed.segment, fact))})
        listed = replace(listed, segment=segment)
    relist(store, replace(catalog, segments=[*catalog.segments[:number], listed, *catalog.segments[number + 1 :]]))
    assert problems(store)


def test_a_file_of_deleted_rows_that_belongs_to_another_segment_is_found(lake: Path) -> None:
    catalog, store = catalog_of(lake), open_store(str(lake))
    files = [one.deletes for one in catalog.segments if one.deletes is not None]
    turned = [replace(one, deletes=files.pop()) if one.deletes else one for one in catalog.segments]
    relist(store, replace(catalog, segments=turned))
    assert any("another segment" in line for line in problems(store))


@pytest.mark.parametrize(("fact", "value"), [("position", 1), ("shard", 7), ("flushed", 10**6), ("dropped", 10**6)])
def test_a_wrong_position_in_the_catalog_is_found(lake: Path, fact: str, value: int) -> None:
    store = open_store(str(lake))
    relist(store, replace(catalog_of(lake), **{fact: value}))
    assert problems(store)


def test_a_store_that_fails_is_not_taken_for_damage(lake: Path) -> None:
    store = FaultyStore(open_store(str(lake)))
    store.fail_next("read", in_key="segments/")
    with pytest.raises(StoreFailed):
        problems(store)


def test_a_segment_that_was_replaced_meanwhile_is_not_missed(lake: Path) -> None:
    """A running server may delete it once a newer catalog exists."""
    store = open_store(str(lake))
    path = segments(lake)[0]
    # Segments are read in the order of the catalog; delete the last one after the first was read.
    catalog = catalog_of(lake)
    ordered = sorted(catalog.segments, key=lambda listed: listed.key.endswith(path.name))
    relist(store, replace(catalog, segments=ordered))

    def swap(done: int, total: int) -> None:
        if path.exists():
            path.unlink()
            relist(store, replace(catalog, segments=ordered[:-1]))

    verifier = Verifier(store, progress=swap)
    assert list(verifier.problems()) == []
    assert not path.exists()
    assert not verifier.whole


# -- Lives over several segments ---------------------------------------------------------------------------------------


def part(offset: int, record: int, *sizes: int, incarnation: int = 1, later: int = 0) -> Life:
    """A part of the life of b/s."""
    made = life("b/s", incarnation, [NewAppend([b"x" * size]) for size in sizes], offset, record)
    moved = [replace(hot, position=hot.position + later, at=hot.at + later) for hot in made.appends]
    return made._replace(appends=moved)


def tombstone(below: int) -> list[TombstoneRow]:
    return [TombstoneRow("b/s", 1, below)]


FIRST_PART = part(0, 0, 3, 3)
NEXT_PART = part(6, 2, 4, later=10)


def lines(*parts: Life, **facts: Any) -> list[str]:
    """The problems of a life whose parts are each in their own segment."""
    return problems(lake_of(*([table_of(part)] for part in parts), **facts))


def test_a_life_continues_from_segment_to_segment() -> None:
    assert lines(FIRST_PART, NEXT_PART) == []
    assert lines(NEXT_PART, FIRST_PART) == []


def test_a_gap_between_segments_is_found() -> None:
    [found] = lines(FIRST_PART, part(7, 2, 4, later=10))
    assert "the bytes of 'b/s' (incarnation 1) from 6 to 7 are missing" in found


def test_bytes_in_two_segments_are_found() -> None:
    [found] = lines(FIRST_PART, part(3, 1, 4, later=10))
    assert "from 3 to 6 are in two places" in found


def test_the_same_rows_twice_are_found() -> None:
    assert len(lines(FIRST_PART, FIRST_PART)) == 1


def test_records_that_do_not_continue_are_found() -> None:
    [found] = lines(FIRST_PART, part(6, 5, 4, later=10))
    assert "continue with 5, not with 2" in found


def test_positions_that_go_back_between_segments_are_found() -> None:
    [found] = lines(part(0, 0, 3, 3, later=10), part(6, 2, 4))
    assert "the positions of 'b/s' (incarnation 1) go back" in found


def test_another_life_of_the_name_begins_at_zero_again() -> None:
    assert lines(FIRST_PART, part(0, 0, 9, incarnation=20), tombstones=tombstone(ALL), live_rows=2) == []


def test_a_life_may_begin_anywhere() -> None:
    """Bytes that were trimmed while in memory never reached the lake."""
    assert lines(part(100, 7, 3)) == []


def test_dead_rows_may_have_gaps() -> None:
    assert lines(FIRST_PART, part(9, 3, 4, later=10), tombstones=tombstone(9)) == []
    assert lines(FIRST_PART, part(9, 3, 4, later=10), tombstones=tombstone(ALL), live_rows=0) == []


def test_live_rows_have_no_gaps_even_if_others_are_dead() -> None:
    assert len(lines(FIRST_PART, part(9, 3, 4, later=10), tombstones=tombstone(3))) == 1


def test_more_live_rows_than_the_catalog_counts_are_found() -> None:
    [found] = lines(part(0, 0, 3, 3, 3), tombstones=tombstone(3), live_rows=1)
    assert "2 rows are live, but the catalog counts 1" in found


def test_fewer_live_rows_than_the_catalog_counts_are_not_a_problem() -> None:
    """The catalog counts whole extents, and rows that only forks need."""
    assert lines(FIRST_PART, tombstones=tombstone(3), live_rows=2) == []


# -- Forks -------------------------------------------------------------------------------------------------------------


def fork(start: int, to: int, source: int = 1) -> list[ForkRow]:
    return [ForkRow("b/fork", 30, False, "b/s", source, start, to, 0, 99)]


def test_the_bytes_that_a_fork_needs_are_found() -> None:
    assert lines(FIRST_PART, NEXT_PART, forks=fork(0, 8)) == []
    assert lines(FIRST_PART, NEXT_PART, forks=fork(0, 8), tombstones=tombstone(ALL), live_rows=2) == []


@pytest.mark.parametrize("parts", [[NEXT_PART], [FIRST_PART], [FIRST_PART, part(7, 2, 4, later=10)]])
def test_bytes_that_a_fork_misses_of_a_dead_source_are_found(parts: list[Life]) -> None:
    found = lines(*parts, forks=fork(0, 8), tombstones=tombstone(ALL), live_rows=2)
    assert len(found) == 1, found


def pinned_records(start: int, to: int) -> list[ForkRow]:
    """A fork of six bytes, for which the server has pinned these records: right would be 0 to 2."""
    return [ForkRow("b/fork", 30, False, "b/s", 1, 0, 6, start, to)]


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        ((0, 2), ""),
        ((0, 0), "the table of pinned rows lists no rows of it, but forks need some"),
        ((0, 1), "its rows are not those that no fork needs"),
        ((0, 9), "its rows are not those that no fork needs"),
    ],
)
def test_the_pinned_rows_are_exactly_those_that_forks_need(records: tuple[int, int], problem: str) -> None:
    """Three rows, of which the fork has two; another stream is alive beside them."""
    alive = life("b/t", 2, [NewAppend([b"alive"])], 0, 0)
    rows = table_of(part(0, 0, 3, 3, 3), alive)
    found = problems(lake_of([rows], forks=pinned_records(*records), tombstones=tombstone(ALL), live_rows=4))
    assert len(found) == bool(problem)
    assert problem in "".join(found)


def test_whenever_a_server_is_killed_at_its_first_commit_the_lake_is_intact() -> None:
    written = lake_of([table_of(part(0, 0, 3, 3))])
    killed = MemoryStore()
    for key, data in written._objects.items():  # In the order in which they were stored.
        assert problems(killed) == []
        killed.create(key, data)
    assert problems(killed) == []
    assert read_catalog(killed) is not None


def test_a_source_that_is_missing_entirely_is_found() -> None:
    [found] = lines(FIRST_PART, forks=fork(0, 6, source=5))
    assert "the fork 'b/fork' needs bytes 0 to 6 of 'b/s', of which the lake has 0 to 0" in found


def test_bytes_that_were_not_flushed_yet_are_not_missed() -> None:
    assert lines(FIRST_PART, forks=fork(0, 8), flushed=29) == []


def test_an_invalid_fork_is_found() -> None:
    assert any("is invalid" in line for line in lines(FIRST_PART, forks=fork(9, 8)))
    loop = [ForkRow("b/x", 30, False, "b/y", 31, 0, 5), ForkRow("b/y", 31, False, "b/x", 30, 0, 5)]
    assert any("its own ancestor" in line for line in lines(FIRST_PART, forks=loop))
