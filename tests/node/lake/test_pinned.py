"""Forks are whole in the tables: rows of sources that were deleted or trimmed are in `pinned` as long as a fork lives.

The tables are read by pyiceberg and joined by the SQL of the guide, so nothing of ours takes part but the files.
"""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from headwater.lake.format import SCHEMA
from headwater.lake.iceberg.streams import STREAMS
from headwater.storage.folder import FolderStore
from headwater.streams.commands.streams import Delete
from headwater.streams.queries import Head
from headwater.streams.replies import Described
from headwater.streams.state import State

from ...doubles.faulty_store import FaultyStore
from .lakes import Bench, bench
from .stories import Row, Story

GUIDE = Path(__file__).parents[3] / "docs/guides/engines.md"
ORDER = 'order by bucket, stream, incarnation, "offset"'


def whole_forks() -> str:
    """The query of the guide that reads forks whole."""
    [query] = [block for block in re.findall(r"```sql\n(.*?)```", GUIDE.read_text(), re.S) if "with recursive" in block]
    return str(query.strip().rstrip(";"))


def table(folder: Path, name: str) -> pa.Table:
    found: pa.Table = StaticTable.from_metadata(f"{folder}/{name}").scan().to_arrow()
    return found


def rows_by_sql(folder: Path) -> list[Row]:
    """The rows of all streams, those that forks inherit included."""
    with duckdb.connect() as connection:
        for name in ("messages", "pinned", "forks"):
            connection.register(name, table(folder, name))
        query = f"select * from messages union all by name ({whole_forks()}) {ORDER}"
        found = connection.sql(query).to_arrow_table().select(SCHEMA.names).cast(SCHEMA)
    index = SCHEMA.get_field_index("committed_at")
    rows: list[Row] = found.set_column(index, "committed_at", found["committed_at"].cast(pa.int64())).to_pylist()
    return rows


async def check(running: Bench, story: Story, folder: Path) -> None:
    """Compare the tables with the rows that the story expects, and with the answers to `Head`."""
    await running.lake.flush(all_tables=True)
    expected = sorted(story.all_rows(), key=lambda row: (row["bucket"], row["stream"], row["offset"]))
    assert rows_by_sql(folder) == expected
    streams = table(folder, "streams").cast(STREAMS).to_pylist()
    assert [(row["bucket"], row["stream"]) for row in streams] == sorted(tuple(n.split("/", 1)) for n in story.ends)
    for row in streams:
        name = f"{row['bucket']}/{row['stream']}"
        head = await running.read(Head(name))
        assert isinstance(head, Described)
        assert (row["incarnation"], row["tail"], row["closed"]) == (head.incarnation, head.next_offset, head.closed)
        assert (row["content_type"], row["attributes"]) == (head.content_type, head.attrs)
        assert (row["start"], row["tail"]) == story.ends[name][:2]
        assert row["records"] == len(story.rows[name])
        origin = running.state.streams[name].origin
        assert row["forked_from"] == (None if origin is None else origin.name)


def told(tmp_path: Path, tell: Callable[[Story], Any]) -> None:
    """Tell a story and check the tables at its end."""

    async def run() -> None:
        async with bench(FaultyStore(FolderStore(tmp_path))) as running:
            story = Story(running)
            await tell(story)
            await check(running, story, tmp_path)

    asyncio.run(run())


def payloads(folder: Path) -> list[bytes]:
    found: list[bytes] = table(folder, "pinned")["payload"].to_pylist()
    return sorted(found)


def test_the_rows_of_a_deleted_source_are_pinned_up_to_the_fork_point(tmp_path: Path) -> None:
    async def tell(story: Story) -> None:
        await story.append("a/x", b"one", b"two", b"three")
        await story.fork("a/y", "a/x", 6)
        await story.append("a/y", b"own")
        await story.bench.lake.flush()
        assert payloads(tmp_path) == []
        await story.delete("a/x")

    told(tmp_path, tell)
    assert payloads(tmp_path) == [b"one", b"two"]


def test_a_message_that_the_fork_point_cuts_is_pinned(tmp_path: Path) -> None:
    async def tell(story: Story) -> None:
        await story.append("a/x", b"one", b"two", b"three")
        await story.fork("a/y", "a/x", 5)
        await story.delete("a/x")

    told(tmp_path, tell)
    assert payloads(tmp_path) == [b"one", b"two"]


def test_the_rows_before_the_start_of_a_trimmed_source_are_pinned(tmp_path: Path) -> None:
    async def tell(story: Story) -> None:
        await story.append("a/x", b"one", b"two", b"three")
        await story.append("b/z", b"of another stream")
        await story.fork("a/y", "a/x", 11)
        await story.bench.lake.flush()
        await story.trim("a/x", story.rows["a/x"][0])

    told(tmp_path, tell)
    assert payloads(tmp_path) == [b"one"]


def test_what_a_fork_has_trimmed_itself_is_pinned_no_longer(tmp_path: Path) -> None:
    async def tell(story: Story) -> None:
        await story.append("a/x", b"one", b"two", b"three")
        await story.fork("a/y", "a/x", 11)
        await story.delete("a/x")
        await story.bench.lake.flush()
        assert len(payloads(tmp_path)) == 3
        await story.trim("a/y", story.rows["a/y"][1])

    told(tmp_path, tell)
    assert payloads(tmp_path) == [b"three"]


def test_nothing_is_pinned_once_the_last_fork_is_gone(tmp_path: Path) -> None:
    async def tell(story: Story) -> None:
        await story.append("a/x", b"one", b"two")
        await story.fork("a/y", "a/x", 3)
        await story.fork("b/z", "a/y", 3)
        await story.delete("a/x")
        await story.delete("a/y")
        await story.bench.lake.flush()
        assert payloads(tmp_path) == [b"one"]
        await story.delete("b/z")

    told(tmp_path, tell)
    assert payloads(tmp_path) == []


@pytest.mark.parametrize("seed", range(6))
def test_forks_are_whole_and_streams_are_listed_after_a_random_story(seed: int, tmp_path: Path) -> None:
    async def run() -> None:
        store = FaultyStore(FolderStore(tmp_path))
        state = State("journal")
        story: Story | None = None
        for part in range(3):
            async with bench(store, state, history_seconds=0.0 if seed % 2 else 900.0) as running:
                if story is None:
                    story = Story(running, seed)
                story.bench = running
                for _ in range(25):
                    await story.act()
                    if story.random.random() < 0.1:
                        await check(running, story, tmp_path)
                if part == 2:
                    for name in sorted(story.rows):
                        if name not in state.forks:
                            await running.ask(Delete(name))
                            del story.rows[name], story.ends[name]
                await check(running, story, tmp_path)
                await running.housekeeping.cataloger.tidy()
                await running.housekeeping.sweeper.sweep_retired()
                await check(running, story, tmp_path)

    asyncio.run(run())


def test_a_commit_of_a_server_that_was_replaced_does_not_stay(tmp_path: Path) -> None:
    async def run() -> None:
        async with bench(FaultyStore(FolderStore(tmp_path))) as running:
            story = Story(running)
            await story.append("a/x", b"one", b"two")
            await story.fork("a/y", "a/x", 3)
            await story.bench.lake.flush()
            async with bench(running.store, State("journal")) as replaced:
                # Its state is older, and it does not know of the fork.
                pinned = replaced.housekeeping.cataloger.tables.pinned
                await story.delete("a/x")
                await running.lake.flush()
                before = StaticTable.from_metadata(f"{tmp_path}/pinned").metadata.current_snapshot_id
                pinned.load()
                pinned._commit(
                    pinned.commits.new_stamp(),
                    pinned._segments_change(pinned.commits.new_stamp()),
                    pinned._deletes_change(pinned.commits.new_stamp()),
                    lambda *_: {"operation": "overwrite", "headwater.position": "1"},
                    keep=(),
                )
                after = StaticTable.from_metadata(f"{tmp_path}/pinned").metadata.current_snapshot_id
                assert before != after
                assert payloads(tmp_path) == []
                await running.housekeeping.cataloger.tidy()
                await check(running, story, tmp_path)
                assert payloads(tmp_path) == [b"one"]

    asyncio.run(run())
