"""Debts: what an interrupted fork or drop left behind is found without a look at everything else."""

import asyncio

from headwater.node.chores.debts import Debts
from headwater.node.committer import Done
from headwater.protocol.limits import SECOND_US
from headwater.streams import images
from headwater.streams.apply import apply
from headwater.streams.batches import Batch
from headwater.streams.commands import Command
from headwater.streams.commands.buckets import DropBucket, OpenBucket, SealBucket, UnsealBucket
from headwater.streams.state import State

START_US = 1_700_000_000 * SECOND_US
LATER_US = START_US + 60 * SECOND_US


class Untouchable(dict[str, object]):
    """Buckets that cannot all be visited."""

    def items(self) -> object:  # type: ignore[override]
        raise AssertionError("every bucket is visited")

    __iter__ = keys = values = items  # type: ignore[assignment]


def sealed_state() -> State:
    """A state of four buckets, one of which an interrupted drop has sealed."""
    state = State("log")
    commands: list[Command] = [
        *map(OpenBucket, ("kept", "dropped", "unsealed", "sealed")),
        *(SealBucket(bucket, "seal", START_US, decides=True) for bucket in ("dropped", "unsealed", "sealed")),
        DropBucket("dropped", "seal"),
        UnsealBucket("unsealed", "seal"),
    ]
    apply(state, Batch(1, START_US, commands))
    return state


def settled(state: State) -> list[tuple[str, str, int]]:
    """The interrupted drops that one check finds."""
    found: list[tuple[str, str, int]] = []

    def submit(command: Command, done: Done) -> None:
        raise AssertionError(f"nobody asked for {command}")

    async def check() -> None:
        debts = Debts(state, lambda: LATER_US, submit)
        debts.start(submit, lambda bucket, seal, deadline: found.append((bucket, seal, deadline)))
        debts.stop()

    asyncio.run(check())
    return found


def test_a_check_visits_the_buckets_that_have_a_seal_and_no_others() -> None:
    state = sealed_state()
    state.buckets = Untouchable(state.buckets)  # type: ignore[assignment]
    assert settled(state) == [("sealed", "seal", START_US)]


def test_a_seal_is_found_after_a_restart() -> None:
    assert settled(images.restore(images.image_of(sealed_state()))) == [("sealed", "seal", START_US)]
