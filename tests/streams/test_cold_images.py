"""Images of a shard whose streams are in the lake."""

from typing import Any

import msgspec
import pytest

from headwater.protocol.limits import CONSUMER_IDLE_US
from headwater.protocol.message_ends import pack
from headwater.streams import images
from headwater.streams.apply import apply
from headwater.streams.batches import decode
from headwater.streams.cold import ALL
from headwater.streams.commands import Command
from headwater.streams.commands.consumers import DropConsumer, RegisterConsumer, RegisterConsumerFor
from headwater.streams.commands.lake import ForgetSegments, PublishSegment
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.images import Walk, image_of, restore
from headwater.streams.state import State

from .lakes import LATE, rewrite
from .shards import START_US, Shards

TEXT = "text/plain"


@pytest.fixture
def shards() -> Shards:
    """Five segments, two of them replaced; tombstones of a deleted stream and a trimmed one; two consumers, a fork."""
    shards = Shards()
    for name in ("b/a", "b/b", "b/c", "b/d"):
        shards.ask(Create(name, TEXT, payload=b"abc"))
    shards.flush()
    for name in ("b/a", "b/b", "b/c"):
        shards.ask(Append(name, b"def", content_type=TEXT))
    shards.flush()
    shards.finish(shards.fork("b/f", "b/a", 4, body=b"own"))
    shards.ask(Delete("b/b"))
    shards.publish("b/c", 3)
    shards.ask(Append("b/c", b"ghi", content_type=TEXT))
    shards.flush("b/f")
    shards.all[0].submit([RegisterConsumer("r", 3), RegisterConsumerFor("q", 0, 60_000_000)], shards.now)
    shards.compact(1, 2)
    shards.flush("b/c")
    shards.ask(Append("b/a", b"hot", content_type=TEXT))
    return shards


def lake_of(state: State) -> dict[str, Any]:
    """What a state knows about the lake, in a form that compares by value, and by order where that matters."""
    cold = state.cold
    return {
        "numbers": (cold.flushed, cold.dropped, cold.changed_at, cold.next_number),
        "segments": cold.segments,
        "tombstones": cold.tombstones,
        "dead_in": cold.dead_in,
        "retired": list(cold.retired.items()),
        "readers": list(cold.consumers.items()),
        "warm": state.warm,
        "forks": state.forks,
        "hot_bytes": state.hot_bytes,
        "extents": {name: stream.extents for name, stream in state.streams.items()},
    }


def test_the_fixture_has_one_of_everything(shards: Shards) -> None:
    state = shards.all[0].state
    lake = lake_of(state)
    assert all(lake.values())
    assert list(state.cold.segments) == [3, 4, 5]
    assert list(state.cold.consumers) == ["r", "q"]
    assert {tombstone.below for tombstone in state.cold.tombstones.values()} == {3, ALL}
    assert all(lake["numbers"][:1])


@pytest.mark.parametrize("rows", [1, 2, 3, 2000])
def test_a_state_comes_back_from_its_image_with_its_lake(
    rows: int, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "PIECE_ROWS", rows)
    state = shards.all[0].state
    twin = restore(map(memoryview, image_of(state)))
    assert lake_of(twin) == lake_of(state)
    assert image_of(twin) == image_of(state)


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [
        (1, ["header", "segments", "segments", "segments", "tombstones", "tombstones"]),
        (2, ["header", "segments", "segments", "tombstones"]),
        (3, ["header", "segments", "tombstones"]),
    ],
)
def test_segments_and_tombstones_come_in_as_many_pieces_as_it_takes(
    rows: int, kinds: list[str], shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "PIECE_ROWS", rows)
    pieces = [msgspec.msgpack.decode(piece) for piece in image_of(shards.all[0].state)]
    assert [piece[0] for piece in pieces if piece[0] not in ("streams", "appends")] == kinds
    assert [number for piece in pieces if piece[0] == "segments" for number, _ in piece[1]] == [3, 4, 5]


def test_the_form_of_the_lake_in_an_image_never_changes() -> None:
    """An image whose form must change gets a new version; images with the old one still exist."""
    shards, at = Shards(), START_US
    shards.ask(Create("b/a", TEXT, payload=b"12", ends=pack((1, 2))))
    shards.ask(Create("b/b", TEXT, payload=b"3"))
    shards.flush()
    shards.ask(Delete("b/b"))
    shards.compact(1)
    shards.ask(Append("b/a", b"4", content_type=TEXT))
    shards.all[0].submit([RegisterConsumer("r", 5)], at)
    first, second = (
        [f"segment-{number}", 1, 2, 0, 0, "b/a", name, rows, rows, rows, 0, 0, "", "", 0, 0, 0]
        for number, name, rows in ((1, "b/b", 3), (2, "b/a", 2))
    )
    header, segments, streams = (msgspec.msgpack.decode(piece) for piece in image_of(shards.all[0].state))
    assert header[10:16] == [2, 2, 5, 3, {"r": [5, at, CONSUMER_IDLE_US, False]}, {"segment-1": [first, 5]}]
    assert segments == ["segments", [[2, [second, 2]]]]
    assert streams[1][0][18:] == [[[2, b"4", None, 2, 6, at, None]], None, None, [[2, 0, 2, 0, 2, 0]]]
    shards.ask(Delete("b/a"))
    _, _, tombstones = (msgspec.msgpack.decode(piece) for piece in image_of(shards.all[0].state))
    assert tombstones == ["tombstones", [[1, ["b/a", ALL, [[2, 0, 2]]]]]]


def test_a_restored_state_continues_like_the_original(shards: Shards) -> None:
    shard = shards.all[0]
    twin = restore(image_of(shard.state))
    swap = rewrite(shard.lake, shard.state, [3, 4, 5])
    more: list[Command] = [
        PublishSegment(shard.collect(), LATE, shard.state.position),
        swap,
        swap,
        ForgetSegments(("segment-1",)),
        RegisterConsumer("r", 9),
        DropConsumer("q"),
        Delete("b/f"),
        Delete("b/a"),
    ]
    replies = shard.submit(more, shards.now)
    assert apply(twin, decode(shard.log[-1], twin.position + 1)) == replies
    assert image_of(twin) == image_of(shard.state)


CHANGES = ["publish", "swap", "delete", "trim", "forget", "readers"]


@pytest.mark.parametrize("after", range(9))
@pytest.mark.parametrize("change", CHANGES)
def test_an_image_shows_the_lake_as_it_was_when_the_walk_began(
    change: str, after: int, shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "PIECE_ROWS", 1)
    monkeypatch.setattr(images, "PIECE_BYTES", 1)
    monkeypatch.setattr(images, "NAMES_PER_STEP", 1)
    shard = shards.all[0]
    still = image_of(shard.state)
    walk = Walk(shard.state)
    pieces = walk.pieces()
    taken = [next(pieces) for _ in range(after)]
    if change == "publish":
        shards.flush()
    elif change == "swap":
        shards.compact(3, 4, 5)
    elif change == "delete":
        shards.ask(Delete("b/c"))
    elif change == "trim":
        shards.publish("b/c", 6)
    elif change == "forget":
        shard.submit([ForgetSegments(("segment-1", "segment-2"))], shards.now)
    else:
        shard.submit([DropConsumer("r"), RegisterConsumer("x", 1)], shards.now)
    taken += pieces
    walk.end()
    assert taken == still
