"""Short commits: what the compiled committer writes is what the journal would have written, and nothing is lost."""

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headwater.compiled import compiled
from headwater.log.journal import journal as journals
from headwater.log.journal.journal import SHORT_BATCH_BYTES_MAX, Journal
from headwater.node.clock import Clock
from headwater.node.committer import Committer, ask
from headwater.node.metrics import Metrics
from headwater.node.reads.tails import Tails
from headwater.protocol.producers import Producer
from headwater.protocol.refusals import Refusal
from headwater.streams.apply import apply
from headwater.streams.batches import cost_bytes, encode
from headwater.streams.commands import Append, Command, Create
from headwater.streams.replies import Appended, Created, Duplicate, Reply
from headwater.streams.state import State

pytestmark = pytest.mark.skipif(compiled("headwater.node._committing") is None, reason="nothing was compiled here")

FILE_BYTES = 64 * 1024


class Bench:
    """A committer on a journal in a folder, which takes all syncs for short."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # Whatever the disk does: a slow one would leave the batches to Python.
        short = property(lambda journal: 0.0, lambda journal, seconds: None)
        monkeypatch.setattr(journals.Journal, "_sync_seconds", short)
        self.folder, self.failures = folder, list[BaseException]()
        self.journal = Journal(folder, file_bytes=FILE_BYTES, on_failure=self.failures.append)
        self.state, self.metrics = State(self.journal.log_id), Metrics()
        list(self.journal.replay(0))
        self.committer = Committer(
            self.state, self.journal, Tails(), self.metrics, now=Clock().now, on_failure=self.failures.append
        )
        self.left_to_python = 0
        send = self.committer._send

        def counted() -> None:
            self.left_to_python += 1
            send()

        self.committer._send = counted  # type: ignore[method-assign]

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
    assert 0 < bench.left_to_python < 60, "only batches that need another file"
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
    assert bench.left_to_python == 0


def test_an_answer_leaves_before_its_batch_is_counted_and_the_chores_look_for_work(bench: Bench) -> None:
    async def story(bench: Bench) -> None:
        order: list[str] = []
        bench.committer.after_batch = lambda: order.append("chores")
        bench.committer.submit(Create("a", "text/plain"), lambda reply: order.append("answer"))
        await asyncio.sleep(0)
        assert (order, bench.metrics.batch_commands.count) == (["answer"], 0)
        await asyncio.sleep(0)
        assert (order, bench.metrics.batch_commands.count) == (["answer", "chores"], 1)

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
        file = bench.journal._file
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


def test_a_system_that_cannot_write_and_sync_at_once_does_one_after_the_other(bench: Bench) -> None:
    async def story(bench: Bench) -> None:
        await bench.commit(Create("a", "text/plain"))
        # Such a system answers as one that is asked to write at a place before the beginning of the file.
        at = bench.journal._file_at
        bench.journal._file_at = -64
        writes: list[int] = []
        stage, sync = bench.journal.stage, bench.journal.sync

        def staged(record: bytes, entries: int, *, frees: bool, waits: bool) -> int:
            bench.journal._file_at = at
            return stage(record, entries, frees=frees, waits=waits)

        def synced() -> None:
            writes.append(1)
            sync()

        bench.journal.stage, bench.journal.sync = staged, synced  # type: ignore[method-assign]
        assert isinstance((await bench.commit(Append("a", b"x", content_type="text/plain")))[0], Appended)
        assert writes == [1]
        bench.journal.stage, bench.journal.sync = stage, sync  # type: ignore[method-assign]
        assert isinstance((await bench.commit(Append("a", b"x", content_type="text/plain")))[0], Appended)
        assert bench.left_to_python == 1, "it is not tried again"

    bench.run(story)
    assert bench.failures == []
    assert bench.replayed().streams == bench.state.streams


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
        assert sum(map(cost_bytes, large)) < SHORT_BATCH_BYTES_MAX < len(encode(0, list(large)))
        assert [type(reply) for reply in await bench.commit(*large)] == [Refusal] * 20

    bench.run(story)
    assert bench.left_to_python == 1
