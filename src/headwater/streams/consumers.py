"""Consumers of the lake: what they have not read is kept for them, until they have been silent for too long.

A consumer that reads position after position says how far it has come, and keeps the rows above, dead or alive. A
reader of the whole lake takes a *lease* instead: it keeps the objects that are there when it begins, and no row in any
other. Whether either has lapsed is decided by the shard's time alone. One that renews is told, so that it never takes
what it missed for what it has read.
"""

from headwater.protocol.limits import CONSUMER_IDLE_US, CONSUMERS_MAX, LEASES_MAX
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.cold import Consumer
from headwater.streams.commands.consumers import DropConsumer, LeaseLake, RegisterConsumer, RegisterConsumerFor
from headwater.streams.handling import handles
from headwater.streams.replies import Done, Reply
from headwater.streams.state import State


@handles(RegisterConsumer)
def register(state: State, command: RegisterConsumer) -> Reply:
    """Record how far a consumer has read; one that has lapsed makes room for a new one."""
    return _register(state, command, CONSUMER_IDLE_US)


@handles(RegisterConsumerFor)
def register_for(state: State, command: RegisterConsumerFor) -> Reply:
    """Record how far a consumer has read that says itself how long it may be silent."""
    return _register(state, command, command.life_us)


def _register(state: State, command: RegisterConsumer | RegisterConsumerFor, life_us: int) -> Reply:
    if command.position > state.position:
        return Refusal(Code.BAD_REQUEST, f"Position {command.position} is beyond the end of the log, {state.position}.")
    return _enter(state, command, Consumer(command.position, state.now, life_us))


@handles(LeaseLake)
def lease(state: State, command: LeaseLake) -> Reply:
    """Keep the objects of the lake; a renewal keeps those that the lease began with."""
    known = state.cold.consumers.get(command.consumer)
    position = known.position if command.renews and known is not None else state.position
    return _enter(state, command, Consumer(position, state.now, command.life_us, True))


def _enter(state: State, command: RegisterConsumer | RegisterConsumerFor | LeaseLake, entry: Consumer) -> Reply:
    consumers, name = state.cold.consumers, command.consumer
    known = consumers.get(name)
    continues = known is not None and known.is_lease == entry.is_lease and not known.has_lapsed(state.now)
    if command.renews and not continues:
        return Refusal(
            Code.CONSUMER_LAPSED,
            f"Consumer {name!r} is not registered or was silent for too long; rows may be missing.",
        )
    if known is None or known.is_lease != entry.is_lease:
        refusal = _make_room(state, entry.is_lease)
        if refusal is not None:
            return refusal
    # They are in the order of their last reports.
    consumers.pop(name, None)
    consumers[name] = entry
    return Done()


def _make_room(state: State, is_lease: bool) -> Refusal | None:
    """Remove lapsed leases, which are never resumed, and one lapsed consumer where there are too many."""
    consumers, now = state.cold.consumers, state.now
    alike = [name for name, known in consumers.items() if known.is_lease == is_lease]
    lapsed = [name for name in alike if consumers[name].has_lapsed(now)]
    most = LEASES_MAX if is_lease else CONSUMERS_MAX
    if len(alike) >= most and not lapsed:
        what = "leases are in force" if is_lease else "consumers are registered"
        return Refusal(Code.CONSUMERS_TOO_MANY, f"{most} {what}, the maximum; remove one that is no longer used.")
    for name in lapsed if is_lease else lapsed[: len(alike) - most + 1]:
        del consumers[name]
    return None


@handles(DropConsumer)
def drop(state: State, command: DropConsumer) -> Reply:
    """Keep nothing for this consumer any more."""
    state.cold.consumers.pop(command.consumer, None)
    return Done()
