"""What all connections of one server share."""

import logging
import resource
import sys
import time
from collections import Counter
from typing import Any, Protocol

from headwater.access.allowances import Usage
from headwater.access.audit import Audit, Event, Record
from headwater.http.guard.gates import Gate, Guard, OpenGate
from headwater.http.guard.proxies import Proxies
from headwater.http.tls.certificates import Certificates
from headwater.http.wire.addresses import Address, flat_prefixes
from headwater.http.wire.browsers import Hosts, Origins
from headwater.http.wire.budgets import Budget, Line, TurnBudget
from headwater.http.wire.heads import plain_heads
from headwater.http.wire.rendering import Renderer
from headwater.http.wire.statuses import Dialect
from headwater.node.node import Node
from headwater.node.quotas import Quotas
from headwater.prometheus import Metric
from headwater.protocol.limits import (
    BULK_APPENDS_MAX,
    BULK_WAIT_SECONDS_MAX,
    BULK_WAITING_MAX,
    DESCRIPTORS_RESERVE,
    RESERVED_CONNECTIONS,
)
from headwater.protocol.offsets import Form
from headwater.settings import Mode, Settings

LONG_PAGES_BYTES_MAX = 1024 * 1024
"""How much of long pages is sent in one turn of the loop: about a millisecond, during which all other clients wait."""

log = logging.getLogger(__name__)


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


class Gathering(Protocol):
    """Answers for all processes that serve together."""

    async def metrics(self) -> list[Metric]: ...

    async def status(self) -> dict[str, Any]: ...

    async def usage(self) -> list[tuple[str, Usage]]: ...

    async def reload(self) -> list[str]:
        """Have the others read the access file again; what went wrong, if anything did."""


def descriptors_max() -> int:
    """How many files and sockets this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


class Context:
    """The settings, the node, who is connected, and what the front counts."""

    node: Node
    dialect: Dialect
    """How the flat surface speaks."""
    plain_dialect: Dialect
    """How all other surfaces speak."""
    guarded_dialect: Dialect
    guarded_plain_dialect: Dialect
    """The same for streams that need a credential to read."""

    def __init__(self, settings: Settings, guard: Guard | None = None) -> None:
        self.settings = settings
        self.now = time.monotonic()
        """A coarse clock: the server sets it about twice a second."""
        self.started_at = self.now
        self.draining = False
        self.certificates = Certificates(settings) if settings.tls_cert else None
        """For TLS; None for plain HTTP."""
        self.secure = self.certificates is not None
        self.guard = guard
        self.together: Gathering | None = None
        """Asks the other processes of this server; None if there are none."""
        self.audit: Audit | None = None
        """Where changes and denied requests are recorded."""
        self.proxies = Proxies(settings.proxies)
        """Whose forwarded headers are believed."""
        local = settings.mode is Mode.LOCAL
        self.hosts = None if settings.hosts == "*" or not (local or settings.hosts) else Hosts(settings.hosts)
        """The names under which clients may call this server; None for all."""
        self.heads = plain_heads(self.hosts)
        self.origins = Origins(settings.cors_origins, local=local)
        self.gate: Gate = OpenGate(self.origins) if guard is None else guard
        """Decides whose request it is, and what that one may do."""
        self.flat_prefixes = flat_prefixes(settings.mount)
        """Where the flat surface is."""
        self.renderer = Renderer(local=local, guarded=guard is not None)
        descriptors = descriptors_max()
        self.reserved_max = min(RESERVED_CONNECTIONS, descriptors // 8)
        left = descriptors - DESCRIPTORS_RESERVE - self.reserved_max
        self.connections_max = min(settings.connections_max, max(1, left // 2))
        """The setting, unless the process may not open as many files: two for each connection."""
        self.connections: set[Peer] = set()
        self._reserved: dict[Peer, None] = {}
        self._addresses: dict[Peer, str] = {}
        self._of_address: Counter[str] = Counter()
        """The address of each connection and how many it has, if that is limited."""
        self.live: set[Peer] = set()
        """Connections with live responses."""
        self.receiving = Budget(settings.receiving_bytes_max)
        """Memory for request bodies."""
        self.sending = Budget(settings.sending_bytes_max)
        """Memory for responses that their clients do not read."""
        self.long_pages = TurnBudget(LONG_PAGES_BYTES_MAX)
        """What long pages may take of one turn."""
        self.blobs = Budget(self.connections_max)
        """Files of snapshots that are being sent or received."""
        self.bulk_appends = Line(
            "bulk appends", BULK_APPENDS_MAX, BULK_WAITING_MAX, BULK_WAIT_SECONDS_MAX, self.receiving
        )
        self.received_bytes = 0
        self.sent_bytes = 0

    def adopt(self, node: Node) -> None:
        """Answer requests with this node."""
        self.node = node
        settings, by_origin = self.settings, not self.origins.to_all
        self.dialect = Dialect(Form.FLAT, node.log_id, settings.private, settings.attachments, by_origin)
        self.plain_dialect = self.dialect._replace(form=Form.PLAIN)
        self.guarded_dialect = self.dialect._replace(guarded=True)
        self.guarded_plain_dialect = self.plain_dialect._replace(guarded=True)

    @property
    def quotas(self) -> Quotas:
        """How much each bucket may hold."""
        return {} if self.guard is None else self.guard.policy.buckets

    def report_reload(self, changes: dict[str, list[str]]) -> None:
        """Log which entries of the access file have changed."""
        log.info("access rules reloaded", extra=changes)
        if self.audit is not None:
            changed = tuple(f"{how} {entry}" for how, entries in changes.items() for entry in entries)
            self.audit.record(Record(Event.RELOADED, changed=changed))

    def dialect_for(self, address: Address) -> Dialect:
        """How to speak about what a path names."""
        if self.guard is None or self.guard.is_public(address.name):
            return self.dialect if address.flat else self.plain_dialect
        return self.guarded_dialect if address.flat else self.guarded_plain_dialect

    def renew_dialect(self, dialect: Dialect, name: str) -> Dialect:
        """How to speak about a stream by the rules of now."""
        return dialect._replace(guarded=self.guard is not None and not self.guard.is_public(name))

    def admit(self, connection: Peer, address: str = "") -> bool:
        """Count a new connection; returns whether there is room for it, and it is not on the reserve."""
        has_room = len(self.connections) - len(self._reserved) < self.connections_max
        if self.settings.address_connections_max:
            self._addresses[connection] = address
            self._of_address[address] += 1
            has_room = has_room and self._of_address[address] <= self.settings.address_connections_max
        if not has_room:
            if len(self._reserved) >= self.reserved_max:
                oldest = next(iter(self._reserved))
                self.forget(oldest)
                oldest.abort()
            self._reserved[connection] = None
        self.connections.add(connection)
        return has_room

    def forget(self, connection: Peer) -> None:
        self.connections.discard(connection)
        self._reserved.pop(connection, None)
        self.live.discard(connection)
        if (address := self._addresses.pop(connection, None)) is not None:
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]
