"""Pulses: what every node says of itself four times a second, and what is known of the others from theirs.

Pulses travel by core NATS, outside the log: they are lost without harm, and never waited for.
"""

import time
from statistics import median_low
from typing import NamedTuple

import msgspec

from headwater.log.jetstream.judging import Checkpoint

PULSE_SECONDS = 0.25
PEERS_MAX = 256
"""Nodes that are remembered; the one that was silent for longest makes room."""
CLOCK_SECONDS = 1.0
"""How old a pulse may be for its clock to count."""
COMPARED_SECONDS = 10.0
"""How old a pulse may be for its node to be compared with this one."""
CHECKPOINTS_KEPT = 64
"""Checkpoints of our own that are kept to be compared: a node that is further behind is compared later."""


class Pulse(msgspec.Struct, array_like=True, frozen=True):
    """What a node says of itself."""

    node: str
    session: str
    applied: int
    known: int
    clock_us: int
    address: str
    level: int
    checkpoint_sequence: int
    checkpoint_chain: int
    digest: tuple[str, str] = ("", "")
    """The latest checkpoint of the state, and its hash; nodes of earlier versions do not send it."""


class Peer(NamedTuple):
    """What is known of another node."""

    name: str
    session: str
    """What tells its process from earlier ones of that name."""
    applied: int
    """The sequence up to which it has applied the log."""
    known: int
    """The sequence up to which it knows that the log goes."""
    clock_us: int
    clock_offset_us: int
    """Its clock minus ours when the pulse arrived."""
    address: str
    level: int
    checkpoint: Checkpoint
    heard_at: float
    """When the pulse arrived, by the monotonic clock."""
    digest: tuple[str, str] = ("", "")
    """The latest checkpoint of its state, and the hash of that."""


_encoder = msgspec.msgpack.Encoder()
_pulses = msgspec.msgpack.Decoder(Pulse)


def encode(pulse: Pulse) -> bytes:
    return _encoder.encode(pulse)


class Peers:
    """The other nodes, by their names."""

    def __init__(self, node: str) -> None:
        self._node = node
        self.known: dict[str, Peer] = {}
        self._checkpoints: dict[int, int] = {}
        self.digest = ("", "")
        """The latest checkpoint of our own state, and the hash of that."""

    def receive(self, data: bytes, clock_us: int) -> Peer | None:
        """Take in a pulse; return what it says, or None if it is our own, or cannot be read."""
        try:
            pulse = _pulses.decode(data)
        except msgspec.MsgspecError:
            return None  # Of a later version, whose nodes find out about us by the level in the log.
        if pulse.node == self._node:
            return None
        checkpoint = Checkpoint(pulse.checkpoint_sequence, pulse.checkpoint_chain)
        peer = Peer(
            pulse.node,
            pulse.session,
            pulse.applied,
            pulse.known,
            pulse.clock_us,
            pulse.clock_us - clock_us,
            pulse.address,
            pulse.level,
            checkpoint,
            time.monotonic(),
            pulse.digest,
        )
        if peer.name not in self.known and len(self.known) >= PEERS_MAX:
            del self.known[min(self.known, key=lambda name: self.known[name].heard_at)]
        self.known[peer.name] = peer
        return peer

    def heard_within(self, name: str, session: str, seconds: float) -> bool:
        """Whether a pulse of this process arrived within the last seconds."""
        peer = self.known.get(name)
        return peer is not None and peer.session == session and time.monotonic() - peer.heard_at <= seconds

    def note(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint of our own for comparison."""
        self._checkpoints[checkpoint.sequence] = checkpoint.chain
        if len(self._checkpoints) > CHECKPOINTS_KEPT:
            del self._checkpoints[next(iter(self._checkpoints))]

    def differing(self) -> Peer | None:
        """A peer whose chain differs from ours behind the same message; there is none unless something is broken."""
        for peer in self._heard():
            ours = self._checkpoints.get(peer.checkpoint.sequence)
            if ours is not None and ours != peer.checkpoint.chain:
                return peer
        return None

    def differing_state(self) -> Peer | None:
        """A peer whose state differs from ours at the same checkpoint."""
        checkpoint, ours = self.digest
        for peer in self._heard():
            if checkpoint and peer.digest[0] == checkpoint and peer.digest[1] != ours:
                return peer
        return None

    def _heard(self) -> list[Peer]:
        """Those that still run: once a node that differs has ended, the others may go on."""
        since = time.monotonic() - COMPARED_SECONDS
        return [peer for peer in self.known.values() if peer.heard_at >= since]

    def clock_offset_us(self) -> int | None:
        """Our clock minus the middle one of all nodes' clocks, ours among them; None if no other node is heard.

        Of two clocks the earlier one counts as the middle: a clock that is ahead would push shard time for good.
        """
        since = time.monotonic() - CLOCK_SECONDS
        offsets = [peer.clock_offset_us for peer in self.known.values() if peer.heard_at >= since]
        return -median_low([*offsets, 0]) if offsets else None
