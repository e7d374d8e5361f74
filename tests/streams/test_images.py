from typing import Any

import msgspec
import pytest
from crc32c import crc32c

from headwater.protocol.lifetimes import FOREVER, Lifetime
from headwater.protocol.message_ends import pack
from headwater.protocol.producers import Producer
from headwater.streams import images
from headwater.streams.apply import apply
from headwater.streams.batches import decode
from headwater.streams.commands import Command
from headwater.streams.commands.buckets import OpenBucket, SealBucket, UnsealBucket
from headwater.streams.commands.forks import Paid, Pin, Settle, Unpin
from headwater.streams.commands.snapshots import Discarded, PublishSnapshot, Snapshot
from headwater.streams.commands.streams import Append, Create, Delete, SetAttrs
from headwater.streams.images import Walk, image_of, restore
from headwater.streams.state import State, Stream

from .shards import START_US, Shards

NONE: list[object] = [None, None, []]
"""Neither a snapshot nor attributes."""
NOTHING: tuple[Any, ...] = ({}, {}, {}, {}, {}, 0, 0, 0, 1, {}, {})
"""No buckets, no debts, no open pins, no blobs."""


@pytest.fixture
def shards() -> Shards:
    """One of everything that a state may hold."""
    shards = Shards()
    shards.ask(Create("b/plain", "text/plain", payload=b"abc"))
    shards.ask(Append("b/plain", b"de", content_type="text/plain", seq="7", producer=Producer("p", 1, 0)))
    shards.ask(Append("b/plain", b"f", content_type="text/plain", close=True))
    shards.ask(Create("b/json", "application/json", Lifetime(ttl_seconds=60), payload=b"12", ends=pack((1, 2))))
    shards.ask(Create("b/until", "text/plain", Lifetime(None, 2 * START_US, "later")))
    shards.finish(shards.fork("b/fork", "b/plain", 0, sub_offset=2, body=b"xyz"))
    shards.finish(shards.fork("b/grandchild", "b/fork"))
    shards.finish(shards.fork("b/gone", "b/json"))
    shards.ask(Delete("b/fork"))
    shards.ask(Delete("b/gone"))
    shards.ask(Pin("b/until", "open pin", "b/never", START_US))
    shards.ask(Create("b/read", "application/json", payload=b"123", ends=pack((1, 2, 3)), attrs=b'{"title":"t"}'))
    for offset in (1, 2):
        snapshot = Snapshot(offset, offset, f"blob-{offset}", "text/plain", 9, "digest")
        shards.ask(PublishSnapshot("b/read", shards.stream("b/read").incarnation, snapshot, trims=True))
    shards.all[0].submit([OpenBucket("opened"), SealBucket("b", "seal", START_US, decides=False)], shards.now)
    return shards


def facts(state: State) -> dict[str, object]:
    """Everything in a state, in a form that compares by value."""
    return {
        "log_id": state.log_id,
        "position": state.position,
        "now": state.now,
        "streams": {name: msgspec.structs.asdict(stream) for name, stream in state.streams.items()},
        "names": list(state.names.after("", 1_000_000)),
        "owed": state.owed,
        "unconfirmed": state.unconfirmed,
        "buckets": state.buckets,
        "discarded": state.discarded,
        "lives": state.lives,
        "ghosts": state.ghosts,
        "hot_bytes": state.hot_bytes,
    }


def small_pieces(monkeypatch: pytest.MonkeyPatch, rows: int = 2, size: int = 1, names: int = 2) -> None:
    monkeypatch.setattr(images, "PIECE_ROWS", rows)
    monkeypatch.setattr(images, "PIECE_BYTES", size)
    monkeypatch.setattr(images, "NAMES_PER_STEP", names)


def test_the_fixture_has_one_of_everything(shards: Shards) -> None:
    state = shards.all[0].state
    assert state.owed
    assert state.unconfirmed
    assert state.discarded
    assert {bucket.seal for bucket in state.buckets.values()} == {None, "seal"}
    assert any(stream.deleted for stream in shards.streams)
    assert any(stream.snapshot and stream.attrs and stream.start and stream.record_start for stream in shards.streams)
    assert any(stream.origin and stream.ancestry for stream in shards.streams)
    assert any(stream.producers and stream.seq for stream in shards.streams)


def test_an_image_gives_back_the_whole_state(shards: Shards) -> None:
    state = shards.all[0].state
    assert facts(restore(image_of(state))) == facts(state)


def test_an_image_in_small_pieces_gives_back_the_whole_state(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pieces(monkeypatch)
    state = shards.all[0].state
    pieces = image_of(state)
    assert len(pieces) > len(state.streams)
    assert facts(restore(map(memoryview, pieces))) == facts(state)


def test_the_form_of_an_image_never_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image whose form must change gets a new version; images with the old one still exist."""
    small_pieces(monkeypatch, rows=1, size=1000)
    shards, at, text = Shards(), START_US, "text/plain"
    shards.ask(Create("b/a", "text/plain", Lifetime(ttl_seconds=60), closed=True, payload=b"12", ends=pack((1, 2))))
    shards.ask(Create("b/b", "text/plain"))
    producer = Producer("p", 1, 0)
    shards.ask(Append("b/b", b"x", content_type="text/plain", seq="7", producer=producer))
    shards.ask(Append("b/b", b"y", content_type="text/plain"))
    shards.finish(shards.fork("b/c", "b/b", 0))
    shards.finish(shards.fork("b/d", "b/b", 0))
    shards.ask(Delete("b/d"))
    shards.ask(Pin("b/a", "open pin", "b/never", at))
    shards.ask(SetAttrs("b/a", b"{}"))
    for offset, blob in enumerate(["old", "new"]):
        shards.ask(PublishSnapshot("b/a", 1, Snapshot(offset, offset, blob, text, 9, "digest"), trims=True))
    shards.all[0].submit([OpenBucket("b"), SealBucket("b", "seal", at, decides=True), OpenBucket("c")], at)
    buckets = {"b": [at, "seal", at], "c": [at, None, 0]}
    lake = [0, 0, 11, 1, {}, {}]
    position, forever = shards.all[0].state.position, [None, None, None]
    held, owed = {"open pin": ["b/a", 1, "b/never", at]}, {"pin-2": ["b/b", 2]}
    first, second = [0, b"12", pack((1, 2)), 0, 1, at, None], [0, b"x", None, 0, 3, at, ["p", 1, 0]]
    producers, pins = {"p": [1, 0, 1, 0, 1, at, 1, crc32c(b"x"), False]}, {"pin-1": [0, 0, None], "pin-2": [0, 0, None]}
    origin, ancestry = ["b/b", 2, 0, 0, 0, 0, "pin-1", 1, None], ["b/b", 0, 0, None, None]
    a: list[object] = ["b/a", 1, text, [60, None, None], at, at, at, 2, 2, 1, 1, True, False, *[None] * 4]
    a += [{"open pin": [0, 2, None]}, [first], [1, 1, "new", text, 9, "digest"], b"{}", []]
    b = [
        "b/b",
        2,
        text,
        forever,
        at,
        at,
        at,
        2,
        2,
        0,
        0,
        False,
        False,
        "7",
        producers,
        None,
        None,
        pins,
        [second],
        *NONE,
    ]
    c = ["b/c", 6, text, forever, at, at, at, 0, 0, 0, 0, False, False, None, None, origin, ancestry, None, None, *NONE]
    assert [msgspec.msgpack.decode(piece) for piece in image_of(shards.all[0].state)] == [
        [
            "header",
            7,
            "journal",
            position,
            at,
            buckets,
            owed,
            held,
            {"old": None},
            {},
            *lake,
            [{}, None, 1, 0, 0, "", 0],
        ],
        ["streams", [a, b]],
        ["appends", [[1, b"y", None, 1, 4, at, None]]],
        ["streams", [c]],
    ]


def test_a_stream_made_by_the_last_command_is_in_the_image() -> None:
    shards = Shards()
    shards.ask(Create("b/last", "text/plain"))
    assert list(restore(image_of(shards.all[0].state)).streams) == ["b/last"]


def test_an_image_of_nothing_is_its_header() -> None:
    state = State("journal")
    pieces = image_of(state)
    assert len(pieces) == 1
    assert facts(restore(pieces)) == facts(state)


def test_a_restored_state_continues_like_the_original(shards: Shards) -> None:
    state = shards.all[0].state
    twin = restore(image_of(state))
    more: list[Command] = [
        Append("b/json", b"3", content_type="application/json"),
        Unpin("b/plain", 1, "pin-1"),
        Delete("b/grandchild"),
        UnsealBucket("b", "seal"),
        Create("b/grandchild", "text/html"),
        Discarded("blob-1"),
        Settle("b/gone", "pin-3", START_US - 1),
        Paid("pin-3"),
    ]
    replies = shards.all[0].submit(more, shards.now)
    assert apply(twin, decode(shards.all[0].log[-1], twin.position + 1)) == replies
    assert image_of(twin) == image_of(state)


def test_a_restored_state_shares_what_many_streams_share(shards: Shards) -> None:
    twin = restore(image_of(shards.all[0].state))
    assert twin.streams["b/plain"].content_type is twin.streams["b/until"].content_type
    assert twin.streams["b/plain"].lifetime is FOREVER


def test_pieces_are_cut_by_size_at_the_boundaries_of_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    small_pieces(monkeypatch, rows=100, size=300)
    shards = Shards()
    for number in range(20):
        shards.ask(Create(f"b/{number:02}", "text/plain", payload=b"x" * 50))
    _, *pieces = image_of(shards.all[0].state)
    assert 1 < len(pieces) < 20
    assert max(map(len, pieces)) < 300 + 50


@pytest.mark.parametrize(("rows", "size", "pieces"), [(3, 10_000, 4), (100, 40, 3), (100, 35, 3), (100, 10_000, 1)])
def test_a_long_stream_continues_in_further_pieces(
    rows: int, size: int, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch, rows=rows, size=size)
    shards = Shards()
    shards.ask(Create("b/long", "text/plain"))
    for number in range(10):
        shards.ask(Append("b/long", b"%010d" % number, content_type="text/plain"))
    _, *parts = image_of(shards.all[0].state)
    assert len(parts) == pieces
    assert facts(restore(image_of(shards.all[0].state))) == facts(shards.all[0].state)


# -- While commands are applied ---------------------------------------------------------------------------------------


def test_one_image_is_taken_at_a_time(shards: Shards) -> None:
    walk = Walk(shards.all[0].state)
    with pytest.raises(AssertionError, match="one image at a time"):
        Walk(shards.all[0].state)
    walk.end()
    Walk(shards.all[0].state).end()


def test_a_finished_walk_is_no_longer_notified(shards: Shards) -> None:
    walk = Walk(shards.all[0].state)
    walk.end()
    shards.ask(Delete("b/plain"))
    assert not walk._aside


def test_the_end_of_a_walk_leaves_others_who_watch_the_state_alone(shards: Shards) -> None:
    state = shards.all[0].state
    seen: list[str] = []

    class Watcher:
        def before_change(self, stream: Stream) -> None:
            seen.append(stream.name)

    state.observers.append(Watcher())
    walk = Walk(state)
    for _ in range(2):
        walk.end()
    shards.ask(Delete("b/plain"))
    assert seen == ["b/plain"]


CHANGES: dict[str, list[Command]] = {
    "append": [Append("b/4", b"more", content_type="text/plain", producer=Producer("p", 0, 1))],
    "delete": [Delete("b/4")],
    "delete and create": [Delete("b/4"), Create("b/4", "text/html", payload=b"new")],
    "delete, create and delete": [Delete("b/4"), Create("b/4", "text/html"), Delete("b/4")],
    "pin": [Pin("b/4", "another", "b/f", START_US)],
    "publish": [PublishSnapshot("b/4", 5, Snapshot(3, 1, "blob", "text/plain", 9, "digest"), trims=True)],
    "publish and append": [
        PublishSnapshot("b/4", 5, Snapshot(6, 2, "blob", "text/plain", 9, "digest"), trims=True),
        Append("b/4", b"more", content_type="text/plain"),
    ],
    "attributes": [SetAttrs("b/4", b"{}")],
    "a bucket": [OpenBucket("b"), SealBucket("b", "seal", START_US, decides=True), Discarded("blob")],
    "pin and delete": [Pin("b/4", "another", "b/f", START_US), Delete("b/4")],
    "create between": [Create("b/3½", "text/plain", payload=b"new"), Append("b/3½", b"er", content_type="text/plain")],
    "create at the end": [Create("b/9", "text/plain", payload=b"new")],
    "delete everything": [Delete(f"b/{number}") for number in range(7)],
}


@pytest.mark.parametrize("names", [1, 2, 3, 100])
@pytest.mark.parametrize("after", range(9))
@pytest.mark.parametrize("change", CHANGES)
def test_an_image_shows_the_state_as_it_was_when_the_walk_began(
    change: str, after: int, names: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch, rows=2, size=1, names=names)
    shards = Shards()
    for number in range(7):
        shards.ask(Create(f"b/{number}", "text/plain", payload=b"abc"))
    shards.ask(Append("b/4", b"def", content_type="text/plain", producer=Producer("p", 0, 0)))
    still = image_of(shards.all[0].state)
    walk = Walk(shards.all[0].state)
    pieces = walk.pieces()
    taken = [next(pieces) for _ in range(after)]
    shards.all[0].submit(CHANGES[change], shards.now)
    taken += pieces
    walk.end()
    assert taken == still


def test_a_stream_made_by_the_last_command_is_shown_as_it_was_though_it_changes_before_its_turn() -> None:
    shards = Shards()
    shards.ask(Create("b/last", "text/plain"))
    still = image_of(shards.all[0].state)
    walk = Walk(shards.all[0].state)
    shards.ask(Append("b/last", b"later", content_type="text/plain"))
    assert list(walk.pieces()) == still
    walk.end()


@pytest.mark.parametrize("gone", ["b/2", "b/3", "b/4"])
def test_a_stream_that_ends_before_its_turn_keeps_its_place_among_those_set_aside(
    gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch, rows=2, size=1, names=1)
    shards = Shards()
    for number in range(7):
        shards.ask(Create(f"b/{number}", "text/plain", payload=b"abc"))
    still = image_of(shards.all[0].state)
    walk = Walk(shards.all[0].state)
    for name in ("b/6", "b/5"):
        shards.ask(Append(name, b"later", content_type="text/plain"))
    shards.ask(Delete(gone))
    assert list(walk.pieces()) == still
    walk.end()


@pytest.mark.parametrize("version", [min(images.READABLE) - 1, images.VERSION + 1])
def test_an_image_of_another_version_is_not_read(version: int) -> None:
    header = msgspec.msgpack.encode(images.Header(version, "journal", 0, 0, *NOTHING))
    with pytest.raises(ValueError, match=f"version {images.VERSION}"):
        restore([header])


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [("streams", [])],
        [images.Header(images.VERSION, "journal", 0, 0, *NOTHING), ("appends", [])],
        [
            images.Header(images.VERSION, "journal", 0, 0, *NOTHING),
            images.Header(images.VERSION, "journal", 0, 0, *NOTHING),
        ],
    ],
)
def test_pieces_in_the_wrong_order_are_not_an_image(pieces: list[object]) -> None:
    with pytest.raises(ValueError, match="the image"):
        restore(map(msgspec.msgpack.encode, pieces))
