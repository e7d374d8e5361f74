"""Producers that have finished: they write nothing more, so streams need not remember them.

A writer that makes up an id for one task, such as a batch write of Spark, finishes it in the end. Which streams it
wrote to is not recorded. Instead a stream forgets its finished producers when another one comes, which leaves one or
two in it. Only the latest finished producers are known; what earlier ones have left counts as idle producers do.
"""

from headwater.protocol.limits import PRODUCERS_FINISHED_MAX
from headwater.protocol.producers import LastAccepted, Producer
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands.streams import FinishProducer
from headwater.streams.handling import handles
from headwater.streams.replies import Done, Reply
from headwater.streams.state import State

SWEEP_PRODUCERS = 16
"""Finished producers are at the ends of a stream's producers, which are sorted by use; those in between are looked for
whenever there are a multiple of this many, so that looking costs little per producer."""


@handles(FinishProducer)
def finish(state: State, command: FinishProducer) -> Reply:
    """Accept nothing more of a producer, in any epoch."""
    state.finished.pop(command.producer, None)
    state.finished[command.producer] = None
    if len(state.finished) > PRODUCERS_FINISHED_MAX:
        del state.finished[next(iter(state.finished))]
    return Done()


def refusal(producer: Producer, incarnation: int | None = None) -> Refusal:
    """The answer to anything new from a finished producer."""
    return Refusal(
        Code.PRODUCER_EPOCH_STALE,
        f"Producer {producer.id!r} has finished and is fenced off; write under another id.",
        incarnation=incarnation,
        producer_epoch=producer.epoch,
    )


def forget(known: dict[str, LastAccepted], finished: dict[str, None], *, full: bool) -> None:
    """Remove finished producers from those that a stream remembers, before it gets another one."""
    if full or not len(known) % SWEEP_PRODUCERS:
        for identity in [identity for identity in known if identity in finished]:
            del known[identity]
        return
    while known and (first := next(iter(known))) in finished:
        del known[first]
    while known and (last := next(reversed(known))) in finished:
        del known[last]
