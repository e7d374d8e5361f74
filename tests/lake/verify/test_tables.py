"""The table of the streams is verified: what is wrong with it is said, and an intact one is not."""

import pytest

from headwater.lake.iceberg.streams import StreamRow, StreamsTable
from headwater.lake.verify.tables import streams_problems
from headwater.storage.memory import MemoryStore


def row(name: str, start: int = 0, tail: int = 9, attributes: bytes | None = None) -> StreamRow:
    return StreamRow(f"team/{name}", 1, "text/plain", start, tail, 1, False, 5, 6, None, attributes)


def problems_of(*rows: StreamRow) -> list[str]:
    store = MemoryStore()
    table = StreamsTable(store, "memory:", 0, "log", history_ms=1000, now_ms=lambda: 0)
    table.begin(7)
    table.add(rows)
    table.finish(7)
    return [what for _, what in streams_problems(store)]


def test_a_table_that_was_never_written_or_is_empty_is_intact() -> None:
    assert list(streams_problems(MemoryStore())) == []
    assert problems_of() == []


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([row("a"), row("b", attributes=b'{"a":1}')], ""),
        ([row("b"), row("a")], "its streams are not in order, or not listed once"),
        ([row("a"), row("a")], "its streams are not in order, or not listed once"),
        ([row("a", start=10)], "a stream ends before it begins"),
        ([row("a", start=-1)], "a stream ends before it begins"),
        ([row("a", attributes=b"{")], "the attributes of 'team/a' are not JSON"),
    ],
)
def test_each_problem_is_found(rows: list[StreamRow], problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert problems_of(*rows) == ([problem] if problem else [])
    monkeypatch.setattr("headwater.lake.iceberg.streams.FILE_ROWS", 1)
    assert problems_of(*rows) == ([problem] if problem else [])
