"""Short commits: batches that the journal commits on the loop, from the queue to their answers in one turn."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headwater.log.journal import journal as journals
from headwater.log.journal.journal import SHORT_BATCH_BYTES_MAX, Journal
from headwater.node.clock import Clock
from headwater.node.committer import Committer, ask
from headwater.node.metrics import Metrics
from headwater.node.reads.tails import Tails
from headwater.protocol.producers import Producer
from headwater.protocol.refusals import Refusal
from headwater.streams.apply import apply
from headwater.streams.batches import Batch, encode
from headwater.streams.commands import Command
from headwater.streams.commands.streams import Append, Create
from headwater.streams.replies import Appended, Created, Duplicate, Reply
from headwater.streams.state import State

FILE_BYTES = 64 * 1024


class Bench:
    """A committer on a journal in a folder, which takes all syncs for short."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # Whatever the disk does: a slow one would leave the batches to the thread.
        monkeypatch.setattr(journals, "SHORT_SYNC_SECONDS", 1000.0)
        self.folder, self.failures = folder, list[BaseException]()
        self.journal = Journal(folder, file_bytes=FILE_BYTES, on_failure=self.failures.append)
        self.journal._sync_seconds = 0.0
        self.state, self.metrics = State(self.journal.log_id), Metrics()
        list(self.journal.replay(0))
        self.committer = Committer(
            self.state, self.journal, Tails(), self.metrics, now=Clock().now, on_failure=self.failures.append
        )
        self.in_thread = 0
        commit = self.journal._commit

        def counted(record: bytes, at: int, commands: list[Command], *, frees: bool) -> Batch:
            self.in_thread += threading.current_thread() is not threading.main_thread()
            return commit(record, at, commands, frees=frees)

        self.journal._commit = counted  # type: ignore[method-assign]

    def run(self, story: Callable[["Bench"], Coroutine[Any, Any, None]]) -> None:
        async def run() -> None:
            self.committer.start()
            await story(self)
            self.journal.close()

        asyncio.run(run())

    async def commit(self, *commands: Command) -> list[Reply]:
        """Commit several commands in one batch."""
        return list(await asyncio.gather(*(ask(self.committer.submit, command) for command in commands)))

    def replayed(self) -> State:
        """The state as a restart finds it."""
        journal = Journal(self.folder, file_bytes=FILE_BYTES)
        state = State(journal.log_id)
        for batch in journal.replay(0):
            apply(state, batch)
        return state


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path / "journal", monkeypatch)


def test_what_is_answered_is_in_the_journal_over_several_files(bench: Bench) -> None:
    async def story(bench: Bench) -> None:
        assert isinstance((await bench.commit(Create("a", "text/plain")))[0], Created)
        for number in range(300):
            payload = b"%d" % number * (number * 7 % 400 + 1)
            commands = [Append("a", payload, content_type="text/plain", producer=Producer("p", 0, number))]
            commands += [Append("a", b"x" * size, content_type="text/plain") for size in (1, 63, 64, 65)]
            assert [type(reply) for reply in await bench.commit(*commands)] == [Appended] * 5

    bench.run(story)
    assert bench.failures == []
    assert 0 < bench.in_thread < 60, "only batches that need another file"
    assert bench.replayed().streams == bench.state.streams
    assert len(list(bench.folder.glob("*.journal"))) > 3
    assert bench.metrics.batch_commands.count == 301


def test_batches_are_applied_and_answered_in_order(bench: Bench) -> None:
    async def story(bench: Bench) -> None:
        first = Append("a", b"one", content_type="text/plain", producer=Producer("p", 0, 0))
        replies = await bench.commit(Create("a", "text/plain"), first, first, Append("b", b"x"))
        assert [type(reply) for reply in replies] == [Created, Appended, Duplicate, Refusal]
        assert bench.metrics.producer_duplicates == 1

    bench.run(story)
    assert bench.committer.queued_bytes == 0
    assert bench.in_thread == 0


def test_an_answer_leaves_before_the_chores_look_for_work(bench: Bench) -> None:
    async def story(bench: Bench) -> None:
        order: list[str] = []
        bench.committer.after_batch = lambda: order.append("chores")
        bench.committer.submit(Create("a", "text/plain"), lambda reply: order.append("answer"))
        await asyncio.sleep(0)
        assert order == ["answer"], "in the turn that committed it"
        await asyncio.sleep(0)
        assert order == ["answer", "chores"]

    bench.run(story)


def test_a_client_that_writes_again_from_its_answer_gets_the_next_batch(bench: Bench) -> None:
    replies: list[Reply] = []

    async def story(bench: Bench) -> None:
        done = asyncio.Event()

        def again(reply: Reply) -> None:
            replies.append(reply)
            if len(replies) == 5:
                done.set()
            else:
                bench.committer.submit(Append("a", b"x", content_type="text/plain"), again)

        bench.committer.submit(Create("a", "text/plain"), again)
        await done.wait()

    bench.run(story)
    assert [type(reply) for reply in replies] == [Created] + [Appended] * 4
    assert bench.metrics.batch_commands.count == 5


def test_an_answer_that_fails_keeps_no_other_from_its_own(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    async def story(bench: Bench) -> None:
        def broken(reply: Reply) -> None:
            raise RuntimeError("a bug")

        bench.committer.submit(Create("a", "text/plain"), broken)
        assert isinstance(await ask(bench.committer.submit, Append("a", b"x", content_type="text/plain")), Appended)

    bench.run(story)
    assert "a reply could not be delivered" in caplog.text
    assert bench.failures == []


def test_a_failed_write_is_never_answered(bench: Bench) -> None:
    async def story(bench: Bench) -> None:
        await bench.commit(Create("a", "text/plain"))
        file = bench.journal.writer._file
        assert file is not None
        descriptor, read_only = file._fd, os.open("/dev/null", os.O_RDONLY)  # type: ignore[attr-defined]
        file._fd = read_only  # type: ignore[attr-defined]
        answers: list[Reply] = []
        bench.committer.submit(Append("a", b"x", content_type="text/plain"), answers.append)
        await asyncio.sleep(0.05)
        file._fd = descriptor  # type: ignore[attr-defined]
        bench.committer.submit(Append("a", b"y", content_type="text/plain"), answers.append)
        await asyncio.sleep(0.05)
        assert answers == [], "nor is it tried again"
        os.close(read_only)

    bench.run(story)
    assert [error.errno for error in bench.failures if isinstance(error, OSError)] == [errno.EBADF]
    assert bench.replayed().streams["a"].tail == 0


def test_a_batch_that_cannot_be_applied_ends_the_server(bench: Bench) -> None:
    async def story(bench: Bench) -> None:
        await bench.commit(Create("a", "text/plain"))
        bench.state.position += 1
        bench.committer.submit(Append("a", b"x", content_type="text/plain"), lambda reply: None)
        await asyncio.sleep(0.05)

    bench.run(story)
    assert [type(error) for error in bench.failures] == [AssertionError]


def test_a_large_batch_is_left_to_the_thread_whatever_it_was_taken_for(
    bench: Bench,
) -> None:
    async def story(bench: Bench) -> None:
        large = [Append("a" * 200, b"x", seq="s" * 20_000) for _ in range(20)]
        assert sum(one.cost_bytes() for one in large) < SHORT_BATCH_BYTES_MAX < len(encode(0, list(large)))
        assert [type(reply) for reply in await bench.commit(*large)] == [Refusal] * 20

    bench.run(story)
    assert bench.in_thread == 1
