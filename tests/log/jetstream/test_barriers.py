"""Barriers, with members whose answers a test gives."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headwater.log.jetstream import barriers as barriers_module
from headwater.log.jetstream.barriers import Barriers, encode_answer


class Members:
    """What barriers see of a log: two other members, unless they are silent."""

    def __init__(self) -> None:
        self.applied = 10
        self.others: frozenset[str] | None = frozenset({"b", "c"})
        self.reachable = True
        self.asked: list[int] = []
        self.through_log: list[Callable[[], None]] = []
        self.learned: list[int] = []
        self.barriers = Barriers(self)

    def members_to_ask(self) -> frozenset[str] | None:
        return self.others

    def ask(self, number: int) -> bool:
        self.asked.append(number)
        return self.reachable

    def send_barrier(self, arrived: Callable[[], None]) -> None:
        self.through_log.append(arrived)

    def learn(self, sequence: int) -> None:
        self.learned.append(sequence)

    def answer(self, session: str, applied: int, number: int | None = None) -> None:
        self.barriers.receive(self.asked[-1] if number is None else number, encode_answer(session, applied))

    def wait(self) -> list[bool]:
        reached: list[bool] = []
        self.barriers.wait(reached.append)
        return reached


def run(use: Callable[[Members], Awaitable[None]]) -> None:
    async def main() -> None:
        members = Members()
        await use(members)
        members.barriers.fail_all()

    asyncio.run(main())


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_all_members_must_answer_and_the_highest_answer_counts() -> None:
    async def use(members: Members) -> None:
        reached = members.wait()
        await turn()
        members.answer("b", 10)
        members.answer("b", 10)
        members.answer("stranger", 10)
        assert reached == []
        members.answer("c", 12)
        assert reached == []
        assert members.learned == [12]
        members.barriers.applied(11)
        assert reached == []
        members.barriers.applied(12)
        assert reached == [True]

    run(use)


def test_what_is_applied_already_is_not_waited_for() -> None:
    async def use(members: Members) -> None:
        reached = members.wait()
        await turn()
        members.answer("b", 9)
        members.answer("c", 10)
        assert reached == [True]

    run(use)


def test_a_reader_that_comes_during_a_question_waits_for_the_next_one() -> None:
    async def use(members: Members) -> None:
        first = members.wait()
        await turn()
        second = members.wait()
        late = members.asked[-1]
        members.answer("b", 10)
        members.answer("c", 10)
        assert (first, second) == ([True], [])
        await turn()
        assert len(members.asked) == 2
        members.answer("b", 10, late)
        members.answer("c", 10, late)
        assert second == [], "answers to an earlier question"
        members.answer("b", 10)
        members.answer("c", 10)
        assert second == [True]

    run(use)


def test_a_member_that_does_not_answer_in_time_sends_the_barrier_through_the_log() -> None:
    async def use(members: Members) -> None:
        reached = members.wait()
        await turn()
        members.answer("b", 10)
        await asyncio.sleep(2 * barriers_module.ANSWER_SECONDS)
        members.answer("c", 10)
        assert reached == []
        members.through_log[0]()
        assert reached == [True]

    run(use)


@pytest.mark.parametrize("silent", [True, False])
def test_a_silent_member_or_a_lost_connection_sends_it_through_the_log_at_once(silent: bool) -> None:
    async def use(members: Members) -> None:
        members.others = None if silent else members.others
        members.reachable = silent
        reached = members.wait()
        await turn()
        members.through_log[0]()
        assert reached == [True]

    run(use)


def test_a_barrier_that_is_not_reached_in_time_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barriers_module, "BARRIER_SECONDS_MAX", 0.05)

    async def use(members: Members) -> None:
        members.others = None
        reached = members.wait()
        await turn()
        while not reached:
            await asyncio.sleep(0.005)
        assert reached == [False]
        members.through_log[0]()
        assert reached == [False]
        again = members.wait()
        await turn()
        assert len(members.through_log) == 2, "the round that timed out does not block the next one"
        members.through_log[1]()
        assert again == [True]

    run(use)


def test_nonsense_is_not_an_answer() -> None:
    async def use(members: Members) -> None:
        reached = members.wait()
        await turn()
        members.barriers.receive(members.asked[-1], b"nonsense")
        members.answer("b", 10)
        assert reached == []

    run(use)


def test_a_log_that_ends_fails_every_barrier() -> None:
    async def use(members: Members) -> None:
        first = members.wait()
        await turn()
        members.answer("b", 99)
        members.answer("c", 99)
        second = members.wait()
        await turn()
        third = members.wait()
        members.barriers.fail_all()
        assert [first, second, third] == [[False]] * 3

    run(use)
