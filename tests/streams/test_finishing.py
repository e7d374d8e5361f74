"""A producer that has finished writes nothing more, and streams forget it."""

import pytest

from headwater.protocol.limits import PRODUCERS_FINISHED_MAX, PRODUCERS_PER_STREAM_MAX
from headwater.protocol.producers import Producer
from headwater.protocol.refusals import Code, Refusal
from headwater.streams import appending, finishing
from headwater.streams.commands.streams import Append, Create, FinishProducer
from headwater.streams.images import image_of, restore
from headwater.streams.replies import Appended, Done, Duplicate, Reply

from .shards import Shards

NAME = "b/s"


@pytest.fixture(autouse=True)
def stream(shards: Shards) -> None:
    shards.ask(Create(NAME, "text/plain"))


def write(shards: Shards, producer: str, epoch: int = 0, seq: int = 0) -> Reply:
    return shards.ask(Append(NAME, b"x", content_type="text/plain", producer=Producer(producer, epoch, seq)))


def finish(shards: Shards, *producers: str) -> list[Reply]:
    return shards.all[0].submit([FinishProducer(producer) for producer in producers], shards.now)


def known(shards: Shards) -> list[str]:
    return list(shards.stream(NAME).producers or ())


def test_nothing_new_is_accepted_of_a_finished_producer_and_repeats_are_still_known(shards: Shards) -> None:
    write(shards, "p")
    assert finish(shards, "p", "p") == [Done(), Done()]
    assert isinstance(write(shards, "p"), Duplicate)
    for epoch, seq in ((0, 1), (1, 0)):
        refusal = write(shards, "p", epoch, seq)
        assert isinstance(refusal, Refusal)
        assert (refusal.code, refusal.producer_epoch) == (Code.PRODUCER_EPOCH_STALE, epoch)
        assert refusal.detail == "Producer 'p' has finished and is fenced off; write under another id."
    # A late attempt of its write finds no trace of the first one, and is refused all the same.
    write(shards, "q")
    assert known(shards) == ["q"]
    assert isinstance(write(shards, "p"), Refusal)
    assert shards.stream(NAME).tail == 2


def test_others_go_on_as_quickly_as_before_when_one_has_finished(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(*_: object) -> Reply:
        raise AssertionError("an append that is certainly accepted is not judged")

    write(shards, "q")
    finish(shards, "p")
    monkeypatch.setattr(appending, "judge", judge)
    assert write(shards, "q", seq=1) == Appended(1, 2, False, producer_epoch=0, producer_seq=1)


def test_a_finished_producer_creates_no_stream_and_no_fork(shards: Shards) -> None:
    finish(shards, "p")
    producer = Producer("p", 3, 0)
    for reply in (
        shards.ask(Create("b/new", "text/plain", payload=b"x", producer=producer)),
        shards.finish(shards.fork("b/new", NAME, producer=producer)),
    ):
        assert isinstance(reply, Refusal)
        assert (reply.code, reply.producer_epoch) == (Code.PRODUCER_EPOCH_STALE, 3)
    assert "b/new" not in shards.all[0].state.streams
    assert shards.stream(NAME).pins is None


def test_any_number_of_producers_may_write_one_after_the_other(shards: Shards) -> None:
    for number in range(PRODUCERS_PER_STREAM_MAX + 1):
        assert isinstance(write(shards, f"p{number}"), Appended)
        finish(shards, f"p{number}")
        assert len(known(shards)) == 1


def test_finished_producers_are_forgotten_around_those_that_go_on(shards: Shards) -> None:
    for number in range(100):
        write(shards, f"p{number}")
        write(shards, "job", seq=number)
        finish(shards, f"p{number}")
        assert len(known(shards)) <= 3
    assert known(shards)[-1] == "job"


def test_finished_producers_are_forgotten_after_one_that_rests(shards: Shards) -> None:
    write(shards, "job")
    for number in range(100):
        write(shards, f"p{number}")
        finish(shards, f"p{number}")
        assert known(shards) == ["job", f"p{number}"]


def test_finished_producers_between_others_are_forgotten_now_and_then(shards: Shards) -> None:
    for number in range(finishing.SWEEP_PRODUCERS - 1):
        write(shards, f"p{number}")
    finish(shards, *(f"p{number}" for number in range(1, finishing.SWEEP_PRODUCERS - 2)))
    last = f"p{finishing.SWEEP_PRODUCERS - 2}"
    write(shards, "q")
    assert len(known(shards)) == finishing.SWEEP_PRODUCERS
    write(shards, "r")
    assert known(shards) == ["p0", last, "q", "r"]


def test_a_finished_producer_makes_room_in_a_full_stream(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "PRODUCERS_PER_STREAM_MAX", 3)
    for producer in "pqr":
        write(shards, producer)
    refusal = write(shards, "s")
    assert isinstance(refusal, Refusal) and refusal.code is Code.PRODUCERS_TOO_MANY
    finish(shards, "q")
    assert isinstance(write(shards, "s"), Appended)
    assert known(shards) == ["p", "r", "s"]


def test_the_latest_finished_producers_are_known(shards: Shards) -> None:
    finish(shards, *(f"p{number}" for number in range(PRODUCERS_FINISHED_MAX)))
    finish(shards, "p0", "q")
    state = shards.all[0].state
    assert len(state.finished) == PRODUCERS_FINISHED_MAX
    assert "p1" not in state.finished
    assert list(state.finished)[-2:] == ["p0", "q"]


def test_an_image_has_the_finished_producers_in_order(shards: Shards) -> None:
    finish(shards, "p", "q", "p")
    assert list(restore(image_of(shards.all[0].state)).finished) == ["q", "p"]
