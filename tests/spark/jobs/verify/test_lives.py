"""Lives summarized from rows, and judged, without Spark."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from headwater.protocol.limits import PRODUCER_IDLE_US
from headwater.spark.jobs.verify.judging import judge
from headwater.spark.jobs.verify.lives import DIGESTS, EVER, MARK, Window, Windows, digest_batch, fold_lives

from ..export.exported_rows import rows_of, together

ALL = Windows(Window(), Window())
PAYLOADS = [b"1", b"22", b"333", b"4444"]


def folded(rows: pa.Table, windows: Windows = ALL, *, marks: dict[str, int] | None = None) -> list[dict[str, Any]]:
    """The lives in rows, sorted as Spark would; marks are the current starts of streams."""
    digests = [digest_batch(batch) for batch in rows.to_batches()]
    marked = [
        {"name": name, "incarnation": 1, "offset": MARK, "next_offset": start} for name, start in (marks or {}).items()
    ]
    table = pa.Table.from_batches([*digests, pa.RecordBatch.from_pylist(marked, schema=DIGESTS)])
    ordered = table.sort_by([(name, "ascending") for name in ("name", "incarnation", "offset", "next_offset")])
    batches: Iterator[pa.RecordBatch] = iter(ordered.to_batches(max_chunksize=3))
    return [life for batch in fold_lives(windows, marks is not None, batches) for life in batch.to_pylist()]


def one(rows: pa.Table, **rest: Any) -> dict[str, Any]:
    (life,) = folded(rows, **rest)
    return life


def changed(rows: pa.Table, **columns: list[Any]) -> pa.Table:
    """Rows with other values in some columns."""
    for name, values in columns.items():
        at = rows.column_names.index(name)
        rows = rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type))
    return rows


def test_a_life_is_counted_and_hashed() -> None:
    life = one(rows_of("a/x", PAYLOADS))
    assert (life["name"], life["rows"], life["bytes"]) == ("a/x", 4, 10)
    assert (life["first_offset"], life["end_offset"], life["first_record"]) == (0, 10, 0)
    assert (life["lake_rows"], life["export_rows"], life["flaws"]) == (4, 4, 0)
    assert life["lake_hash"] == life["export_hash"]
    assert len({row["name"] for row in folded(together(rows_of("a/x", PAYLOADS), rows_of("a/y", PAYLOADS)))}) == 2


@pytest.mark.parametrize(
    "other",
    [
        rows_of("a/x", PAYLOADS).slice(0, 3),
        rows_of("a/x", PAYLOADS).slice(1),
        together(rows_of("a/x", PAYLOADS), rows_of("a/x", PAYLOADS).slice(2, 1)),
        rows_of("a/x", [b"1", b"23", b"333", b"4444"]),
        changed(rows_of("a/x", [b"1", b"2", b"3"]), payload=[b"1", b"3", b"2"]),
        rows_of("a/x", PAYLOADS, position=11),
        changed(rows_of("a/x", PAYLOADS), content_type=["application/json"] * 3 + ["text/plain"]),
        changed(rows_of("a/x", PAYLOADS), producer_id=["p"] * 4, producer_epoch=[0] * 4, producer_seq=[0, 1, 2, 3]),
    ],
)
def test_the_hash_of_a_life_depends_on_every_row_and_their_order(other: pa.Table) -> None:
    assert one(other)["lake_hash"] != one(rows_of("a/x", PAYLOADS))["lake_hash"]


def test_rows_outside_a_window_are_counted_but_not_hashed() -> None:
    whole, some = rows_of("a/x", PAYLOADS, position=10), rows_of("a/x", PAYLOADS[:2], position=10)
    windows = Windows(Window(), Window(position=11))
    found, part = one(whole, windows=windows), one(some, windows=windows)
    assert (found["rows"], found["lake_rows"], found["export_rows"]) == (4, 4, 2)
    assert found["export_hash"] == part["export_hash"]
    at = whole["committed_at"].cast(pa.int64()).to_pylist()
    assert one(whole, windows=Windows(None, Window(since=at[1], until=at[3])))["export_rows"] == 2
    assert one(whole, windows=Windows(None, None))["lake_rows"] == 0


def test_what_the_server_has_trimmed_is_not_compared() -> None:
    whole = rows_of("a/x", PAYLOADS)
    found, rest = one(whole, marks={"a/x": 3}), one(whole.slice(2))
    assert found["known"] and (found["rows"], found["export_rows"]) == (4, 2)
    assert found["export_hash"] == rest["export_hash"]
    # A gap is allowed below the start of the stream on the server, but not above.
    assert one(whole.take([0, 2, 3]), marks={"a/x": 3})["flaws"] == 0
    assert one(whole.take([0, 2, 3]), marks={"a/x": 1})["flaws"] == 1
    assert folded(whole.slice(0, 0), marks={"a/x": 0}) == []
    ended = one(whole.take([0, 3]), marks={"a/y": 0})
    assert (ended["known"], ended["export_rows"], ended["flaws"]) == (False, 0, 0)


def test_inherited_rows_of_a_fork_are_not_compared() -> None:
    fork = rows_of("a/x", PAYLOADS, position=10, incarnation=12)
    assert (one(fork)["rows"], one(fork)["lake_rows"]) == (4, 2)


@pytest.mark.parametrize(
    ("rows", "flaw"),
    [
        (rows_of("a/x", PAYLOADS).take([0, 2, 3]), "the bytes from 1 to 3 are missing"),
        (rows_of("a/x", PAYLOADS).take([0, 1, 1, 2, 3]), "the bytes from 1 on are repeated"),
        (changed(rows_of("a/x", PAYLOADS), record=[0, 1, 3, 4]), "record 3 follows record 1"),
        (changed(rows_of("a/x", PAYLOADS), position=[10, 12, 11, 13]), "the positions or times decrease"),
        (changed(rows_of("a/x", PAYLOADS), payload=[b"1", b"2", b"333", b"4444"]), "does not match its offsets"),
        (rows_of("a/x", [b"1", b"{", b"3"]), "the payload is not a JSON value"),
    ],
)
def test_flaws_of_a_single_life_are_found(rows: pa.Table, flaw: str) -> None:
    found = one(rows)
    assert flaw in found["flaw"] and found["flaws"] >= 1


@pytest.mark.parametrize(
    ("numbers", "flaws"),
    [
        ([(0, 0), (0, 1), (0, 2), (0, 3)], 0),
        ([(0, 7), (0, 8), (3, 0), (3, 1)], 0),
        ([(0, 0), (0, 0), (0, 1), (0, 2)], 1),
        ([(0, 0), (0, 1), (0, 3), (0, 4)], 1),
        ([(1, 0), (0, 1), (1, 1), (1, 2)], 2),
        ([(0, 0), (1, 1), (1, 2), (1, 3)], 1),
    ],
)
def test_gaps_of_a_producer_are_found(numbers: list[tuple[int, int]], flaws: int) -> None:
    epochs, seqs = (list(values) for values in zip(*numbers, strict=True))
    rows = changed(rows_of("a/x", PAYLOADS), producer_id=["p"] * 4, producer_epoch=epochs, producer_seq=seqs)
    assert one(rows)["flaws"] == flaws
    # Inherited rows are checked in the life of the source.
    inherited = changed(rows, incarnation=[100] * 4)
    assert one(inherited)["flaws"] == 0


def test_messages_of_one_append_count_once_and_an_expired_producer_starts_again() -> None:
    rows = rows_of("a/x", [b"1", b"2", b"3"])
    producers: dict[str, list[Any]] = {"producer_id": ["p"] * 3, "producer_epoch": [4] * 3}
    assert one(changed(rows, **producers, producer_seq=[0, 0, 1], append=[0, 0, 2]))["flaws"] == 0
    first = rows["committed_at"][0].cast(pa.int64()).as_py()
    times = [first, first + 1, first + 2 + PRODUCER_IDLE_US]
    assert one(changed(rows, **producers, producer_seq=[5, 6, 0], committed_at=times))["flaws"] == 0
    assert one(changed(rows, **producers, producer_seq=[5, 6, 0]))["flaws"] == 1


DESCRIBED = {"start": 0, "tail": 10, "record_start": 0, "record_next": 4}


def judged(described: dict[str, int] | None, **sides: pa.Table | None) -> list[str]:
    """The problems of one life with these rows on its sides."""
    life = {name: None if rows is None else one(rows) for name, rows in sides.items()}
    return [finding.what for finding in judge({"name": "a/x", "incarnation": 1, "described": described, **life})]


def test_a_life_that_is_the_same_on_all_sides_has_no_problem() -> None:
    rows = rows_of("a/x", PAYLOADS)
    assert judged(DESCRIBED, server=rows, lake=rows, export=rows) == []
    assert judged({**DESCRIBED, "tail": 0, "record_next": 0}, server=None, lake=None, export=None) == []
    # The stream was deleted after the export.
    assert judged(None, server=None, lake=None, export=rows) == []


def test_every_difference_between_two_sides_is_a_problem() -> None:
    rows = rows_of("a/x", PAYLOADS)
    fewer, other = rows.slice(0, 3), rows_of("a/x", [b"2", *PAYLOADS[1:]])
    assert judged(DESCRIBED, server=rows, lake=fewer) == ["the lake has 3 messages, the server has 4"]
    assert judged(DESCRIBED, server=rows, lake=None) == ["the lake has 0 messages, the server has 4"]
    assert judged(DESCRIBED, server=rows, lake=rows, export=other) == [
        "the 4 messages in the export differ from those of the server"
    ]
    assert judged(DESCRIBED, server=None, lake=rows) == [
        "the server serves none of its 4 messages",
        "the lake has 4 messages, the server has 0",
    ]
    assert judged(None, server=None, lake=rows) == [
        "the lake has 4 messages of an incarnation that the server does not know"
    ]
    assert judged(DESCRIBED, server=fewer) == [
        "the end offset that the server serves is 6, not 10",
        "the number of messages that the server serves is 3, not 4",
        "the number of bytes that the server serves is 6, not 10",
    ]
    twice = together(rows, rows.slice(3))
    assert judged(None, server=None, lake=None, export=twice) == [
        "in the export the bytes from 6 on are repeated, at offset 6"
    ]


def test_a_window_without_end_has_every_row() -> None:
    assert Window().has(EVER, EVER - 1)
