import pytest

from headwater.protocol.limits import CONSUMER_IDLE_US, CONSUMERS_MAX, LEASES_MAX, SECOND_US
from headwater.protocol.refusals import Code, Refusal
from headwater.streams import consumers
from headwater.streams.cold import ALL, Consumer, ConsumerWatch
from headwater.streams.commands.consumers import DropConsumer, LeaseLake, RegisterConsumer, RegisterConsumerFor
from headwater.streams.commands.streams import Create
from headwater.streams.replies import Done, Reply

from .shards import START_US, Shards


def register(shards: Shards, reader: str, position: int = 0) -> Reply:
    return shards.all[0].submit([RegisterConsumer(reader, position)], shards.now)[0]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "CONSUMERS_MAX", 2)
    monkeypatch.setattr(consumers, "LEASES_MAX", 2)


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
    assert refusal.code is Code.CONSUMERS_TOO_MANY
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


# -- Renewals ---------------------------------------------------------------------------------------------------------


def renew(shards: Shards, reader: str, position: int = 0) -> Reply:
    return shards.all[0].submit([RegisterConsumer(reader, position, renews=True)], shards.now)[0]


def lapsed(reply: Reply) -> bool:
    return isinstance(reply, Refusal) and reply.code is Code.CONSUMER_LAPSED


def test_a_reader_renews_its_registration_until_it_has_been_silent_for_a_week(shards: Shards) -> None:
    known = shards.all[0].state.cold.consumers
    register(shards, "r")
    shards.now += CONSUMER_IDLE_US - 1
    assert renew(shards, "r", 1) == Done()
    assert known == {"r": Consumer(1, shards.now)}
    shards.now += CONSUMER_IDLE_US
    assert lapsed(renew(shards, "r", 2))
    assert known["r"].position == 1
    assert register(shards, "r", 2) == Done()
    assert renew(shards, "r", 3) == Done()


def test_a_reader_that_is_not_registered_has_nothing_to_renew(shards: Shards) -> None:
    assert lapsed(renew(shards, "r"))
    assert lapsed(lease(shards, "l", renews=True))
    lease(shards, "l")
    assert lapsed(renew(shards, "l"))
    assert list(shards.all[0].state.cold.consumers) == ["l"]


# -- A consumer's own limit of silence ---------------------------------------------------------------------------------


def register_for(shards: Shards, reader: str, seconds: int, *, position: int = 0, renews: bool = False) -> Reply:
    command = RegisterConsumerFor(reader, position, seconds * SECOND_US, renews)
    return shards.all[0].submit([command], shards.now)[0]


def test_a_reader_lapses_after_the_time_that_it_said_itself(shards: Shards) -> None:
    cold = shards.all[0].state.cold
    assert register_for(shards, "short", 60) == Done()
    assert register_for(shards, "long", 30 * 86_400, position=1) == Done()
    assert cold.lowest_consumer(START_US + 60 * SECOND_US - 1) == 0
    assert cold.lowest_consumer(START_US + 60 * SECOND_US) == 1
    assert cold.lowest_consumer(START_US + 2 * CONSUMER_IDLE_US) == 1
    assert cold.lowest_consumer(START_US + 30 * 86_400 * SECOND_US) == ALL


def test_each_report_says_anew_how_long_a_reader_may_be_silent(shards: Shards) -> None:
    known = shards.all[0].state.cold.consumers
    register_for(shards, "r", 60)
    shards.wait(59)
    assert register_for(shards, "r", 120, renews=True) == Done()
    shards.wait(119)
    assert renew(shards, "r") == Done()
    assert known == {"r": Consumer(0, shards.now, CONSUMER_IDLE_US)}
    assert register_for(shards, "r", 60, renews=True) == Done()
    shards.wait(60)
    assert lapsed(register_for(shards, "r", 600, renews=True))
    assert known["r"].life_us == 60 * SECOND_US


def test_a_reader_with_a_limit_of_its_own_cannot_be_ahead_of_the_log(shards: Shards) -> None:
    assert isinstance(register_for(shards, "r", 60, position=9), Refusal)
    assert shards.all[0].state.cold.consumers == {}


@pytest.mark.usefixtures("few")
def test_a_reader_that_lapsed_by_its_own_limit_makes_room(shards: Shards) -> None:
    register(shards, "q")
    register_for(shards, "r", 60)
    assert isinstance(register(shards, "s"), Refusal)
    shards.wait(60)
    assert register(shards, "s") == Done()
    assert list(shards.all[0].state.cold.consumers) == ["q", "s"]


# -- How consumers are doing -------------------------------------------------------------------------------------------


def test_the_slowest_active_consumer_is_measured_against_the_last_row_in_the_lake(shards: Shards) -> None:
    cold = shards.all[0].state.cold
    assert cold.watch(START_US) == ConsumerWatch(0, 0, 0)
    shards.ask(Create("b/s", "text/plain", payload=b"1"))
    row = shards.all[0].state.position
    shards.flush()
    register(shards, "q", row)
    assert cold.watch(shards.now) == ConsumerWatch(1, 0, 0)
    register(shards, "q", shards.all[0].state.position)
    assert cold.watch(shards.now) == ConsumerWatch(1, 0, 0), "beyond the last row is not behind"
    register_for(shards, "r", 60, position=row - 1)
    lease(shards, "l")
    shards.wait(5)
    register(shards, "q", row)
    assert cold.watch(shards.now) == ConsumerWatch(2, 1, 5 * SECOND_US)
    assert cold.watch(shards.now - 9 * SECOND_US).silent_us == 0, "a clock that is behind the shard's time"
    shards.wait(55)
    assert cold.watch(shards.now) == ConsumerWatch(1, 0, 55 * SECOND_US)


# -- Leases -----------------------------------------------------------------------------------------------------------


def lease(shards: Shards, name: str, *, seconds: int = 10, renews: bool = False) -> Reply:
    return shards.all[0].submit([LeaseLake(name, seconds * SECOND_US, renews)], shards.now)[0]


def test_a_lease_begins_at_the_present_and_keeps_its_beginning(shards: Shards) -> None:
    cold = shards.all[0].state.cold
    shards.ask(Create("b/s", "text/plain"))
    assert lease(shards, "l") == Done()
    shards.wait(9)
    assert lease(shards, "l", seconds=20, renews=True) == Done()
    assert cold.consumers == {"l": Consumer(2, START_US + 9 * SECOND_US, 20 * SECOND_US, True)}
    assert lease(shards, "l") == Done()
    assert cold.consumers["l"].position == 4


def test_a_lease_lapses_by_the_time_of_the_shard(shards: Shards) -> None:
    cold = shards.all[0].state.cold
    lease(shards, "l")
    lease(shards, "m", seconds=20)
    assert cold.leased(START_US + 10 * SECOND_US - 1) == {1, 2}
    assert cold.leased(START_US + 10 * SECOND_US) == {2}
    assert cold.leased(START_US + 20 * SECOND_US) == set()
    shards.wait(10)
    assert lapsed(lease(shards, "l", renews=True))
    assert lease(shards, "m", renews=True) == Done()


def test_leases_and_consumers_do_not_hold_back_what_the_others_need(shards: Shards) -> None:
    cold = shards.all[0].state.cold
    lease(shards, "l")
    assert (cold.lowest_consumer(START_US), cold.leased(START_US)) == (ALL, {1})
    shards.all[0].submit([DropConsumer("l")], shards.now)
    register(shards, "r", 1)
    assert (cold.lowest_consumer(START_US), cold.leased(START_US)) == (1, set())


def test_there_are_many_leases_but_not_any_number() -> None:
    assert LEASES_MAX == 1000


@pytest.mark.usefixtures("few")
def test_lapsed_leases_make_room_and_no_consumer_does(shards: Shards) -> None:
    known = shards.all[0].state.cold.consumers
    register(shards, "q")
    register(shards, "r")
    lease(shards, "l")
    lease(shards, "m")
    refusal = lease(shards, "n")
    assert isinstance(refusal, Refusal)
    assert refusal.detail == "2 leases are in force, the maximum; remove one that is no longer used."
    assert lease(shards, "m") == Done()
    shards.wait(10)
    assert lease(shards, "n") == Done()
    assert list(known) == ["q", "r", "n"]
    assert isinstance(register(shards, "n"), Refusal)
    assert list(known) == ["q", "r", "n"]
