"""Segments: their rows, their row groups, the input that is refused, and other readers of Parquet."""

import json
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from headwater.lake.format import GROUP_BYTES, GROUP_ROWS, SCHEMA
from headwater.lake.segments.reader import read_all
from headwater.lake.segments.writer import SegmentWriter
from headwater.protocol.message_ends import pack
from headwater.protocol.producers import Producer
from headwater.streams.hot import Hot
from headwater.streams.segments import Rows, Segment

from ..lives import (
    ID,
    LAST_POSITION,
    LIMITS,
    RANDOMLY,
    USUAL,
    Life,
    Limits,
    NewAppend,
    life,
    limited,
    plain,
    reading,
    rows_of,
    some_lives,
    write,
    write_tables,
)

PRODUCER = Producer("p", 3, 4)
THREE = [
    life("team-a/notes", 7, [NewAppend([b"one"]), NewAppend([b"2"], PRODUCER)], offset=100, record=5),
    life("team/chat", 20, [NewAppend([b"{}", b'"b"', b"3"], Producer("q", 0, 0)), NewAppend([b"null"])]),
    life("team/chät/1", 30, [NewAppend([b"\x00\xff"])]),
]


def rows_in(data: bytes) -> pa.Table:
    return pq.read_table(pa.BufferReader(data)).replace_schema_metadata(None)


def groups_in(data: bytes) -> list[list[int]]:
    metadata = pq.read_metadata(pa.BufferReader(data)).metadata
    groups: list[list[int]] = json.loads(metadata[b"headwater.groups"])
    return groups


def rows_per_group(lives: Sequence[Life], limits: Limits = USUAL) -> list[int]:
    return [rows for _, rows, *_ in groups_in(write(lives, limits).data)]


# -- Rows --------------------------------------------------------------------------------------------------------------


@RANDOMLY
@given(some_lives(), LIMITS)
def test_a_segment_holds_a_row_for_each_message_in_the_public_schema(lives: list[Life], limits: Limits) -> None:
    table = rows_in(write(lives, limits).data)
    assert table.schema.equals(SCHEMA)
    assert table.to_pylist() == rows_of(lives)


@RANDOMLY
@given(some_lives(), LIMITS)
def test_a_segment_lists_the_rows_of_each_life(lives: list[Life], limits: Limits) -> None:
    expected, row = [], 0
    for name, incarnation, _, appends in lives:
        count = sum(hot.messages for hot in appends)
        expected.append(Rows(name, incarnation, row, count, appends[0].offset, appends[-1].end, appends[0].record))
        row += count
    assert write(lives, limits).rows == expected


def test_a_segment_is_described() -> None:
    data, segment, _ = write(THREE)
    *_, (_, _, start, size, _) = groups_in(data)
    assert segment == Segment(
        id=ID,
        first_position=0,
        last_position=LAST_POSITION,
        first_at=1_700_000_000_000_008,
        last_at=1_700_000_000_000_031,
        first_name="team-a/notes",
        last_name="team/chät/1",
        rows=7,
        payload_bytes=16,
        size=len(data),
        footer_bytes=len(data) - start - size,
        footer_crc=segment.footer_crc,
        low_stream="chat",
        high_stream="notes",
        low_incarnation=7,
        high_incarnation=30,
        high_offset=103,
    )


@RANDOMLY
@given(some_lives(), LIMITS)
def test_the_same_rows_give_the_same_bytes(lives: list[Life], limits: Limits) -> None:
    assert write(lives, limits) == write(lives, limits)


@RANDOMLY
@given(some_lives(), LIMITS)
def test_rows_of_a_table_give_the_same_bytes_as_appends(lives: list[Life], limits: Limits) -> None:
    written = write(lives, limits)
    assert write_tables([rows_in(written.data)], limits) == written


def test_appends_and_tables_go_into_one_segment() -> None:
    with limited(USUAL) as writer:
        writer.add(*THREE[0])
        writer.add_table(rows_in(write(THREE[1:2]).data))
        writer.add_table(SCHEMA.empty_table())
        writer.add(*THREE[2])
        assert writer.finish() == write(THREE)


@RANDOMLY
@given(some_lives(), LIMITS)
def test_a_life_may_be_added_in_pieces(lives: list[Life], limits: Limits) -> None:
    with limited(limits) as writer:
        for name, incarnation, content_type, appends in lives:
            for hot in appends:
                writer.add(name, incarnation, content_type, [hot])
        pieces = writer.finish()
    assert pieces.rows == write(lives, limits).rows
    assert rows_in(pieces.data).to_pylist() == rows_of(lives)


@RANDOMLY
@given(some_lives(), LIMITS, LIMITS)
def test_a_segment_is_rewritten_group_by_group(lives: list[Life], before: Limits, after: Limits) -> None:
    written = write(lives, before)
    again = write_tables(read_all(reading(written.data), written.segment), after)
    assert again.rows == written.rows
    assert rows_in(again.data).to_pylist() == rows_of(lives)


# -- Row groups --------------------------------------------------------------------------------------------------------


def cut(lives: Sequence[Life], limits: Limits) -> list[int]:
    """The rows of each group according to the rules, one append at a time."""
    groups: list[list[Hot]] = [[]]

    def weigh(appends: list[Hot]) -> tuple[int, int]:
        return sum(len(hot.payload) for hot in appends), sum(hot.messages for hot in appends)

    def full(appends: list[Hot]) -> bool:
        size, rows = weigh(appends)
        return size > limits.bytes or rows > limits.rows

    def half_full(appends: list[Hot]) -> bool:
        size, rows = weigh(appends)
        return 2 * size >= limits.bytes or 2 * rows >= limits.rows

    for _, _, _, appends in lives:
        if full(appends):
            groups.append([])
            for hot in appends:
                if groups[-1] and full([*groups[-1], hot]):
                    groups.append([])
                groups[-1].append(hot)
        else:
            if full(groups[-1] + appends) and half_full(groups[-1]):
                groups.append([])
            groups[-1] += appends
    return [sum(hot.messages for hot in group) for group in groups if group]


@RANDOMLY
@given(some_lives(), LIMITS)
def test_groups_are_cut_by_the_rules(lives: list[Life], limits: Limits) -> None:
    assert rows_per_group(lives, limits) == cut(lives, limits)


def test_small_streams_share_a_group() -> None:
    assert rows_per_group([plain(f"b/{index:04}", index, 10, 10) for index in range(1000)]) == [2000]


def test_a_group_has_about_a_mebibyte() -> None:
    assert rows_per_group([plain("b/s", 1, *[GROUP_BYTES // 4] * 10)]) == [4, 4, 2]


def test_a_group_has_a_limited_number_of_rows() -> None:
    assert rows_per_group([plain("b/s", 1, *[1] * (GROUP_ROWS + 1))]) == [GROUP_ROWS, 1]


def test_an_append_is_never_split() -> None:
    many = life("b/s", 1, [NewAppend([b"1"]), NewAppend([b"2"] * (GROUP_ROWS + 9)), NewAppend([b"3"])])
    assert rows_per_group([many]) == [1, GROUP_ROWS + 9, 1]


def test_a_large_stream_begins_a_group_and_others_follow_in_its_last() -> None:
    lives = [plain("b/1", 1, 10), plain("b/2", 2, GROUP_BYTES, 10), plain("b/3", 3, 10)]
    assert rows_per_group(lives) == [1, 1, 2]


def test_a_small_stream_begins_a_group_if_it_does_not_fit_into_one_that_is_half_full() -> None:
    half = GROUP_BYTES // 2
    assert rows_per_group([plain("b/1", 1, half), plain("b/2", 2, half, 1)]) == [1, 2]


def test_a_small_stream_enlarges_a_group_that_is_not_half_full() -> None:
    half = GROUP_BYTES // 2
    assert rows_per_group([plain("b/1", 1, half - 1), plain("b/2", 2, half, half)]) == [3]


# -- Refused input ----------------------------------------------------------------------------------------------------

FIRST, SECOND = plain("b/1", 1, 5, 6), plain("b/2", 20, 5)


def hot(offset: int, payload: bytes, record: int, position: int = 1, ends: bytes | None = None) -> Hot:
    return Hot(offset, payload, ends, record, position, 0, None)


@pytest.mark.parametrize(
    ("lives", "problem"),
    [
        ([], "has no rows"),
        ([SECOND, FIRST], "'b/1' cannot follow rows of 'b/2'"),
        ([plain("b/1", 9, 1), plain("b/1", 8, 1)], "'b/1' cannot follow"),
        ([plain("b/1", 9, 1), plain("b/2", 9, 1)], "'b/2' cannot follow"),
        ([FIRST, FIRST], "'b/1' have a gap between 11 and 0"),
        ([Life("b", 1, "text/plain", FIRST.appends)], "'b' has no bucket"),
        ([Life("b/1", 1, "text/plain", [hot(0, b"ab", 0), hot(3, b"c", 1)])], "a gap in its offsets"),
        (
            [Life("b/1", 1, "text/plain", [hot(0, b"ab", 0), hot(2, b"c", 2)])],
            "hold 2 messages, but 3 by their records",
        ),
        ([Life("b/1", 1, "a", [hot(0, b"ab", 0), hot(2, b"c", 0), hot(3, b"d", 2)])], "a gap in its records"),
        ([Life("b/1", 1, "text/plain", [hot(0, b"ab", 0), hot(2, b"", 1)])], "payload does not match"),
        ([Life("b/1", 1, "text/plain", [hot(0, b"ab", 0, ends=pack((1, 1, 2)))])], "payload does not match"),
        ([Life("b/1", 1, "text/plain", [hot(0, b"ab", 0, LAST_POSITION + 1)])], "outside its range"),
        ([Life("b/1", 1, "text/plain", [hot(0, b"ab", 0, -1)])], "outside its range"),
    ],
)
def test_rows_that_no_reader_could_rely_on_are_refused(lives: list[Life], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        write(lives)


def test_a_gap_between_two_groups_is_refused() -> None:
    appends = [hot(0, b"a" * 10, 0), hot(11, b"b" * 10, 1)]
    with pytest.raises(ValueError, match="a gap in its offsets"):
        write([Life("b/1", 1, "text/plain", appends)], Limits(10, 10))


def test_a_table_of_other_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="does not have the columns of a segment"):
        SegmentWriter(ID, 0, 9).add_table(rows_in(write(THREE).data).drop_columns(["append"]))


def test_a_table_that_begins_within_an_append_is_refused() -> None:
    with pytest.raises(ValueError, match="'team/chat' begin within an append, at 2"):
        SegmentWriter(ID, 0, LAST_POSITION).add_table(rows_in(write(THREE).data).slice(3))


# -- Other readers -----------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "segment.parquet"
    path.write_bytes(write(THREE, Limits(4, 4)).data)
    assert pq.ParquetFile(path).num_row_groups > 1
    return path


def test_pyarrow_reads_a_segment(path: Path) -> None:
    assert pq.read_table(path, page_checksum_verification=True).to_pylist() == rows_of(THREE)


def test_pandas_reads_a_segment(path: Path) -> None:
    frame = pd.read_parquet(path)
    assert str(frame.dtypes["committed_at"]) == "datetime64[us, UTC]"
    assert frame["stream"].map(type).eq(str).all()
    expected = pd.DataFrame(rows_of(THREE))
    for name in SCHEMA.names:
        assert [*frame[name].dropna()] == [*expected[name].dropna()], name


def test_duckdb_reads_a_segment(path: Path) -> None:
    segment = duckdb.read_parquet(str(path))
    found = segment.order("position, record").to_arrow_table()
    assert found is not None
    assert found.cast(SCHEMA).to_pylist() == rows_of(THREE)
    assert segment.filter("stream = 'chat' and \"offset\" >= 2").aggregate("count(*)").fetchall() == [(3,)]


def test_strings_are_dictionary_encoded_and_numbers_as_differences(path: Path) -> None:
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    encodings = {column.path_in_schema: set(column.encodings) for column in columns}
    assert all("RLE_DICTIONARY" in encodings[name] for name in ("bucket", "stream", "content_type", "producer_id"))
    assert "DELTA_BINARY_PACKED" in encodings["offset"]
    assert encodings["payload"] == {"RLE", "PLAIN"}
    assert {column.compression for column in columns} == {"ZSTD"}
    assert [column.path_in_schema for column in columns if not column.is_stats_set] == ["producer_id", "payload"]


def test_every_byte_belongs_to_one_group_or_the_footer() -> None:
    data, segment, _ = write(THREE, Limits(4, 4))
    end = row = 0
    metadata = pq.read_metadata(pa.BufferReader(data))
    for index, (first_row, rows, start, size, _) in enumerate(groups_in(data)):
        assert (first_row, start) == (row, end)
        row, end = row + rows, end + size
        group = metadata.row_group(index)
        columns = [group.column(number) for number in range(group.num_columns)]
        assert sum(column.total_compressed_size for column in columns) == size - (4 if index == 0 else 0)
    assert row == segment.rows
    assert end + segment.footer_bytes == segment.size == len(data)


def test_names_that_outgrow_a_dictionary_page_are_read_back() -> None:
    lives = [plain(f"b/{index:06}{'ü' * 50}", index, 1) for index in range(12_000)]
    assert rows_in(write(lives).data)["stream"].to_pylist() == [one.name[2:] for one in lives]
