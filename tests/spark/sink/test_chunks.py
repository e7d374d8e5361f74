"""Chunks depend on the messages alone, not on the blocks that they arrive in."""

from itertools import groupby, pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.spark.sink.chunks import CHUNKS, ROWS, Chunker, MixedTypes

BYTES_MAX = 10
MESSAGES_MAX = 3

Row = tuple[str, bytes | None, bool | None, str | None]

VALUES = st.binary(min_size=1, max_size=14)
WITH_VALUE = st.tuples(st.sampled_from("abcd"), VALUES, st.sampled_from([None, False, False, True]), st.none())
WITHOUT_VALUE = st.tuples(st.sampled_from("abcd"), st.none(), st.just(True), st.none())
SORTED_ROWS = st.lists(WITH_VALUE | WITHOUT_VALUE, max_size=60).map(lambda rows: sorted(rows, key=lambda row: row[0]))


def cut(rows: list[Row], boundaries: list[int]) -> list[dict[str, Any]]:
    """The chunks of rows that arrive in blocks with these boundaries."""
    chunker, found = Chunker(BYTES_MAX, MESSAGES_MAX), []
    edges = sorted({0, len(rows), *(boundary % (len(rows) + 1) for boundary in boundaries)})
    for start, stop in pairwise(edges):
        block = pa.record_batch(list(zip(*rows[start:stop], strict=True)), schema=ROWS)
        found.append(chunker.feed(block))
    last = chunker.finish()
    found += [] if last is None else [last]
    return list(pa.Table.from_batches(found, CHUNKS).to_pylist())


def expected(rows: list[Row]) -> list[dict[str, Any]]:
    """The same chunks, cut one message at a time."""
    found = []
    for name, some in groupby(rows, key=lambda row: row[0]):
        grouped = list(some)
        chunks: list[list[bytes]] = [[]]
        for value in (row[1] for row in grouped if row[1] is not None):
            full = len(chunks[-1]) == MESSAGES_MAX or sum(map(len, chunks[-1])) + len(value) > BYTES_MAX
            if chunks[-1] and full:
                chunks.append([])
            chunks[-1].append(value)
        closes = any(row[2] for row in grouped)
        for seq, messages in enumerate(chunks):
            last = seq == len(chunks) - 1
            found.append(
                {
                    "stream": name,
                    "messages": messages,
                    "content_type": grouped[0][3],
                    "close": closes and last,
                    "seq": seq,
                    "last": last,
                }
            )
    return found


@settings(deadline=None)
@given(SORTED_ROWS, st.lists(st.integers(0, 60), max_size=12))
def test_any_blocks_give_the_same_chunks(rows: list[Row], boundaries: list[int]) -> None:
    assert cut(rows, boundaries) == expected(rows)


@settings(deadline=None)
@given(SORTED_ROWS)
def test_a_block_per_row_gives_the_same_chunks(rows: list[Row]) -> None:
    assert cut(rows, list(range(len(rows)))) == expected(rows)


def test_a_message_larger_than_a_chunk_is_a_chunk_of_its_own() -> None:
    rows: list[Row] = [("a", b"1", None, None), ("a", b"x" * 30, None, None), ("a", b"2", None, None)]
    assert [chunk["messages"] for chunk in cut(rows, [])] == [[b"1"], [b"x" * 30], [b"2"]]


def test_no_rows_make_no_chunks() -> None:
    assert Chunker(BYTES_MAX, MESSAGES_MAX).finish() is None


def test_messages_in_the_middle_of_a_larger_array_are_cut_alike() -> None:
    rows: list[Row] = [("a", bytes([65 + at]) * 4, None, None) for at in range(9)]
    block = pa.record_batch(list(zip(*rows, strict=True)), schema=ROWS)
    chunker = Chunker(BYTES_MAX, MESSAGES_MAX)
    found = [*chunker.feed(block.slice(2, 5)).to_pylist(), *(chunker.finish() or block).to_pylist()]
    assert [chunk["messages"] for chunk in found] == [[b"CCCC", b"DDDD"], [b"EEEE", b"FFFF"], [b"GGGG"]]


def test_each_stream_keeps_its_content_type() -> None:
    rows: list[Row] = [("a", b"1", None, "text/plain"), ("a", b"2", None, "text/plain"), ("b", b"3", None, None)]
    assert [chunk["content_type"] for chunk in cut(rows, [])] == ["text/plain", None]


@pytest.mark.parametrize("boundaries", [[], [1]], ids=["in one block", "in two"])
def test_a_stream_with_two_content_types_is_refused(boundaries: list[int]) -> None:
    rows: list[Row] = [("a", b"1", None, "text/plain"), ("a", b"2", None, None)]
    with pytest.raises(MixedTypes, match=r"^Rows for the stream 'a' have different content types, text/plain and none"):
        cut(rows, boundaries)
