"""Bugs to plant, one at a time: if the simulation does not find them, it would not find others either."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from unittest import mock

from headwater.lake.format import deadline_us_of, parse_segment_key
from headwater.log.jetstream import judging
from headwater.log.jetstream.barriers import Barriers
from headwater.log.jetstream.judging import Judge, Session, decode_mark
from headwater.log.jetstream.log import JetStreamLog
from headwater.node import committer
from headwater.node.cluster.membership import Membership, Standing
from headwater.node.cluster.shared_shard import SharedShard
from headwater.node.committer import Done
from headwater.node.lake import flusher
from headwater.node.lake.parts import LakeParts
from headwater.node.lake.sweeper import LakeSweeper
from headwater.node.threads import in_thread
from headwater.streams.commands.lake import PublishSegment
from headwater.streams.replies import Reply


@contextmanager
def no_barrier() -> Iterator[None]:
    """Answers come from whatever a node has applied."""

    def at_once(self: SharedShard, reached: Callable[[bool], None]) -> None:
        reached(True)

    with mock.patch.object(SharedShard, "barrier", at_once):
        yield


@contextmanager
def first_answer() -> Iterator[None]:
    """A barrier takes the first answer that comes, instead of waiting for all members."""
    receive = Barriers.receive

    def receive_first(self: Barriers, number: int, data: bytes) -> None:
        if self._round is not None and self._round.number == number:
            self._round.missing.clear()
        receive(self, number, data)

    with mock.patch.object(Barriers, "receive", receive_first):
        yield


@contextmanager
def no_epoch() -> Iterator[None]:
    """Publications do not say in whose tenure they were made."""

    def without_epoch(publication: Any, deadline: int, flushed: int, epoch: int | None) -> PublishSegment:
        return PublishSegment(publication, deadline, flushed, None)

    with mock.patch.object(flusher, "PublishSegment", without_epoch):
        yield


@contextmanager
def forgotten_session() -> Iterator[None]:
    """A silent session is forgotten long before its first message is too old to begin one."""

    known = Judge._known

    def forget_early(self: Judge, session: int, number: int, at: int) -> Session | None:
        if number == 1 and session in self._sessions:
            self._forget(self.now - judging.SESSION_US // 10)
        return known(self, session, number, at)

    with mock.patch.object(Judge, "_known", forget_early):
        yield


@contextmanager
def swapped_replies() -> Iterator[None]:
    """The answers to the commands of a batch are given in the wrong order."""
    answer = committer._answer

    def backwards(waiters: list[Done], replies: Sequence[Reply]) -> None:
        answer(waiters, list(reversed(replies)))

    with mock.patch.object(committer, "_answer", backwards):
        yield


@contextmanager
def hasty_joiner() -> Iterator[None]:
    """A node serves as soon as it has applied its own join, whether or not the others know of it."""

    def confirm(self: Membership) -> None:
        self.standing = Standing.SERVING
        self._serve(True)

    with mock.patch.object(Membership, "_confirm", confirm):
        yield


@contextmanager
def evicted_node_answers() -> Iterator[None]:
    """A node that was evicted goes on as if it had not been."""
    after_batch = Membership.after_batch

    def unaware(self: Membership) -> None:
        if self._mine is not None or self.standing is not Standing.SERVING:
            after_batch(self)
        else:
            self.log.members = {name: member.session for name, member in self._state.cluster.members.items()}

    with mock.patch.object(Membership, "after_batch", unaware):
        yield


@contextmanager
def repetitions_count() -> Iterator[None]:
    """A message that was sent again counts again."""
    fits = Judge._fits

    def fits_again(self: Judge, known: Session, number: int, *rest: int) -> bool:
        if number == known.last and not known.parts:
            known.last -= 1
        return fits(self, known, number, *rest)

    with mock.patch.object(Judge, "_fits", fits_again):
        yield


@contextmanager
def forgetful_mark() -> Iterator[None]:
    """An image does not say which sessions are known."""
    mark = JetStreamLog.mark

    def without_sessions(self: JetStreamLog) -> bytes:
        return judging._mark_encoder.encode(
            judging.Mark(*(*_fields(decode_mark(mark(self))), {}))  # type: ignore[arg-type]
        )

    with mock.patch.object(JetStreamLog, "mark", without_sessions):
        yield


def _fields(mark: judging.Mark) -> tuple[int, ...]:
    return mark.version, mark.sequence, mark.position, mark.now, mark.chain


@contextmanager
def sweep_by_the_clock() -> Iterator[None]:
    """Segments that the state does not name are deleted by the clock, and without asking what others have decided."""
    begin = LakeSweeper.__init__

    def init(self: LakeSweeper, parts: LakeParts, *rest: Any) -> None:
        begin(self, parts, *rest)
        self._clock = parts.now  # type: ignore[attr-defined]

    async def sweep(self: LakeSweeper) -> None:
        items = await in_thread(self._thread, lambda: list(self._store.items(f"segments/shard={self._shard}/")))
        for item in items:
            parsed = parse_segment_key(item.key)
            if parsed is None or self._state.cold.names(parsed.id):
                continue
            if deadline_us_of(parsed.id) + self._grace_us < self._clock():  # type: ignore[attr-defined]
                await self._delete(item.key)

    with mock.patch.object(LakeSweeper, "__init__", init), mock.patch.object(LakeSweeper, "sweep_orphans", sweep):
        yield


class Bug(NamedTuple):
    """A bug, and the theme of the schedules that find it soon."""

    plant: Callable[[], AbstractContextManager[None]]
    theme: str = ""


BUGS = {
    "no-barrier": Bug(no_barrier),
    "first-answer": Bug(first_answer, "routes"),
    "sweep-by-the-clock": Bug(sweep_by_the_clock, "tenures"),
    "no-epoch": Bug(no_epoch, "tenures"),
    "forgotten-session": Bug(forgotten_session),
    "swapped-replies": Bug(swapped_replies),
    "hasty-joiner": Bug(hasty_joiner, "joins"),
    "evicted-node-answers": Bug(evicted_node_answers, "evictions"),
    "repetitions-count": Bug(repetitions_count),
    "forgetful-mark": Bug(forgetful_mark),
}
