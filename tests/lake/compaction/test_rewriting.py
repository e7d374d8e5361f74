"""Rewriting: every row that is needed is kept, no other, and the outputs are cut where they may be."""

from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.lake.compaction import rewriting
from headwater.lake.compaction.rewriting import Cuts, Keep, Rewritten, rewrite
from headwater.lake.segments.reader import Read, SegmentDamaged
from headwater.lake.segments.writer import Written
from headwater.streams.hot import Hot
from headwater.streams.segments import Segment

from ..lives import LIMITS, NAMES, RANDOMLY, Life, Limits, NewAppend, life, limited, reading, rows_of
from ..rewrites import ALL_LIVE, EVERYTHING, LARGE, merge, segment

# -- A history, flush by flush -----------------------------------------------------------------------------------------


class History(NamedTuple):
    """Lives spread over segments, and the offsets below which their rows are dead."""

    lives: list[Life]
    """Each with the appends that reached the lake; a missing one was trimmed while it was hot."""
    sources: list[Written]
    dead_below: dict[int, int]


@st.composite
def histories(draw: st.DrawFn) -> History:
    names = sorted(draw(st.lists(NAMES, min_size=1, max_size=5, unique=True)))
    position = 1000
    offsets: dict[int, tuple[int, int]] = {}
    incarnations: dict[str, int] = {}
    written: dict[int, Life] = {}
    sources = []
    for flush in range(draw(st.integers(1, 5))):
        parts = []
        for name in names:
            if name not in incarnations or draw(st.integers(0, 5)) == 0:
                position += 1
                incarnations[name] = position
                offsets[position] = draw(st.sampled_from([(0, 0), (7, 2)]))
            incarnation = incarnations[name]
            planned = []
            for _ in range(draw(st.integers(0, 4))):
                lengths = draw(st.lists(st.integers(1, 20), min_size=1, max_size=3))
                planned.append(NewAppend([bytes([97 + position % 26]) * length for length in lengths]))
            made = [_at(hot, position + 1 + at) for at, hot in enumerate(_follow(name, planned, offsets[incarnation]))]
            position += len(made)
            if made:
                offsets[incarnation] = made[-1].end, made[-1].record + made[-1].messages
                made = made[draw(st.sampled_from([0, 0, 0, 1])) :]
            if made:
                parts.append(Life(name, incarnation, "application/json", made))
                before = written.get(incarnation, Life(name, incarnation, "application/json", []))
                written[incarnation] = before._replace(appends=before.appends + made)
        for index, cut in enumerate(_cut(parts, draw(st.integers(0, 20)))):
            sources.append(segment(f"19a89f62001a{flush}{index}", cut, draw(LIMITS)))
    dead_below = {
        incarnation: draw(st.just(0) | st.just(EVERYTHING) | st.integers(0, one.appends[-1].end))
        for incarnation, one in written.items()
    }
    lives = sorted(written.values(), key=lambda one: (one.name, one.incarnation))
    return History(lives, draw(st.permutations(sources)), dead_below)


def _follow(name: str, planned: list[NewAppend], begins: tuple[int, int]) -> list[Hot]:
    return life(name, 0, planned, *begins).appends


def _at(hot: Hot, position: int) -> Hot:
    return Hot(hot.offset, hot.payload, hot.ends, hot.record, position, hot.at, hot.producer)


def _cut(parts: list[Life], appends: int) -> list[list[Life]]:
    """A flush as two segments, the first with this many appends; a life may be in both."""
    first, second = [], []
    for one in parts:
        taken, left = one.appends[:appends], one.appends[appends:]
        appends -= len(taken)
        if taken:
            first.append(one._replace(appends=taken))
        if left:
            second.append(one._replace(appends=left))
    return [cut for cut in (first, second) if cut]


def kept_of(one: Life, dead_below: int, lowest_consumer: int) -> Life:
    return one._replace(appends=[hot for hot in one.appends if hot.end > dead_below or hot.position > lowest_consumer])


HISTORIES = histories().filter(lambda history: bool(history.sources))
LOWEST = st.just(EVERYTHING) | st.integers(1000, 1060)
CUTS = st.builds(Cuts, st.integers(1, 200), st.integers(1, 4)) | st.just(LARGE)


@RANDOMLY
@given(HISTORIES, LOWEST, CUTS, LIMITS, st.sampled_from([1, 50, rewriting.PENDING_BYTES]))
def test_a_rewrite_keeps_every_row_that_is_needed_and_no_other(
    history: History, lowest: int, cuts: Cuts, limits: Limits, pending_bytes: int
) -> None:
    keep = Keep(lambda name, incarnation: history.dead_below[incarnation], lowest)
    with patch.object(rewriting, "PENDING_BYTES", pending_bytes):
        outcome = merge(history.sources, keep, cuts, limits)
    kept = [kept_of(one, history.dead_below[one.incarnation], lowest) for one in history.lives]
    found = sorted(
        (row for rows in outcome.rows for row in rows),
        key=lambda row: (f"{row['bucket']}/{row['stream']}", row["incarnation"], row["offset"]),
    )
    assert found == rows_of(kept)
    gone = [
        hot.position
        for one, left in zip(history.lives, kept, strict=True)
        for hot in one.appends[: -len(left.appends) or None]
    ]
    assert outcome.result.dropped == max(gone, default=0)
    assert outcome.result.rows_read == len(rows_of(history.lives))
    assert outcome.result.rows_dropped == len(rows_of(history.lives)) - len(found)


@RANDOMLY
@given(HISTORIES, LOWEST, CUTS, LIMITS)
def test_the_outputs_are_cut_at_lives_and_cover_the_positions_of_all_sources(
    history: History, lowest: int, cuts: Cuts, limits: Limits
) -> None:
    keep = Keep(lambda name, incarnation: history.dead_below[incarnation], lowest)
    outcome = merge(history.sources, keep, cuts, limits)
    first = min(written.segment.first_position for written in history.sources)
    last = max(written.segment.last_position for written in history.sources)
    stretches = defaultdict(list)
    for written in outcome.outputs:
        assert (written.segment.first_position, written.segment.last_position) == (first, last)
        assert len(written.rows) <= cuts.streams_max
        assert sum(rows.end - rows.start for rows in written.rows[:-1]) < cuts.segment_bytes
        for rows in written.rows:
            stretches[rows.incarnation].append((rows.start, rows.end))
    assert len({written.segment.id for written in outcome.outputs}) == len(outcome.outputs)
    for found in stretches.values():
        found.sort()
        apart = [after[0] > before[1] for before, after in pairwise(found)]
        assert all(apart), "a life is in two outputs only where it has a gap"


# -- Examples ----------------------------------------------------------------------------------------------------------


def text(name: str, incarnation: int, *appends: tuple[int, bytes, int]) -> Life:
    """A life of appends (offset, payload, position)."""
    hot = [Hot(offset, payload, None, offset, position, position, None) for offset, payload, position in appends]
    return Life(name, incarnation, "text/plain", hot)


def test_names_are_merged_as_a_whole_and_not_bucket_by_bucket() -> None:
    one = segment("19a89f62001a", [text("team-a/x", 1, (0, b"1", 10)), text("team/x", 2, (0, b"2", 11))])
    two = segment("19a89f62001b", [text("team-a/y", 3, (0, b"3", 20)), text("team/a", 4, (0, b"4", 21))])
    [rows] = merge([one, two]).rows
    assert [row["payload"] for row in rows] == [b"1", b"3", b"4", b"2"]


def test_the_lives_of_one_name_stay_apart() -> None:
    one = segment("19a89f62001a", [text("a/x", 1, (0, b"old", 10))])
    two = segment("19a89f62001b", [text("a/x", 15, (0, b"new", 20))])
    [written] = merge([two, one]).outputs
    assert [(rows.incarnation, rows.start, rows.end) for rows in written.rows] == [(1, 0, 3), (15, 0, 3)]


def test_an_append_that_is_needed_in_part_is_kept_whole() -> None:
    several = life("a/x", 1, [NewAppend([b"aa", b"bb", b"cc"]), NewAppend([b"dd"])])
    outcome = merge([segment("19a89f62001a", [several])], Keep(lambda *_: 4, EVERYTHING))
    assert [row["payload"] for row in outcome.rows[0]] == [b"aa", b"bb", b"cc", b"dd"]
    assert outcome.result == Rewritten(4, 0, 0)


def test_dead_rows_that_a_consumer_has_not_read_are_kept() -> None:
    source = segment("19a89f62001a", [text("a/x", 1, (0, b"1", 10), (1, b"2", 11), (2, b"3", 12))])
    outcome = merge([source], Keep(lambda *_: EVERYTHING, 11))
    assert [row["payload"] for row in outcome.rows[0]] == [b"3"]
    assert outcome.result == Rewritten(3, 2, 11)


def test_nothing_is_written_if_all_rows_are_dead() -> None:
    source = segment("19a89f62001a", [text("a/x", 1, (0, b"1", 10))])
    assert merge([source], Keep(lambda *_: EVERYTHING, EVERYTHING)) == ([], Rewritten(1, 1, 10))


def test_rows_after_a_gap_go_into_another_output_cut_at_the_same_names() -> None:
    one = segment("19a89f62001a", [text("a/x", 1, (0, b"1", 10)), text("a/y", 2, (0, b"1", 11))])
    two = segment("19a89f62001b", [text("a/x", 1, (5, b"2", 20)), text("a/y", 2, (5, b"2", 21))])
    outcome = merge([one, two])
    assert [[row["offset"] for row in rows] for rows in outcome.rows] == [[0, 0], [5, 5]]
    outcome = merge([one, two], cuts=Cuts(1, 10))
    assert [[row["offset"] for row in rows] for rows in outcome.rows] == [[0], [5], [0], [5]]


def test_an_output_with_enough_bytes_ends_where_another_bucket_begins() -> None:
    parts = [("a/x", 3), ("a/y", 2), ("b/x", 2), ("c/x", 3), ("c/y", 3), ("d/x", 1)]
    lives = [text(name, number, (0, b"1" * size, 10 + number)) for number, (name, size) in enumerate(parts)]
    outcome = merge([segment("19a89f62001a", lives)], cuts=Cuts(20, 100))
    names = [[f"{row['bucket']}/{row['stream']}" for row in rows] for rows in outcome.rows]
    assert names == [["a/x", "a/y"], ["b/x", "c/x", "c/y"], ["d/x"]]


def test_tombstones_are_read_once_per_life_so_that_a_concurrent_trim_makes_no_gap() -> None:
    sources = [segment(f"19a89f62001a{at}", [text("a/x", 1, (at, b"1", 10 + at))]) for at in range(3)]
    answers = iter([0])
    assert merge(sources, Keep(lambda *_: next(answers), EVERYTHING)).result.rows_dropped == 0


# -- Damage ------------------------------------------------------------------------------------------------------------


def test_damage_in_a_source_is_raised() -> None:
    good = segment("19a89f62001a", [text("a/x", 1, (0, b"1", 10))])
    for at in range(0, len(good.data), 97):
        bad = good._replace(data=good.data[:at] + bytes([good.data[at] ^ 1]) + good.data[at + 1 :])
        with pytest.raises(SegmentDamaged):
            merge([bad])


def test_rows_in_two_sources_are_refused() -> None:
    one = segment("19a89f62001a", [text("a/x", 1, (0, b"12", 10))])
    two = segment("19a89f62001b", [text("a/x", 1, (1, b"2", 10))])
    with pytest.raises(SegmentDamaged, match="Two segments hold rows"):
        merge([one, two])


# -- Memory ------------------------------------------------------------------------------------------------------------


def test_a_merge_of_many_segments_holds_about_a_row_group_of_each() -> None:
    limits = Limits(bytes=32 * 1024)
    sources = []
    for flush in range(64):
        planned = [NewAppend([bytes([flush]) * 1024])] * 4
        lives = [life(f"a/{at:03}", 1 + at, planned, flush * 4096, flush * 4) for at in range(64)]
        sources.append(segment(f"19a89f62001a{flush}", lives, limits))
    payload_bytes = sum(written.segment.payload_bytes for written in sources)
    peak_bytes, before_bytes = 0, pa.total_allocated_bytes()
    objects = {written.segment: reading(written.data) for written in sources}
    outputs: list[Written] = []

    def watched(source: Segment) -> Read:
        def read(start: int, size: int) -> bytes:
            nonlocal peak_bytes
            peak_bytes = max(peak_bytes, pa.total_allocated_bytes() - before_bytes)
            return objects[source](start, size)

        return read

    with patch.multiple(rewriting, PENDING_BYTES=64 * 1024), limited(limits):
        rewrite(
            watched, list(objects), ALL_LIVE, Cuts(2**20, 10_000), new_id=lambda: "19a89f62001x", put=outputs.append
        )
    assert payload_bytes == sum(written.segment.payload_bytes for written in outputs) == 16 * 1024 * 1024
    # 64 row groups of 32 KiB of payload, the same again for their other columns, and the pending and written rows.
    assert 64 * limits.bytes < peak_bytes < 64 * 4 * limits.bytes
