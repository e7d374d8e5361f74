"""Barriers of a node that may have been evicted without knowing it: when they go through the log instead of asking."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headwater.log.jetstream import barriers
from headwater.log.jetstream.barriers import Barriers, encode_answer


class Parts:
    """A log with members that a test speaks for; what goes through it comes back at once."""

    def __init__(self, *others: str) -> None:
        self.applied = 7
        self.others = frozenset(others)
        self.asked: list[int] = []
        self.through_log = 0

    def members_to_ask(self) -> frozenset[str] | None:
        return self.others

    def ask(self, number: int) -> bool:
        self.asked.append(number)
        return True

    def send_barrier(self, arrived: Callable[[], None]) -> None:
        self.through_log += 1
        asyncio.get_running_loop().call_soon(arrived)

    def learn(self, sequence: int) -> None: ...


async def reached(found: Barriers) -> bool:
    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    found.wait(done.set_result)
    return await asyncio.wait_for(done, 10)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


def test_members_are_believed_only_for_a_while_after_a_message_came_through_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        parts = Parts("b")
        found = Barriers(parts)
        assert await reached(found)
        assert (parts.through_log, parts.asked) == (1, []), "nothing has come through the log yet"
        waiting = asyncio.create_task(reached(found))
        while not parts.asked:
            await asyncio.sleep(0)
        found.receive(parts.asked[0], encode_answer("b", 7))
        assert await waiting
        monkeypatch.setattr(barriers, "CONTACT_SECONDS", -1.0)
        assert await reached(found)
        assert (parts.through_log, len(parts.asked)) == (2, 1)

    run(main())


def test_a_node_that_knows_of_no_other_member_asks_the_log_each_time() -> None:
    async def main() -> None:
        parts = Parts()
        found = Barriers(parts)
        assert await reached(found)
        assert await reached(found)
        assert (parts.through_log, parts.asked) == (2, [])

    run(main())


def test_barriers_that_are_given_up_are_not_reached_by_a_late_answer() -> None:
    async def main() -> None:
        parts = Parts("b")
        found = Barriers(parts)
        assert await reached(found)
        waiting = asyncio.create_task(reached(found))
        while not parts.asked:
            await asyncio.sleep(0)
        found.fail_all()
        found.receive(parts.asked[0], encode_answer("b", 7))
        assert not await waiting

    run(main())
