"""Rows that break a rule of the format are found and named."""

import pyarrow as pa
import pytest

from headwater.lake.format import SCHEMA
from headwater.lake.verify.rows import is_json_value

from ..forged_lakes import lake_of, problems, table_of
from ..lives import NewAppend, life, plain

GOOD = (plain("b/r", 1, 3, 4), plain("b/s", 2, 5, 6, 7), plain("b/t", 9, 1))


def altered(column: str, row: int, value: object) -> pa.Table:
    """Valid rows except for one value."""
    rows = table_of(*GOOD).to_pylist()
    rows[row][column] = value
    return pa.Table.from_pylist(rows, SCHEMA)


def test_forged_rows_that_are_right_have_no_problems() -> None:
    assert problems(lake_of([table_of(*GOOD)])) == []
    assert problems(lake_of([table_of(*GOOD[:1]), table_of(*GOOD[1:])])) == []


@pytest.mark.parametrize(
    ("column", "row", "value", "words"),
    [
        ("next_offset", 1, 8, "the payload is not as long as next_offset - offset"),
        ("payload", 1, b"", "the payload is empty"),
        ("payload", 1, b"longer", "the payload is not as long as next_offset - offset"),
        ("position", 3, 0, "the position is not within"),
        ("position", 3, 10**7, "the position is not within"),
        ("position", 5, 8, "the position is below the incarnation"),
        ("position", 4, 2, "the position is below that of the row before"),
        ("committed_at", 4, 0, "the time is before that of the row before"),
        ("record", 3, 7, "the record does not follow that of the row before"),
        ("offset", 3, 6, "the offset is not the next_offset of the row before"),
        ("append", 3, 4, "the append neither continues that of the row before nor begins here"),
        ("append", 0, 1, "the segment begins within an append"),
        ("append", 2, 1, "the append neither continues that of the row before nor begins here"),
        ("stream", 3, "a", "the names are not in order"),
        ("incarnation", 3, 1, "the incarnations of a name are not in order"),
        ("incarnation", 5, 2, "two names have the same incarnation"),
        ("producer_id", 2, "p", "some of the producer's columns are null and some are not"),
        ("producer_seq", 2, 1, "some of the producer's columns are null and some are not"),
    ],
)
@pytest.mark.parametrize("cut", [0, 3])
def test_a_wrong_row_is_found_and_named(cut: int, column: str, row: int, value: object, words: str) -> None:
    """Whether the rows are one row group or two."""
    table = altered(column, row, value)
    store = lake_of([table.slice(0, cut), table.slice(cut)] if cut else [table])
    found = problems(store)
    assert any(f": row {row}: {words}" in line for line in found), found


def test_two_rows_of_one_append_at_different_positions_are_found() -> None:
    rows = table_of(life("b/s", 1, [NewAppend([b"1", b"2"])])).to_pylist()
    rows[1]["position"] += 1
    found = problems(lake_of([pa.Table.from_pylist(rows, SCHEMA)]))
    assert any("row 1: two rows of one append have different positions" in line for line in found)


def test_a_segment_with_other_columns_is_found() -> None:
    fewer = table_of(*GOOD).drop_columns(["producer_id"])
    found = problems(lake_of([fewer]))
    assert any("its columns are not those of a segment" in line for line in found)


def test_messages_are_parsed_only_on_request() -> None:
    rows = table_of(
        life("b/s", 1, [NewAppend([b'{"a":1}', b"[1]"]), NewAppend([b"nope", b"NaN"]), NewAppend([b'"\\ud800"'])])
    )
    store = lake_of([rows])
    assert problems(store) == []
    found = problems(store, json_values=True)
    assert [line.split(": ", 1)[1] for line in found] == [
        "row 2: the payload is not a JSON value",
        "row 3: the payload is not a JSON value",
    ]


def test_messages_of_other_streams_are_never_parsed() -> None:
    assert problems(lake_of([table_of(*GOOD)]), json_values=True) == []


def test_a_payload_that_is_nested_too_deeply_to_be_judged_is_not_called_wrong() -> None:
    assert is_json_value(b"[" * 5_000 + b"]" * 5_000)
