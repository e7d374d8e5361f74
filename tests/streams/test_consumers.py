import pytest

from headwater.protocol.limits import CONSUMER_IDLE_US, CONSUMERS_MAX
from headwater.protocol.refusals import Code, Refusal
from headwater.streams import tiering
from headwater.streams.cold import Consumer
from headwater.streams.commands import Create, DropConsumer, RegisterConsumer
from headwater.streams.replies import Done, Reply

from .shards import START_US, Shards


def register(shards: Shards, reader: str, position: int = 0) -> Reply:
    return shards.all[0].submit([RegisterConsumer(reader, position)], shards.now)[0]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiering, "CONSUMERS_MAX", 2)


def test_a_reader_is_remembered_with_its_position_and_the_time(shards: Shards) -> None:
    shards.ask(Create("b/s", "text/plain"))
    assert register(shards, "r", 1) == Done()
    shards.wait(1)
    assert register(shards, "q", 0) == Done()
    readers = shards.all[0].state.cold.consumers
    assert readers == {"r": Consumer(1, START_US), "q": Consumer(0, START_US + 1_000_000)}
    assert register(shards, "r", 3) == Done()
    assert list(readers.items()) == [
        ("q", Consumer(0, START_US + 1_000_000)),
        ("r", Consumer(3, START_US + 1_000_000)),
    ]


def test_a_reader_may_have_read_up_to_the_present_and_not_beyond(shards: Shards) -> None:
    shards.ask(Create("b/s", "text/plain"))
    assert register(shards, "r", 2) == Done()
    refusal = register(shards, "r", 4)
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.BAD_REQUEST
    assert refusal.detail == "Position 4 is beyond the end of the log, 3."
    assert shards.all[0].state.cold.consumers["r"].position == 2


def test_a_reader_may_go_back(shards: Shards) -> None:
    shards.ask(Create("b/s", "text/plain"))
    register(shards, "r", 2)
    assert register(shards, "r", 1) == Done()
    assert shards.all[0].state.cold.consumers["r"].position == 1


def test_a_reader_that_is_dropped_is_forgotten(shards: Shards) -> None:
    register(shards, "r")
    register(shards, "q")
    assert shards.all[0].submit([DropConsumer("r"), DropConsumer("r")], shards.now) == [Done(), Done()]
    assert list(shards.all[0].state.cold.consumers) == ["q"]


def test_there_are_many_readers_but_not_any_number() -> None:
    assert CONSUMERS_MAX == 1000


@pytest.mark.usefixtures("few")
def test_one_more_reader_than_there_may_be_is_refused(shards: Shards) -> None:
    register(shards, "q")
    register(shards, "r")
    refusal = register(shards, "s")
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.OVERLOADED
    assert refusal.detail == "2 consumers are registered, the maximum; remove one that is no longer used."
    assert list(shards.all[0].state.cold.consumers) == ["q", "r"]
    assert register(shards, "q") == Done()
    assert list(shards.all[0].state.cold.consumers) == ["r", "q"]


@pytest.mark.usefixtures("few")
def test_the_reader_that_was_silent_for_longest_makes_room_after_a_week(shards: Shards) -> None:
    register(shards, "q")
    register(shards, "r")
    shards.wait(1)
    register(shards, "q")
    shards.now = START_US + CONSUMER_IDLE_US - 1
    assert isinstance(register(shards, "s"), Refusal)
    shards.now += 1
    assert register(shards, "s") == Done()
    assert list(shards.all[0].state.cold.consumers) == ["q", "s"]
    shards.now += 2 * CONSUMER_IDLE_US
    assert register(shards, "t") == Done()
    assert list(shards.all[0].state.cold.consumers) == ["s", "t"]
