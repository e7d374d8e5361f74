"""Segments are read back as written, and damage of any kind is detected."""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from headwater.lake.format import GROUP_BYTES, SCHEMA
from headwater.lake.segments import writer
from headwater.lake.segments.reader import (
    SERVED,
    Footer,
    Group,
    GroupRows,
    Read,
    SegmentDamaged,
    read_all,
    read_footer,
    read_group,
    read_groups,
)
from headwater.lake.segments.writer import Written
from headwater.streams.segments import Extent, Segment

from ..lives import (
    ID,
    LIMITS,
    RANDOMLY,
    Life,
    Limits,
    NewAppend,
    extent_of,
    life,
    limited,
    plain,
    reading,
    rows_of,
    run_of,
    runs,
    some_lives,
    write,
)

MIXED = [
    life("b/bytes", 1, [NewAppend([b"one"]), NewAppend([b"2"]), NewAppend([b"three"])], offset=50, record=9),
    life("b/json", 10, [NewAppend([b"{}", b'"b"', b"3"]), NewAppend([b"null"])]),
    life("b/other", 20, [NewAppend([b"x"])]),
]
SMALL = Limits(4, 4)
WITHOUT_PAYLOAD = [name for name in SCHEMA.names if name != "payload"]


def footer_of(written: Written) -> Footer:
    return read_footer(reading(written.data), written.segment)


def read_everything(read: Read, segment: Segment) -> pa.Table:
    return pa.concat_tables(read_all(read, segment))


# -- Reading back ----------------------------------------------------------------------------------------------------


@RANDOMLY
@given(some_lives(), LIMITS)
def test_every_life_is_read_back_message_by_message(lives: list[Life], limits: Limits) -> None:
    data, segment, rows = write(lives, limits)
    for one, its_rows in zip(lives, rows, strict=True):
        appends = list(one.appends)
        for run in runs(data, segment, extent_of(its_rows), its_rows.start, its_rows.end):
            count = sum(hot.offset < run.end for hot in appends)
            assert run == run_of(appends[:count])
            del appends[:count]
        assert appends == []


@RANDOMLY
@given(some_lives(), LIMITS, st.data())
def test_a_range_is_found_in_the_pieces_that_may_hold_it(
    lives: list[Life], limits: Limits, draw: st.DataObject
) -> None:
    data, segment, rows = write(lives, limits)
    its_rows = draw.draw(st.sampled_from(rows))
    start = draw.draw(st.integers(its_rows.start, its_rows.end - 1))
    end = draw.draw(st.integers(start + 1, its_rows.end))
    found = runs(data, segment, extent_of(its_rows), start, end)
    assert found[0].offset <= start < found[0].end
    assert found[-1].offset < end <= found[-1].end
    assert [run.offset for run in found[1:]] == [run.end for run in found[:-1]]


@RANDOMLY
@given(some_lives(), LIMITS)
def test_all_rows_are_read_group_by_group(lives: list[Life], limits: Limits) -> None:
    written = write(lives, limits)
    tables = list(read_all(reading(written.data), written.segment))
    assert [len(table) for table in tables] == [group.rows for group in footer_of(written).groups]
    assert all(table.schema.equals(SCHEMA, check_metadata=True) for table in tables)
    assert pa.concat_tables(tables).to_pylist() == rows_of(lives)


def test_a_run_is_of_any_rows_of_one_stream() -> None:
    written = write(MIXED)
    group = Group("id", read_group(reading(written.data), footer_of(written), 0))
    assert group.run(1, 2) == run_of(MIXED[0].appends[1:])
    assert group.run(3, 3) == run_of(MIXED[1].appends[:1])
    assert group.run(3, 4) == run_of(MIXED[1].appends)
    assert group.run(7, 1) == run_of(MIXED[2].appends)


def test_a_run_of_more_than_one_stream_or_of_no_rows_is_refused() -> None:
    written = write(MIXED)
    group = Group("id", read_group(reading(written.data), footer_of(written), 0))
    for row, rows in ((2, 2), (0, 8), (7, 2), (-1, 1), (0, 0)):
        with pytest.raises(SegmentDamaged, match="of segment 'id'"):
            group.run(row, rows)


def test_a_group_is_served_from_a_table_that_came_in_chunks() -> None:
    data, segment, _ = write(MIXED, SMALL)
    table = read_everything(reading(data), segment)
    assert table["payload"].num_chunks > 1
    assert Group("id", table).run(3, 4) == run_of(MIXED[1].appends)


def test_a_footer_and_a_group_cost_one_exact_read_each() -> None:
    data, segment, _ = write(MIXED, SMALL)
    reads = []

    def read(start: int, size: int) -> bytes:
        reads.append((start, size))
        return data[start : start + size]

    footer = read_footer(read, segment)
    table = read_group(read, footer, 1, SERVED)
    assert table.column_names == list(SERVED)
    assert reads == [
        (segment.size - segment.footer_bytes, segment.footer_bytes),
        (footer.groups[1].start, footer.groups[1].size),
    ]


@pytest.mark.parametrize("columns", [None, SERVED, WITHOUT_PAYLOAD])
def test_row_groups_that_are_decoded_together_are_contiguous(columns: Sequence[str] | None) -> None:
    data, _, _ = written = write(MIXED, SMALL)
    footer = footer_of(written)
    indexes = range(len(footer.groups))
    assert len(indexes) > 2
    table = read_groups(reading(data), footer, indexes, columns)
    assert all(column.num_chunks == 1 for column in table.columns)
    apart = pa.concat_tables(read_group(reading(data), footer, index, columns) for index in indexes)
    assert table.equals(apart)


def test_without_payloads_only_the_bytes_before_them_are_read() -> None:
    data, _, _ = written = write(MIXED, SMALL)
    footer, reads = footer_of(written), []

    def read(start: int, size: int) -> bytes:
        reads.append((start, size))
        return data[start : start + size]

    for index, group in enumerate(footer.groups):
        table = read_group(read, footer, index, WITHOUT_PAYLOAD)
        assert table.equals(read_group(reading(data), footer, index).select(WITHOUT_PAYLOAD))
        assert reads[-1][0] == group.start
        assert 0 < reads[-1][1] < group.size
    assert len(reads) == len(footer.groups)


def test_footers_and_groups_know_their_cost() -> None:
    written = write([plain("b/s", 1, GROUP_BYTES, GROUP_BYTES)])
    footer = footer_of(written)
    group = Group("id", read_group(reading(written.data), footer, 0))
    assert written.segment.footer_bytes < footer.cost_bytes < 50_000
    assert GROUP_BYTES < group.cost_bytes < 1.2 * GROUP_BYTES


# -- Which groups ------------------------------------------------------------------------------------------------------

LARGE = [plain("b/1", 1, 5), plain("b/2", 10, *[100] * 5, 50), plain("b/3", 20, 3)]
"""Cut by 200 bytes: b/1 | 200 of b/2 | 200 of b/2 | 150 of b/2, then b/3."""


@pytest.mark.parametrize(
    ("start", "end", "pieces"),
    [
        (0, 550, [(1, 0, 2), (2, 0, 2), (3, 0, 2)]),
        (0, 1, [(1, 0, 2)]),
        (0, 200, [(1, 0, 2)]),
        (199, 201, [(1, 0, 2), (2, 0, 2)]),
        (200, 400, [(2, 0, 2)]),
        (399, 400, [(2, 0, 2)]),
        (400, 401, [(3, 0, 2)]),
        (549, 900, [(3, 0, 2)]),
        (550, 900, []),
        (100, 100, []),
    ],
)
def test_only_the_groups_that_hold_a_range_are_taken(start: int, end: int, pieces: list[tuple[int, int, int]]) -> None:
    written = write(LARGE, Limits(200, 100))
    footer = footer_of(written)
    assert [group.rows for group in footer.groups] == [1, 2, 2, 3]
    assert footer.locate(extent_of(written.rows[1]), start, end) == [GroupRows(*piece) for piece in pieces]


def test_a_life_that_begins_and_ends_among_others_is_taken_whole() -> None:
    with limited(Limits(100, 100)) as segment_writer:
        segment_writer.add(*plain("b/1", 1, 60))
        name, incarnation, content_type, appends = plain("b/2", 10, 40, 40)
        segment_writer.add(name, incarnation, content_type, appends[:1])
        segment_writer.add(name, incarnation, content_type, appends[1:])
        segment_writer.add(*plain("b/3", 20, 1))
        written = segment_writer.finish()
    footer, extent = footer_of(written), extent_of(written.rows[1])
    assert footer.locate(extent, 0, 1) == footer.locate(extent, 79, 80) == [GroupRows(0, 1, 1), GroupRows(1, 0, 1)]


@pytest.mark.parametrize(("shared", "start", "group"), [(60, 10, 0), (60, 40, 1), (60, 119, 1)])
def test_a_life_that_begins_among_others_is_located_by_a_group_of_its_own(shared: int, start: int, group: int) -> None:
    with limited(Limits(100, 100)) as segment_writer:
        segment_writer.add(*plain("b/1", 1, shared))
        name, incarnation, content_type, appends = plain("b/2", 10, 40, 80)
        segment_writer.add(name, incarnation, content_type, appends[:1])
        segment_writer.add(name, incarnation, content_type, appends[1:])
        written = segment_writer.finish()
    pieces = footer_of(written).locate(extent_of(written.rows[1]), start, start + 1)
    assert [piece.group for piece in pieces] == [group]


@pytest.mark.parametrize(("record", "piece"), [(0, (1, 0, 2)), (1, (1, 0, 2)), (2, (2, 0, 2)), (5, (3, 0, 2))])
def test_a_record_is_found_in_the_piece_that_holds_it(record: int, piece: tuple[int, int, int]) -> None:
    written = write(LARGE, Limits(200, 100))
    assert footer_of(written).locate_record(extent_of(written.rows[1]), record) == GroupRows(*piece)


def test_rows_that_a_segment_does_not_have_are_damage() -> None:
    footer = footer_of(write(MIXED))
    assert footer.groups_of(0, 8) == range(1)
    for row, rows in ((0, 9), (8, 1), (-1, 2), (3, 0)):
        with pytest.raises(SegmentDamaged, match="has no rows"):
            footer.locate(Extent(0, row, rows, 0, 9, 0), 0, 9)


# -- Damage ------------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_is_found() -> None:
    data, segment, _ = written = write(MIXED[:2], Limits(9, 9))
    footer = footer_of(written)
    assert len(footer.groups) > 1
    damaged = bytearray(data)

    def flip(start: int, size: int, read: Callable[[], object]) -> None:
        for at in range(start, start + size):
            for bit in range(8):
                damaged[at] ^= 1 << bit
                with pytest.raises(SegmentDamaged, match="checksum does not match"):
                    read()
                damaged[at] ^= 1 << bit

    def read(start: int, size: int) -> bytes:
        return bytes(damaged[start : start + size])

    for index, group in enumerate(footer.groups):
        flip(group.start, group.size, partial(read_group, read, footer, index))
    flip(segment.size - segment.footer_bytes, segment.footer_bytes, partial(read_footer, read, segment))
    assert read_everything(read, segment).to_pylist() == rows_of(MIXED[:2])


def test_a_flipped_bit_before_the_payloads_is_found_or_harmless() -> None:
    data, _, _ = written = write(MIXED[:2], Limits(9, 9))
    footer, damaged, found = footer_of(written), bytearray(data), 0
    good = read_group(reading(data), footer, 0, WITHOUT_PAYLOAD)
    group = footer.groups[0]
    for at in range(group.start, group.start + group.size):
        damaged[at] ^= 1 << at % 8
        try:
            read = read_group(lambda start, size: bytes(damaged[start : start + size]), footer, 0, WITHOUT_PAYLOAD)
        except SegmentDamaged:
            found += 1
        else:
            assert read.equals(good)
        damaged[at] ^= 1 << at % 8
    assert found > group.size // 2


LARGER = write(
    [life(f"b/{index}", 10 * index, [NewAppend([b"%d" % index] * 50)] * 3) for index in range(9)], Limits(200, 99)
)


@RANDOMLY
@given(st.randoms(use_true_random=False), st.integers(1, 64))
def test_damage_of_any_kind_is_found_in_a_larger_segment(random: Random, length: int) -> None:
    data, segment, _ = LARGER
    at = random.randrange(len(data) - length)
    junk = random.randbytes(length)
    if junk != data[at : at + length]:
        with pytest.raises(SegmentDamaged):
            list(read_all(reading(data[:at] + junk + data[at + length :]), segment))


def test_damage_is_found_before_anything_is_decoded() -> None:
    data, segment, _ = written = write(MIXED)
    footer = footer_of(written)
    never = AssertionError("looked into damaged bytes")
    with patch.object(pq, "ParquetFile", side_effect=never), pytest.raises(SegmentDamaged, match="row group 0"):
        read_group(reading(b"?" + data[1:]), footer, 0)
    with patch.object(pq, "read_metadata", side_effect=never), pytest.raises(SegmentDamaged, match="footer"):
        read_footer(reading(data[:-1] + b"?"), segment)


def test_a_segment_that_was_cut_short_is_damaged() -> None:
    data, segment, _ = write(MIXED, SMALL)
    for size in range(0, len(data), 7):
        with pytest.raises(SegmentDamaged, match="bytes, not"):
            list(read_all(reading(data[:size]), segment))


def test_a_group_that_cannot_be_decoded_is_damaged() -> None:
    footer = footer_of(write(MIXED, SMALL))
    group = footer.groups[0]
    zeros = bytes(group.size)
    footer.groups[0] = group._replace(crc=crc32c(zeros))
    with pytest.raises(SegmentDamaged, match=f"Row group 0 of segment '{ID}' cannot be decoded"):
        read_group(lambda start, size: zeros, footer, 0)


def test_a_footer_that_points_elsewhere_is_damage() -> None:
    written = write(MIXED, SMALL)
    footer = footer_of(written)
    footer.groups[0] = footer.groups[1]
    with pytest.raises(SegmentDamaged, match="outside the row group"):
        read_group(reading(written.data), footer, 0)


def test_a_group_with_another_number_of_rows_is_damaged() -> None:
    written = write(MIXED)
    footer = footer_of(written)
    footer.groups[0] = footer.groups[0]._replace(rows=7)
    with pytest.raises(SegmentDamaged, match="has 8 rows, not 7"):
        read_group(reading(written.data), footer, 0)


def test_a_footer_of_another_segment_is_damage() -> None:
    data, segment, _ = write(MIXED)
    with pytest.raises(SegmentDamaged, match="belongs to another segment"):
        read_footer(reading(data), msgspec.structs.replace(segment, rows=7))


@pytest.mark.parametrize(
    ("constant", "value", "problem"),
    [
        ("VERSION", "3", "has schema '3'; this version reads schema 2"),
        ("VERSION_KEY", "other", "cannot be decoded"),
        ("GROUPS_KEY", "other", "cannot be decoded"),
    ],
)
def test_a_footer_of_another_kind_is_refused(constant: str, value: str, problem: str) -> None:
    with patch.object(writer, constant, value):
        written = write(MIXED)
    with pytest.raises(SegmentDamaged, match=problem):
        footer_of(written)


def test_a_store_that_fails_is_not_damage() -> None:
    def read(start: int, size: int) -> bytes:
        raise OSError("the store is away")

    written = write(MIXED)
    with pytest.raises(OSError, match="the store is away"):
        read_footer(read, written.segment)
    with pytest.raises(OSError, match="the store is away"):
        read_group(read, footer_of(written), 0)
