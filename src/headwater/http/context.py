"""What all connections of one server share."""

import time
from typing import Protocol

from headwater.http.wire.heads import KnownHeads
from headwater.http.wire.statuses import Voice
from headwater.node.node import Node
from headwater.protocol.offsets import Form
from headwater.settings import Settings


class Peer(Protocol):
    """A connection, as the server manages it."""

    deadline: float

    def expire(self) -> None:
        """The deadline has passed."""

    def tick(self, now: float) -> None:
        """Time has passed, for connections with live responses."""

    def drain(self) -> None:
        """The server shuts down: finish what has begun, then close."""

    def abort(self) -> None:
        """Close at once."""


class Context:
    """The settings, the node, who is connected, and what the front counts."""

    node: Node
    voice: Voice
    """How the flat surface speaks."""
    plain_voice: Voice
    """How all other surfaces speak."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now = time.monotonic()
        """A coarse clock: the server sets it about twice a second."""
        self.started_at = self.now
        self.draining = False
        self.heads = KnownHeads()
        self.origins = None if settings.cors_origins == "*" else frozenset(settings.cors_origins.split(","))
        """Origins whose pages may read responses; None for all."""
        self.connections: set[Peer] = set()
        self.live: set[Peer] = set()
        """Connections with live responses."""
        self.bulk_appends = 0
        """How many are in progress."""
        self.received_bytes = 0
        self.sent_bytes = 0

    def adopt(self, node: Node) -> None:
        """Answer requests with this node."""
        self.node = node
        self.voice = Voice(Form.FLAT, node.log_id, self.settings.private, self.settings.attachments)
        self.plain_voice = self.voice._replace(form=Form.PLAIN)

    def admit(self, connection: Peer) -> bool:
        """Count a new connection; returns whether there is room for it."""
        self.connections.add(connection)
        return len(self.connections) <= self.settings.connections_max

    def forget(self, connection: Peer) -> None:
        self.connections.discard(connection)
        self.live.discard(connection)
