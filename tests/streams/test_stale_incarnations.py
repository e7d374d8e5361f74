"""A command for an earlier life of a stream, or for one that never existed, changes nothing."""

import pytest

from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands import Command
from headwater.streams.commands.forks import Pin, Unpin
from headwater.streams.commands.snapshots import PublishSnapshot, Retain, Snapshot
from headwater.streams.commands.streams import Append, Create, Delete, Expire, SetAttrs, Touch
from headwater.streams.images import image_of
from headwater.streams.replies import Done, Pinned

from .shards import START_US, Shards

NAME, TEXT = "b/s", "text/plain"
EARLIER, PRESENT, LATER = 1, 3, 9


@pytest.fixture
def shards() -> Shards:
    """A stream in its second life, which has a snapshot at 3 and expires in ten seconds."""
    shards = Shards()
    for _ in range(2):
        shards.ask(Create(NAME, TEXT, Lifetime(ttl_seconds=10), payload=b"abc"))
        if shards.stream(NAME).incarnation == EARLIER:
            shards.ask(Delete(NAME))
    shards.ask(Append(NAME, b"def", content_type=TEXT))
    shards.ask(PublishSnapshot(NAME, PRESENT, Snapshot(3, 1, "blob", TEXT, 1, "digest"), trims=False))
    assert shards.stream(NAME).incarnation == PRESENT
    return shards


def streams_of(shards: Shards) -> bytes:
    """The streams in the image, without facts about the log."""
    return b"".join(image_of(shards.all[0].state)[1:])


@pytest.mark.parametrize("life", [EARLIER, LATER])
@pytest.mark.parametrize("kind", ["create", "append", "close", "attrs", "snapshot", "retain", "delete"])
def test_a_write_for_another_life_is_refused(kind: str, life: int, shards: Shards) -> None:
    commands: dict[str, Command] = {
        "create": Create(NAME, TEXT, Lifetime(ttl_seconds=10), incarnation=life),
        "append": Append(NAME, b"x", content_type=TEXT, incarnation=life),
        "close": Append(NAME, b"", close=True, incarnation=life),
        "attrs": SetAttrs(NAME, b"{}", life),
        "snapshot": PublishSnapshot(NAME, life, Snapshot(6, 2, "other", TEXT, 1, "digest"), trims=True),
        "retain": Retain(NAME, life, 3, 1),
        "delete": Delete(NAME, life),
    }
    before = streams_of(shards)
    refusal = shards.ask(commands[kind])
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.incarnation) == (Code.INCARNATION_CHANGED, PRESENT)
    assert streams_of(shards) == before


@pytest.mark.parametrize("life", [EARLIER, LATER])
@pytest.mark.parametrize("kind", [Touch, Expire])
def test_a_command_of_our_own_for_another_life_does_nothing(
    kind: type[Touch] | type[Expire], life: int, shards: Shards
) -> None:
    shards.now += 5_000_000 if kind is Touch else 60_000_000
    before = streams_of(shards)
    command = Touch(NAME, life, shards.now) if kind is Touch else Expire(NAME, life)
    assert shards.all[0].submit([command], shards.now) == [Done()]
    assert streams_of(shards) == before


@pytest.mark.parametrize("life", [EARLIER, LATER])
def test_a_pin_on_another_life_is_not_released(life: int, shards: Shards) -> None:
    shards.ask(Pin(NAME, "pin", "b/fork", START_US * 2))
    assert shards.ask(Unpin(NAME, life, "pin")) == Done()
    assert "pin" in (shards.stream(NAME).pins or {})


def test_a_fork_right_at_a_snapshot_begins_with_it(shards: Shards) -> None:
    pinned = shards.ask(Pin(NAME, "pin", "b/fork", START_US * 2, PRESENT, 3, 1))
    assert isinstance(pinned, Pinned)
    assert pinned.snapshot is not None
    assert pinned.snapshot.offset == 3
