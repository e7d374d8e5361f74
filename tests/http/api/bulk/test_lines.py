"""Bulk appends in progress: equivalent to one append after the other, but never too many of them at once."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from threading import Event, current_thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.node.bulk import lines as bulk_lines
from headwater.node.bulk import rows as bulk_rows
from headwater.node.bulk.lines import BulkAppend, Outcome
from headwater.node.bulk.rows import BulkRows, cut_json, decode
from headwater.node.committer import Done
from headwater.protocol import message_ends
from headwater.protocol.content_types import DEFAULT
from headwater.protocol.lifetimes import FOREVER, Lifetime
from headwater.protocol.refusals import Code, Refusal, stream_not_found
from headwater.streams.commands import Command
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.hot import hot_cost
from headwater.streams.replies import Appended, Created, Reply
from headwater.streams.state import State, Stream

from ....node.lake.lakes import Bench, bench
from .requests import Row, encode, row, table_of

TEXT = "text/plain"
JSON = "application/json"
NO_ROOM = Refusal(Code.OVERLOADED, "There is no room.")


def rows_of(*rows: Row) -> BulkRows:
    decoded = decode(encode(table_of(rows)))
    assert isinstance(decoded, BulkRows), decoded
    return decoded


def text(stream: str, *messages: bytes) -> Row:
    return row(stream, *messages, content_type=TEXT)


def wanted() -> bool:
    return True


async def run(target: bulk_lines.Submitter, *rows: Row) -> list[Outcome]:
    bulk = BulkAppend(target, rows_of(*rows), wanted)
    assert await asyncio.wait_for(bulk.run(), 60)
    return bulk.outcomes


def on_a_node(work: Callable[[Bench], Coroutine[Any, Any, None]], **limits: Any) -> None:
    async def main() -> None:
        async with bench(**limits) as node:
            await work(node)

    asyncio.run(main())


# -- The same as one after the other -----------------------------------------------------------------------------------


async def one_by_one(bench: Bench, rows: list[Row]) -> list[Outcome]:
    """The outcomes of rows that are appended one by one, up to the first refusal of each stream."""
    outcomes: list[Outcome] = []
    lives: dict[str, int] = {}
    refused: dict[str, Refusal] = {}
    for one in rows:
        name = one["stream"]
        outcome: Reply = refused[name] if name in refused else await append_alone(bench, one, lives.get(name))
        assert isinstance(outcome, Outcome)
        outcomes.append(outcome)
        if isinstance(outcome, Refusal):
            refused.setdefault(name, outcome)
        else:
            lives[name] = outcome.incarnation
    return outcomes


async def append_alone(bench: Bench, one: Row, life: int | None) -> Reply:
    rows = rows_of(one)
    stream = bench.state.streams.get(one["stream"])
    missing = DEFAULT if one["create"] else stream_not_found(one["stream"])
    append = rows.append(0, missing if stream is None else stream.content_type, life)
    if isinstance(append, Refusal):
        return append
    if isinstance(append, Append):
        content_type = append.content_type or one["content_type"] or DEFAULT
        first = append.close, append.payload, append.ends, None, append.producer
        if stream is None and one["create"]:
            return await bench.ask(Create(one["stream"], content_type, FOREVER, *first))
        return await bench.ask(append)
    standing = bench.node.judge_append(append.append)
    return append.refusal if standing is None or (stream is None and one["create"]) else standing


def seen(outcome: Outcome) -> tuple[Any, ...]:
    if isinstance(outcome, Refusal):
        return (outcome.code,)
    return type(outcome), outcome.next_offset, getattr(outcome, "closed", None)


GONE_IN = (Appended, Created)


def held(state: State) -> dict[str, Any]:
    return {name: contents(stream) for name, stream in state.streams.items()}


def contents(stream: Stream) -> tuple[Any, ...]:
    appends = [(hot.offset, hot.payload, hot.ends, hot.record, hot.producer) for hot in stream.hot or []]
    producers = {identity: (last.epoch, last.seq) for identity, last in (stream.producers or {}).items()}
    return stream.content_type, stream.closed, stream.tail, appends, producers


PRODUCERS = st.none() | st.tuples(st.sampled_from("pq"), st.integers(0, 1), st.integers(0, 3))
ROWS = st.builds(
    lambda stream, messages, content_type, create, close, producer: row(
        stream, *messages, content_type=content_type, create=create, close=close, producer=producer
    ),
    st.sampled_from(["a/x", "a/y", "a/z"]),
    st.lists(st.sampled_from([b"1", b" [2] ", b"x", b"33"]), max_size=3),
    st.sampled_from([None, None, TEXT, JSON]),
    st.sampled_from([True, True, True, False]),
    st.sampled_from([False] * 9 + [True]),
    PRODUCERS,
)


def in_sequence(rows: list[Row]) -> list[Row]:
    """Rows whose producers, if any, number their rows to a stream consecutively."""
    counted: dict[tuple[str, str], int] = {}
    for one in rows:
        if "producer_id" in one:
            key = one["stream"], one["producer_id"]
            one["producer_epoch"], one["producer_seq"] = 0, counted.get(key, 0)
            counted[key] = counted.get(key, 0) + 1
    return rows


@settings(deadline=None, max_examples=100)
@given(
    st.lists(ROWS, min_size=1, max_size=30) | st.lists(ROWS, min_size=1, max_size=30).map(in_sequence),
    st.integers(1, 8),
    st.integers(1, 5),
    st.integers(1, 3),
)
def test_a_bulk_append_is_the_same_as_one_append_after_the_other(
    rows: list[Row], window: int, slice_: int, messages: int
) -> None:
    async def work(node: Bench) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bulk_lines, "WINDOW_ROWS", window)
            patch.setattr(bulk_lines, "SLICE_ROWS", slice_)
            patch.setattr(bulk_lines, "SLICE_MESSAGES", messages)
            outcomes = await run(node.node, *rows)
        async with bench() as other:
            expected = await one_by_one(other, rows)
            assert [*map(seen, outcomes)] == [*map(seen, expected)]
            assert held(node.state) == held(other.state)

    on_a_node(work)


def test_a_stream_that_was_deleted_a_moment_ago_is_made_again() -> None:
    async def work(node: Bench) -> None:
        first = await node.create("a/x", b"old")
        # The stream exists when the row is judged, and is gone when it is applied.
        node.node.submit(Delete("a/x"), lambda _: None)
        [outcome] = await run(node.node, row("a/x", b"new", content_type=TEXT, create=True))
        assert isinstance(outcome, Created)
        assert outcome.incarnation > first.incarnation
        assert await node.whole("a/x") == b"new"

    on_a_node(work)


def test_a_stream_that_was_made_a_moment_ago_is_not_made_again() -> None:
    async def work(node: Bench) -> None:
        for name, content_type in (("a/x", TEXT), ("a/y", JSON)):
            node.node.submit(Create(name, content_type, Lifetime(ttl_seconds=60)), lambda _: None)
        rows = [row(name, b"new", content_type=TEXT, create=True) for name in ("a/x", "a/y")]
        assert [seen(outcome) for outcome in await run(node.node, *rows)] == [
            (Appended, 3, False),
            (Code.CONTENT_TYPE_MISMATCH,),
        ]
        assert node.state.streams["a/x"].lifetime == Lifetime(ttl_seconds=60)

    on_a_node(work)


def test_no_stream_is_made_for_messages_that_are_refused() -> None:
    async def work(node: Bench) -> None:
        rows = [row("a/x", b"new", content_type=TEXT, create=True, producer=("p", 0, 1))]
        assert [seen(outcome) for outcome in await run(node.node, *rows)] == [(Code.PRODUCER_SEQ_CONFLICT,)]
        assert node.state.streams == {}

    on_a_node(work)


def test_rows_of_one_stream_go_to_one_life_of_it() -> None:
    async def work(node: Bench) -> None:
        await node.create("a/x")

        class Meddling:
            """Deletes the stream and creates it again after the first row was appended."""

            def __getattr__(self, name: str) -> Any:
                return getattr(node.node, name)

            def submit(self, command: Command, done: Done) -> None:
                node.node.submit(command, done)
                if isinstance(command, Append) and command.payload == b"1":
                    node.node.submit(Delete("a/x"), lambda _: None)
                    node.node.submit(Create("a/x", TEXT), lambda _: None)

        rows = [row("a/x", b"%d" % number, content_type=TEXT, create=True) for number in range(1, 4)]
        outcomes = await run(Meddling(), *rows)
        assert isinstance(outcomes[0], Appended)
        assert [seen(outcome) for outcome in outcomes[1:]] == [(Code.INCARNATION_CHANGED,)] * 2
        assert await node.whole("a/x") == b""

    on_a_node(work)


# -- Never many at once ------------------------------------------------------------------------------------------------


async def turns() -> None:
    """Wait until everything that may be submitted has been."""
    for _ in range(10):
        await asyncio.sleep(0)


class Slow:
    """Takes commands and answers them on request, those of some streams with a refusal."""

    def __init__(self, *refused: str) -> None:
        self.state = State("journal")
        self.taken: list[Append] = []
        self.waiting: list[tuple[Append, Done]] = []
        self.most = 0
        self.refused = refused

    def submit(self, command: Command, done: Done) -> None:
        assert isinstance(command, Append)
        self.taken.append(command)
        self.waiting.append((command, done))
        self.most = max(self.most, len(self.waiting))

    def answer(self) -> None:
        """Decide all waiting commands, as a commit does."""
        waiting, self.waiting = self.waiting, []
        for command, done in waiting:
            done(NO_ROOM if command.name in self.refused else Appended(1, len(self.taken), False))

    def present(self, name: str) -> Stream | Refusal:
        return self.state.present(name, 1)

    def judge_append(self, command: Append) -> Reply | None:
        return None

    async def answer_all(self, bulk: BulkAppend) -> None:
        """Answer repeatedly, each time when everything that may be submitted has been."""
        running = asyncio.get_running_loop().create_task(bulk.run())
        while not running.done():
            before = -1
            while before != len(self.taken):
                before = len(self.taken)
                for _ in range(10):
                    await asyncio.sleep(0)
            self.answer()
        assert running.result()


@pytest.mark.parametrize("streams", [1, 7, 10_000])
def test_few_rows_are_under_way_at_a_time(streams: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_lines, "WINDOW_ROWS", 50)
    monkeypatch.setattr(bulk_lines, "SLICE_ROWS", 8)
    target = Slow()
    rows = rows_of(*(text(f"a/{number % streams}", b"%d" % number) for number in range(400)))
    asyncio.run(target.answer_all(BulkAppend(target, rows, wanted)))
    assert target.most == 50
    assert len(target.taken) == 400


def test_few_bytes_are_under_way_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_lines, "WINDOW_BYTES", 1_000)
    target = Slow()
    rows = rows_of(*(text(f"a/{number}", bytes(300)) for number in range(20)), text("a/large", bytes(5_000)))
    asyncio.run(target.answer_all(BulkAppend(target, rows, wanted)))
    assert target.most == 4
    assert len(target.taken) == 21


def test_the_first_row_of_a_stream_goes_alone_and_others_close_behind_one_another() -> None:
    async def work() -> None:
        target = Slow()
        bulk = BulkAppend(target, rows_of(*(text("a/x", b"%d" % number) for number in range(6))), wanted)
        running = asyncio.get_running_loop().create_task(bulk.run())
        submitted = []
        while not running.done():
            for _ in range(10):
                await asyncio.sleep(0)
            submitted.append([command.payload for command, _ in target.waiting])
            target.answer()
        assert submitted[:2] == [[b"0"], [b"1", b"2", b"3", b"4", b"5"]]
        assert [command.incarnation for command in target.taken] == [None, 1, 1, 1, 1, 1]

    asyncio.run(work())


@pytest.mark.parametrize(
    "second",
    [
        row("a/x", b"b", content_type=JSON, producer=("p", 0, 1)),
        row("a/x", b"b", content_type=TEXT, close=True, producer=("p", 0, 1)),
        row("a/x", b"b", content_type=TEXT),
        row("a/x", b"b", content_type=TEXT, producer=("q", 0, 1)),
        row("a/x", b"b", content_type=TEXT, producer=("p", 1, 1)),
        row("a/x", b"b", content_type=TEXT, producer=("p", 0, 2)),
        row("a/x", b"b", content_type=TEXT, producer=("p", 0, 0)),
    ],
)
def test_a_row_that_could_go_in_where_the_one_before_cannot_waits_for_it(second: Row) -> None:
    first = row("a/x", b"a", content_type=TEXT, producer=("p", 0, 0))
    rows = rows_of(first, second)
    assert not rows.goes_with(1, 0)
    assert rows_of(first, row("a/x", b"b", content_type=TEXT, producer=("p", 0, 1))).goes_with(1, 0)


def test_where_there_is_no_room_nothing_goes_in_behind_and_others_go_on() -> None:
    target = Slow("a/full")
    rows = [text(name, b"%d" % number) for number in range(3) for name in ("a/full", "a/free")]
    bulk = BulkAppend(target, rows_of(*rows), wanted)
    asyncio.run(target.answer_all(bulk))
    assert [command.payload for command in target.taken if command.name == "a/full"] == [b"0"]
    assert [command.payload for command in target.taken if command.name == "a/free"] == [b"0", b"1", b"2"]
    full = bulk.outcomes[::2]
    assert full[0] == NO_ROOM
    assert [isinstance(one, Refusal) and (one.code, "An earlier row" in one.detail) for one in full[1:]] == [
        (Code.OVERLOADED, True)
    ] * 2


def test_a_server_that_is_full_says_so_and_a_large_request_alone_does_not_fill_it() -> None:
    rows = [row(f"a/{number}", b"0123456789", create=True) for number in range(5_000)]

    async def full(node: Bench) -> None:
        outcomes = await run(node.node, *rows)
        assert isinstance(outcomes[0], GONE_IN)
        assert isinstance(outcomes[-1], Refusal)
        assert outcomes[-1].code is Code.OVERLOADED
        gone_in = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, GONE_IN)]
        assert held(node.state).keys() >= {f"a/{number}" for number in gone_in}
        assert node.state.hot_bytes == len(gone_in) * hot_cost(10, 1, 1)

    async def free(node: Bench) -> None:
        assert all(isinstance(outcome, GONE_IN) for outcome in await run(node.node, *rows))

    # Nothing is flushed automatically here, so hot data stays hot.
    on_a_node(full, hot_bytes_max=1_000 * hot_cost(10, 1, 1))
    on_a_node(free)


def test_a_line_that_is_refused_while_it_waits_for_its_turn_is_done_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_lines, "WINDOW_ROWS", 4)

    async def work() -> None:
        target = Slow()
        rows = [text(name, b"%d" % number) for number in range(9) for name in ("a/full", "a/free")]
        bulk = BulkAppend(target, rows_of(*rows), wanted)
        running = asyncio.get_running_loop().create_task(bulk.run())
        await turns()
        target.answer()
        await turns()
        target.refused = ("a/full",)
        while not running.done():
            target.answer()
            await turns()
        assert running.result()
        assert {command.payload for command in target.taken if command.name == "a/full"} < {b"0", b"1", b"2", b"3"}
        assert all(isinstance(outcome, Appended) for outcome in bulk.outcomes[1::2])
        assert all(isinstance(outcome, Refusal) for outcome in bulk.outcomes[2::2])

    asyncio.run(work())


# -- Large rows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "value"), [("SLICE_MESSAGES", 3), ("SLICE_BYTES", 3)])
def test_a_row_that_is_larger_than_a_slice_is_cut_beside_the_loop(
    limit: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[int, str] = {}

    def cut(payload: bytes, ends: bytes | None) -> Any:
        threads[message_ends.count(ends)] = current_thread().name
        return cut_json(payload, ends)

    async def work(node: Bench) -> None:
        rows = [row("a/x", *[b"1"] * count, content_type=JSON, create=True) for count in (3, 4)]
        bulk = BulkAppend(node.node, rows_of(*rows), wanted, node.node.threads)
        assert await asyncio.wait_for(bulk.run(), 60)
        assert [seen(outcome)[1] for outcome in bulk.outcomes] == [3, 7]
        assert threads[3] == current_thread().name
        assert threads[4].startswith("blobs")

    monkeypatch.setattr(bulk_rows, "cut_json", cut)
    monkeypatch.setattr(bulk_lines, limit, value)
    on_a_node(work)


def test_a_large_row_is_not_submitted_if_one_before_it_is_refused_while_it_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk_lines, "SLICE_MESSAGES", 3)

    async def work() -> None:
        target, go_on = Slow(), Event()
        with ThreadPoolExecutor(1) as threads:
            threads.submit(go_on.wait)
            rows = rows_of(text("a/x", b"0"), text("a/x", b"1"), text("a/x", *[b"2"] * 4), text("a/x", b"3"))
            bulk = BulkAppend(target, rows, wanted, threads)
            running = asyncio.get_running_loop().create_task(bulk.run())
            await turns()
            target.answer()
            await turns()
            assert [command.payload for command, _ in target.waiting] == [b"1"]
            target.refused = ("a/x",)
            target.answer()
            go_on.set()
            assert await asyncio.wait_for(running, 60)
        assert [command.payload for command in target.taken] == [b"0", b"1"]
        assert [isinstance(one, Refusal) and "An earlier row" in one.detail for one in bulk.outcomes] == [
            False,
            False,
            True,
            True,
        ]

    asyncio.run(work())


def test_rows_without_a_client_are_not_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_lines, "SLICE_ROWS", 4)
    target = Slow()
    rows = rows_of(*(text(f"a/{number}", b"x") for number in range(100)))
    bulk = BulkAppend(target, rows, lambda: len(target.taken) < 10)
    assert not asyncio.run(bulk.run())
    assert len(target.taken) == 12
