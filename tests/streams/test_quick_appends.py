"""An append whose checks are skipped has the same reply, and leaves the same state, as with all checks."""

import random
from typing import Any

import pytest

from headwater.protocol import message_ends
from headwater.protocol.etags import Version
from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.producers import Producer
from headwater.streams import appending
from headwater.streams.apply import apply
from headwater.streams.batches import Batch
from headwater.streams.commands import Command
from headwater.streams.commands.streams import Append, Create, Delete, FinishProducer
from headwater.streams.state import State

NAMES = ("a/json", "a/text", "b/ttl", "b/none", "plain")
SEED = 7


def append(dice: random.Random, seqs: dict[tuple[str, str], int]) -> Append:
    name = dice.choice(NAMES)
    payload = dice.choice((b'{"n":1}', b"x" * dice.randrange(300), b"[1,2]", b""))
    ends = message_ends.pack((2, len(payload))) if len(payload) > 2 and dice.random() < 0.2 else None
    producer = None
    if dice.random() < 0.7:
        writer = dice.choice(("p", "q", "r"))
        seq = max(seqs.get((name, writer), 0) + dice.choice((0, 0, 0, 0, -1, 1)), 0)
        seqs[name, writer] = seq + 1
        producer = Producer(writer, dice.choice((0, 0, 0, 0, 1)), seq)
    rare: dict[str, Any] = {}
    if dice.random() < 0.2:
        rare = dice.choice(
            (
                *({"close": True}, {"seq": dice.choice("abc")}, {"incarnation": dice.randrange(9)}),
                *({"if_match": (Version(1, 0, False),)}, {"record_match": dice.randrange(3)}, {"asked_at": 5}),
            )
        )
    content_type = dice.choice((*("application/json",) * 5, "text/plain", "application/json; x=1", ""))
    return Append(name, payload, ends, content_type, producer=producer, **rare)


def command(dice: random.Random, seqs: dict[tuple[str, str], int]) -> Command:
    kind = dice.random()
    if kind < 0.9:
        return append(dice, seqs)
    if kind < 0.97:
        name = dice.choice(NAMES)
        lifetime = Lifetime(ttl_seconds=60) if name == "b/ttl" else Lifetime()
        return Create(name, "text/plain" if name == "a/text" else "application/json", lifetime)
    return Delete(dice.choice(NAMES)) if kind < 0.99 else FinishProducer(dice.choice(("p", "r")))


def facts(state: State) -> tuple[object, ...]:
    producers = [(name, list(one.producers or ())) for name, one in state.streams.items()]
    totals = state.position, state.now, state.hot_bytes, dict(state.bytes), list(state.warm), list(state.finished)
    return state.streams, producers, totals


class Watching:
    """An observer, as an image has one while it is written."""

    def before_change(self, stream: object) -> None:
        pass


@pytest.mark.parametrize("number", range(40))
def test_an_append_that_skips_checks_does_the_same(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(f"{SEED}-{number}")
    quick, checked = State("log"), State("log")
    seqs: dict[tuple[str, str], int] = {}
    first: list[Command] = [Create(name, "application/json") for name in NAMES]
    for step in range(120):
        commands = first if step == 0 else [command(dice, seqs) for _ in range(dice.randrange(1, 5))]
        batch = Batch(quick.position + 1, 7_000_000 * step, commands)
        if dice.random() < 0.1:
            for state in (quick, checked):
                state.observers = [] if state.observers else [Watching()]
        replies = apply(quick, batch)
        with monkeypatch.context() as patch:
            patch.setattr(appending, "_is_next", lambda state, stream, command: False)
            assert replies == apply(checked, batch), commands
        assert facts(quick) == facts(checked), commands
