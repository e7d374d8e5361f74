"""The same log gives the same bytes: applied twice, applied from any image, and walked while it is being applied."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.protocol.lifetimes import FOREVER, Lifetime
from headwater.protocol.message_ends import pack
from headwater.protocol.producers import Producer
from headwater.streams import appending, images
from headwater.streams.apply import apply
from headwater.streams.batches import decode
from headwater.streams.commands import Command
from headwater.streams.commands.consumers import DropConsumer, RegisterConsumer, RegisterConsumerFor
from headwater.streams.commands.lake import ForgetSegments, PublishSegment, SwapSegments
from headwater.streams.commands.streams import Append, Create, Delete, FinishProducer, SetAttrs, Touch
from headwater.streams.images import Walk, image_of, restore
from headwater.streams.state import State

from ..streams.lakes import LATE, groups_of, rewrite
from ..streams.shards import Shards, Task, follow, replay

ALL_NAMES = ["b/a", "b/b", "b/c", "b/d", "b/e"]
NAMES = st.sampled_from(ALL_NAMES)
KINDS = ["append"] * 4 + ["fork"] * 3 + ["publish"] * 2
KINDS += ["create", "replace", "delete", "touch", "wait", "chore", "attrs", "open", "drop"]
TIERING = ["flush", "collect", "late", "rewrite", "compact", "retire", "forget", "consumer", "finish"]
KINDS += TIERING
EVENTS = st.tuples(st.sampled_from(KINDS), NAMES, NAMES, st.integers(0, 12))


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """The records of one shard with a few streams and all kinds of events."""
    shards = Shards()
    shards.all[0].submit([Create(name, "text/plain") for name in ALL_NAMES], shards.now)
    late: list[Command] = []
    for kind, name, other, number in draw(st.lists(EVENTS, min_size=10, max_size=60)):
        if kind in TIERING:
            perform_chore(shards, kind, name, number, late)
        else:
            perform(shards, kind, name, other, number)
    return shards.all[0].log


def perform(shards: Shards, kind: str, name: str, other: str, number: int) -> None:
    fork = f"{name}-{number % 3}"
    if kind != "fork" and number % 2 and fork in shards.all[0].state.streams:
        name = fork
    lifetime = Lifetime(ttl_seconds=10 * number) if number % 4 == 1 else FOREVER
    commands: list[Command] = []
    if kind == "append":
        commands = [
            Append(name, b"%03d" % seq, pack((1, 3)) if seq % 2 else None, "text/plain", False, None, producer)
            for seq in range(number + 1)
            for producer in (None, Producer(other, number % 3, seq))
        ]
    elif kind == "create":
        commands = [Create(name, "text/plain", lifetime, number == 12, b"first")]
    elif kind == "replace":
        commands = [Delete(name), Create(name, "text/plain", lifetime)]
    elif kind == "delete":
        commands = [Delete(name)]
    elif kind == "touch" and name in shards.all[0].state.streams:
        commands = [Touch(name, shards.stream(name).incarnation, shards.now)]
    elif kind == "publish" and name in shards.all[0].state.streams:
        stream = shards.stream(name)
        boundaries = [stream.start, *(hot.end for hot in stream.hot or () if hot.end > stream.start), stream.tail]
        shards.publish(name, boundaries[number % len(boundaries)], f"folded {number}", trims=number % 3 > 0)
    elif kind == "attrs":
        commands = [SetAttrs(name, b'{"title":"%d"}' % number)]
    elif kind == "open":
        advance(shards, shards.open(other), steps=number)
    elif kind == "drop":
        advance(shards, shards.drop("b" if number % 2 else other), steps=number)
    elif kind == "fork":
        advance(shards, shards.fork(fork, other, content_type="text/html" if number > 9 else None), steps=number)
    elif kind == "wait":
        shards.wait(number**2)
    elif kind == "chore":
        for chore in shards.chores()[: number // 2 + 1]:
            advance(shards, chore, steps=number)
    if commands:
        shards.all[0].submit(commands, shards.now)


def perform_chore(shards: Shards, kind: str, name: str, number: int, late: list[Command]) -> None:
    """Act as the lake's chores; `late` are commands that were made earlier and are not submitted yet."""
    shard, now = shards.all[0], shards.now
    state, groups = shard.state, groups_of(shard.state)
    commands: list[Command] = []
    if kind in ("flush", "collect"):
        names = [each for each in state.warm if number % 2 or each.startswith(name)]
        publication = shard.collect(names, number % 5 or None)
        commands = [PublishSegment(publication, now + 10**8, 0)] if publication.rows else []
    elif kind in ("rewrite", "compact") and groups:
        numbers = [each for group in groups[number % len(groups) :][: number % 3 + 1] for each in group]
        commands = [rewrite(shard.lake, state, numbers, cuts=number % 2 + 1)]
    elif kind == "retire":
        dead = tuple(each for each, held in state.cold.segments.items() if not held.live_rows)
        commands = [SwapSegments(dead, (), LATE, state.position)]
    elif kind == "forget":
        commands = [ForgetSegments(tuple(list(state.cold.retired)[:number]))]
    elif kind == "consumer":
        position = max(state.position - number, 0)
        said = RegisterConsumerFor(name, position, number * 10**6) if number % 2 else RegisterConsumer(name, position)
        commands = [DropConsumer(name) if number == 12 else said]
    elif kind == "finish":
        commands = [FinishProducer(name)] if number > 10 else []
    elif kind == "late":
        commands, late[:] = late[: number + 1], late[number + 1 :]
    if kind in ("collect", "rewrite"):
        late += commands
    elif commands:
        shard.submit(commands, now)


def advance(shards: Shards, task: Task, steps: int) -> None:
    """Take some steps of a task, which may then be dropped."""
    for _ in range(steps):
        if task.pending is not None:
            task.step(shards)


@given(log=logs())
def test_a_log_applied_twice_gives_the_same_bytes(log: list[bytes]) -> None:
    assert image_of(replay(log)) == image_of(replay(log))


@given(log=logs())
def test_an_append_that_is_certainly_accepted_is_applied_as_any_other(log: list[bytes]) -> None:
    short, judged = State("journal"), State("journal")
    for record in log:
        replies = apply(short, decode(record, short.position + 1))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(appending, "_is_next", lambda *_: False)
            assert apply(judged, decode(record, judged.position + 1)) == replies
    assert image_of(short) == image_of(judged)
    assert (short.hot_bytes, short.bytes, short.warm) == (judged.hot_bytes, judged.bytes, judged.warm)


@given(log=logs(), cuts=st.lists(st.integers(0, 99), min_size=1, max_size=4))
def test_a_log_may_be_cut_by_images_anywhere(log: list[bytes], cuts: list[int]) -> None:
    state, done = replay([]), 0
    for cut in sorted(cut % (len(log) + 1) for cut in cuts):
        follow(state, log[done:cut])
        state, done = restore(image_of(state)), cut
    follow(state, log[done:])
    assert image_of(state) == image_of(replay(log))
    whole = replay(log)
    assert state.hot_bytes == whole.hot_bytes
    assert (state.bytes, state.lives) == (whole.bytes, whole.lives)
    assert (state.warm, state.forks, state.cold.dead_in) == (whole.warm, whole.forks, whole.cold.dead_in)


@given(
    log=logs(),
    begin=st.integers(0, 99),
    pace=st.lists(st.integers(0, 5), min_size=1, max_size=20),
    rows=st.integers(1, 4),
    size=st.sampled_from([1, 40, 400, 100_000]),
    names=st.integers(1, 6),
)
def test_a_walk_sees_the_state_at_which_it_began_whatever_is_applied_between_its_pieces(
    *, log: list[bytes], begin: int, pace: list[int], rows: int, size: int, names: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "PIECE_ROWS", rows)
        patch.setattr(images, "PIECE_BYTES", size)
        patch.setattr(images, "NAMES_PER_STEP", names)
        begin %= len(log) + 1
        state, rest = replay(log[:begin]), iter(log[begin:])
        walk = Walk(state)
        taken = []
        pieces = walk.pieces()
        for count in range(10_000):
            follow(state, islice(rest, pace[count % len(pace)]))
            piece = next(pieces, None)
            if piece is None:
                break
            taken.append(piece)
        walk.end()
        assert taken == image_of(replay(log[:begin]))
        follow(state, rest)
        assert image_of(state) == image_of(replay(log))
