"""Every problem of a lake is reported, and none of an intact lake."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from headwater.lake.catalog import ForkRow, TombstoneRow, seal
from headwater.lake.verify.verifier import Verifier
from headwater.storage.opening import open_store
from headwater.storage.store import StoreFailed
from headwater.streams.cold import ALL
from headwater.testing.faulty_store import FaultyStore

from ..built_lakes import tell_a_story, writing
from ..forged_lakes import lake_of, problems, table_of
from ..lives import Life, NewAppend, life

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


def newest(lake: Path, ending: str) -> Path:
    return max(lake.glob(f"catalog/*/*.{ending}"))


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


@pytest.mark.parametrize("kind", ["tombstones.parquet", "forks.parquet"])
def test_a_missing_table_is_found(lake: Path, kind: str) -> None:
    newest(lake, kind).unlink()
    found = problems(open_store(str(lake)))
    assert found == [f"catalog/shard=0/{newest(lake, 'json').stem}.{kind}: it is missing"]


@pytest.mark.parametrize("kind", ["tombstones.parquet", "forks.parquet"])
def test_damage_to_the_pages_of_a_table_is_found_and_segments_are_verified_too(lake: Path, kind: str) -> None:
    path = newest(lake, kind)
    spoil(path, lambda data: data.__setitem__(40, data[40] ^ 1))
    missing = segments(lake)[0]
    missing.unlink()
    found = problems(open_store(str(lake)))
    assert len(found) == 2, found
    assert path.name in found[0]
    assert missing.name in found[1]


@pytest.mark.parametrize("left", [0, 1, 100, -1])
def test_a_catalog_that_was_cut_short_is_found(lake: Path, left: int) -> None:
    path = newest(lake, "json")
    spoil(path, lambda data: data.__delitem__(slice(left, None)))
    [found] = problems(open_store(str(lake)))
    assert found.startswith(f"catalog/shard=0/{path.name}: it cannot be decoded")


@pytest.mark.parametrize(
    ("fact", "change"),
    [
        ("key", lambda old: old.replace("shard=0/0", "shard=0/1")),
        ("key", lambda old: f"../{old}"),
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
        ("live_rows", lambda old: -1),
        ("live_rows", lambda old: 0),
    ],
)
def test_a_wrong_fact_in_the_catalog_is_found(lake: Path, fact: str, change: Callable[[Any], Any]) -> None:
    path = newest(lake, "json")
    plain = json.loads(path.read_bytes())
    entry = max(plain["segments"], key=lambda entry: entry["live_rows"])
    entry[fact] = change(entry[fact])
    path.write_bytes(seal(plain))
    assert problems(open_store(str(lake)))


@pytest.mark.parametrize(("fact", "value"), [("position", 1), ("shard", 7), ("flushed", 10**6), ("dropped", 10**6)])
def test_a_wrong_position_in_the_catalog_is_found(lake: Path, fact: str, value: int) -> None:
    path = newest(lake, "json")
    path.write_bytes(seal(json.loads(path.read_bytes()) | {fact: value}))
    [found] = problems(open_store(str(lake)))
    assert path.name in found


def test_a_store_that_fails_is_not_taken_for_damage(lake: Path) -> None:
    store = FaultyStore(open_store(str(lake)))
    store.fail_next("read", in_key="segments/")
    with pytest.raises(StoreFailed):
        problems(store)


def test_a_segment_that_was_replaced_meanwhile_is_not_missed(lake: Path) -> None:
    """A running server may delete it once a newer catalog exists."""
    store = open_store(str(lake))
    path = segments(lake)[0]
    catalog = newest(lake, "json")

    def swap(done: int, total: int) -> None:
        facts = json.loads(catalog.read_bytes())
        if path.exists():
            path.unlink()
            left = [entry for entry in facts["segments"] if not entry["key"].endswith(path.name)]
            position = facts["position"] + 1
            newer = catalog.with_name(f"{position:020}-{facts['generation']:010}.json")
            newer.write_bytes(seal(facts | {"segments": left, "position": position}))

    # Segments are read in the order of the catalog; delete the last one after the first was read.
    facts = json.loads(catalog.read_bytes())
    facts["segments"].sort(key=lambda entry: entry["key"].endswith(path.name))
    catalog.write_bytes(seal(facts))
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
    [found] = lines(FIRST_PART, live_rows=1)
    assert "2 rows are live, but the catalog counts 1" in found


def test_fewer_live_rows_than_the_catalog_counts_are_not_a_problem() -> None:
    """The catalog counts whole extents, and rows that only forks need."""
    assert lines(FIRST_PART, tombstones=tombstone(3), live_rows=2) == []


# -- Forks -------------------------------------------------------------------------------------------------------------


def fork(start: int, to: int, source: int = 1) -> list[ForkRow]:
    return [ForkRow("b/fork", 30, False, "b/s", source, start, to)]


def test_the_bytes_that_a_fork_needs_are_found() -> None:
    assert lines(FIRST_PART, NEXT_PART, forks=fork(0, 8)) == []
    assert lines(FIRST_PART, NEXT_PART, forks=fork(0, 8), tombstones=tombstone(ALL), live_rows=2) == []


@pytest.mark.parametrize("parts", [[NEXT_PART], [FIRST_PART], [FIRST_PART, part(7, 2, 4, later=10)]])
def test_bytes_that_a_fork_misses_of_a_dead_source_are_found(parts: list[Life]) -> None:
    found = lines(*parts, forks=fork(0, 8), tombstones=tombstone(ALL), live_rows=2)
    assert len(found) == 1, found


def test_a_source_that_is_missing_entirely_is_found() -> None:
    [found] = lines(FIRST_PART, forks=fork(0, 6, source=5))
    assert "the fork 'b/fork' needs bytes 0 to 6 of 'b/s', of which the lake has 0 to 0" in found


def test_bytes_that_were_not_flushed_yet_are_not_missed() -> None:
    assert lines(FIRST_PART, forks=fork(0, 8), flushed=29) == []


def test_an_invalid_fork_is_found() -> None:
    assert any("is invalid" in line for line in lines(FIRST_PART, forks=fork(9, 8)))
    loop = [ForkRow("b/x", 30, False, "b/y", 31, 0, 5), ForkRow("b/y", 31, False, "b/x", 30, 0, 5)]
    assert any("its own ancestor" in line for line in lines(FIRST_PART, forks=loop))


def test_an_invalid_tombstone_is_found() -> None:
    for tombstones in ([TombstoneRow("b/s", 1, -1)], tombstone(1) * 2, [TombstoneRow("b/s", 10**7, 1)]):
        assert any("is invalid" in line for line in lines(FIRST_PART, tombstones=tombstones))
