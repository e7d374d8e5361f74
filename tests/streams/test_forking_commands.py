"""The commands of the fork saga, one by one; `test_forking` has the saga."""

from typing import Any

import pytest

from headwater.protocol.lifetimes import FOREVER
from headwater.protocol.limits import PIN_DEADLINE_US, SECOND_US
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands.forks import Ancestry, Confirm, CreateFork, Origin, Paid, Pin, Settle, Unpin
from headwater.streams.commands.streams import Create, Delete
from headwater.streams.queries import ForkTarget
from headwater.streams.replies import Absent, Done, Pinned, Reply, Settled
from headwater.streams.state import Hold, OpenPin

from .shards import START_US, Shards

SOURCE, FORK = "b/source", "b/copy"
DEADLINE = START_US + PIN_DEADLINE_US


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def shards(request: pytest.FixtureRequest) -> Shards:
    """A source of text at position 1 of its shard; with three shards the fork is in another one."""
    shards = Shards(request.param)
    shards.ask(Create(SOURCE, "text/plain", payload=b"abc"))
    return shards


def code_of(reply: Reply) -> Code | None:
    return reply.code if isinstance(reply, Refusal) else None


def pins_of(shards: Shards, name: str) -> dict[str, Hold]:
    return shards.stream(name).pins or {}


def pin(to: int | None = None, record_to: int | None = None, incarnation: int | None = None) -> Pin:
    return Pin(SOURCE, "pin", FORK, DEADLINE, incarnation, to, record_to)


def creation(deadline: int = DEADLINE) -> CreateFork:
    return CreateFork(
        FORK,
        "text/plain",
        FOREVER,
        False,
        b"",
        None,
        Origin(SOURCE, 1, 0, 3, 0, 1, "pin", 1),
        Ancestry(SOURCE, None, 0, None, None),
        deadline,
    )


def test_a_pin_without_a_point_holds_up_to_the_tail(shards: Shards) -> None:
    assert shards.ask(pin()) == Pinned(1, "text/plain", FOREVER, 0, 3, 0, 1, depth=1)
    assert pins_of(shards, SOURCE) == {"pin": Hold(0, 3, None)}
    assert shards.owner(SOURCE).state.unconfirmed == {"pin": OpenPin(SOURCE, 1, FORK, DEADLINE)}


def test_a_pin_with_a_point_holds_up_to_it(shards: Shards) -> None:
    assert shards.ask(pin(to=2, record_to=1, incarnation=1)) == Pinned(1, "text/plain", FOREVER, 0, 2, 0, 1, depth=1)
    assert pins_of(shards, SOURCE) == {"pin": Hold(0, 2, None)}


def test_a_pin_on_another_life_holds_nothing(shards: Shards) -> None:
    assert code_of(shards.ask(pin(to=2, record_to=1, incarnation=9))) is Code.STREAM_NOT_FOUND
    assert not pins_of(shards, SOURCE)


def test_an_unpin_may_come_twice_late_or_for_another_life(shards: Shards) -> None:
    shards.ask(pin())
    for wrong in (Unpin(SOURCE, 9, "pin"), Unpin(SOURCE, 1, "other"), Unpin("b/nothing", 1, "pin")):
        assert shards.ask(wrong) == Done()
        assert pins_of(shards, SOURCE) == {"pin": Hold(0, 3, None)}
    for _ in range(2):
        assert shards.ask(Unpin(SOURCE, 1, "pin")) == Done()
        assert not pins_of(shards, SOURCE)


class Looked(dict[str, Hold]):
    """Pins that count how many of them are looked at."""

    looked = 0

    def values(self) -> Any:
        for hold in super().values():
            self.looked += 1
            yield hold


def test_an_unpin_looks_at_few_of_the_other_pins(shards: Shards) -> None:
    pins = shards.stream(SOURCE).pins = Looked({f"pin-{number}": Hold(0, 3, None) for number in range(1_000)})
    shards.ask(Unpin(SOURCE, 1, "pin-500"))
    assert len(pins) == 999
    assert pins.looked < 10


def test_the_earliest_pin_holds_the_most_even_if_a_later_one_is_repeated(shards: Shards) -> None:
    stream = shards.stream(SOURCE)
    shards.ask(pin())
    shards.ask(Pin(SOURCE, "other", FORK, DEADLINE, None, None, None))
    stream.start = 2
    shards.ask(pin())
    assert list(pins_of(shards, SOURCE).items()) == [("other", Hold(0, 3, None)), ("pin", Hold(2, 3, None))]
    assert stream.floor == 0
    shards.ask(Unpin(SOURCE, 1, "other"))
    assert stream.floor == 2


def test_a_confirmation_may_come_twice_or_too_late(shards: Shards) -> None:
    shards.ask(pin())
    for _ in range(2):
        assert shards.ask(Confirm(SOURCE, 1, "pin")) == Done()
        assert not shards.owner(SOURCE).state.unconfirmed
        assert pins_of(shards, SOURCE) == {"pin": Hold(0, 3, None)}


@pytest.mark.parametrize(("late_us", "code"), [(0, None), (1, Code.OVERLOADED)])
def test_a_fork_is_made_until_its_deadline_and_not_after(late_us: int, code: Code | None, shards: Shards) -> None:
    shards.now = DEADLINE + late_us
    assert code_of(shards.ask(creation())) is code


@pytest.mark.parametrize("late_us", [-SECOND_US, 0])
def test_a_pin_is_not_settled_before_its_deadline_has_passed(late_us: int, shards: Shards) -> None:
    shards.now = DEADLINE + late_us
    assert code_of(shards.ask(Settle(FORK, "pin", DEADLINE))) is Code.OVERLOADED


@pytest.mark.parametrize(("pin_id", "held"), [("pin", True), ("other", False), ("unknown", False)])
def test_a_fork_holds_its_pin_and_no_other(pin_id: str, held: bool, shards: Shards) -> None:
    shards.ask(creation())
    shards.now = DEADLINE + 1
    assert shards.ask(Settle(FORK, pin_id, DEADLINE)) == Settled(held)


def test_no_fork_holds_the_pin_of_a_fork_that_was_never_created(shards: Shards) -> None:
    shards.now = DEADLINE + 1
    assert shards.ask(Settle(FORK, "pin", DEADLINE)) == Settled(False)
    shards.ask(Create(FORK, "text/plain"))
    assert shards.ask(Settle(FORK, "pin", DEADLINE)) == Settled(False)


def test_a_pin_counts_as_held_until_its_release_is_paid(shards: Shards) -> None:
    shards.ask(creation())
    shards.ask(Delete(FORK))
    shards.now = DEADLINE + 1
    assert shards.ask(Settle(FORK, "pin", DEADLINE)) == Settled(True)
    for _ in range(2):
        assert shards.ask(Paid("pin"), shards.owner(FORK)) == Done()
        assert not shards.owner(FORK).state.owed
        assert shards.ask(Settle(FORK, "pin", DEADLINE)) == Settled(False)


def test_a_free_name_is_a_target(shards: Shards) -> None:
    assert shards.query(ForkTarget(FORK, False, Ancestry(SOURCE, None, 0, None, None))) == Absent()
