"""Live readers of one stream are woken in turns, and each of them gets everything."""

import asyncio

from headwater.node.reads.tails import WAKES_PER_TURN, Shared, Tails

NAME = "bucket/stream"


class Reader:
    """A reader that takes everything up to the tail when it is woken, and shares what it made of it."""

    def __init__(self, stream: list[int]) -> None:
        self._stream = stream
        self.at = self.wakes = 0
        self.got: list[int] = []

    def wake(self, shared: Shared) -> None:
        self.wakes += 1
        event = shared.setdefault(self.at, self._stream[self.at :])
        self.got += event
        self.at += len(event)


def audience(tails: Tails, stream: list[int], count: int) -> list[Reader]:
    readers = [Reader(stream) for _ in range(count)]
    for reader in readers:
        tails.watch(NAME, reader)
    return readers


async def settle() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


def test_few_readers_are_woken_at_once() -> None:
    tails, stream = Tails(), [1]
    readers = audience(tails, stream, WAKES_PER_TURN)
    tails.wake(NAME)  # There is no loop on which any of them could be woken later.
    assert [reader.got for reader in readers] == [[1]] * WAKES_PER_TURN


def test_many_readers_are_woken_in_turns() -> None:
    async def main() -> None:
        tails, stream = Tails(), [1]
        readers = audience(tails, stream, 3 * WAKES_PER_TURN + 1)
        tails.wake(NAME)
        for turn in (1, 2, 3):
            assert sum(reader.wakes for reader in readers) == turn * WAKES_PER_TURN
            await asyncio.sleep(0)
        assert [reader.got for reader in readers] == [[1]] * len(readers)

    asyncio.run(main())


def test_what_is_appended_during_a_round_reaches_all_and_those_still_in_line_get_it_in_one() -> None:
    async def main() -> None:
        tails, stream = Tails(), [1]
        readers = audience(tails, stream, 3 * WAKES_PER_TURN)
        tails.wake(NAME)
        stream.append(2)
        tails.wake(NAME)
        await settle()
        assert [reader.got for reader in readers] == [[1, 2]] * len(readers)
        assert [reader.wakes for reader in readers] == [2] * WAKES_PER_TURN + [1] * 2 * WAKES_PER_TURN
        stream.append(3)
        tails.wake(NAME)
        await settle()
        assert [reader.got for reader in readers] == [[1, 2, 3]] * len(readers), (
            "the round has ended, and another began"
        )

    asyncio.run(main())


def test_a_reader_that_left_while_it_was_in_line_is_not_woken() -> None:
    async def main() -> None:
        tails, stream = Tails(), [1]
        readers = audience(tails, stream, 2 * WAKES_PER_TURN)
        tails.wake(NAME)
        for reader in readers[:-1]:
            tails.unwatch(NAME, reader)
        await settle()
        assert [reader.wakes for reader in readers] == [1] * WAKES_PER_TURN + [0] * (WAKES_PER_TURN - 1) + [1]
        tails.unwatch(NAME, readers[-1])
        assert (tails.count, list(tails.names)) == (0, [])

    asyncio.run(main())


def test_all_readers_may_leave_during_their_round() -> None:
    async def main() -> None:
        tails, stream = Tails(), [1]
        readers = audience(tails, stream, 2 * WAKES_PER_TURN)
        tails.wake(NAME)
        for reader in readers:
            tails.unwatch(NAME, reader)
        later = Reader(stream)
        tails.watch(NAME, later)
        tails.wake(NAME)
        await settle()
        assert (later.got, sum(reader.wakes for reader in readers)) == ([1], WAKES_PER_TURN)

    asyncio.run(main())
