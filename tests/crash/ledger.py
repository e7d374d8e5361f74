"""The ledger: what was sent, what was acknowledged, and so what every stream must hold after a crash.

Writers record what they send before they send it, and answers after they arrive, so at any moment the server may know
more than the ledger. Therefore nothing is judged here that another thread may be about to explain: `checks` does that
when no writer is running.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import NamedTuple

from .clients import Response
from .extents import NOTHING, Extent
from .messages import Key

TTL_SLACK_SECONDS = 1.5
"""How late a busy machine may notice the end of a lifetime, in addition to the tenth by which it may last longer."""


class Kind(NamedTuple):
    """How the streams of one name are created, every time."""

    content_type: str
    ttl_seconds: int | None = None
    source: str | None = None
    snapshots: bool = False
    """Whether any writer publishes snapshots; forks may still inherit one."""


class Bytes(NamedTuple):
    """Bytes that a client has seen acknowledged or read."""

    extent: Extent
    appended: bool = False
    """Whether by an acknowledgement of their append, not by a read."""


class Snapshot(NamedTuple):
    """A snapshot as it was sent; no two have the same bytes."""

    name: str
    incarnation: str
    offset: int
    content_type: str
    digest: bytes
    trims: bool
    """Whether the server that it was sent to trims history with it."""


@dataclass
class Life:
    """One life of one stream, from its creation to its end."""

    name: str
    incarnation: str
    born_at: float
    """When its creation was sent, or may have been."""
    fork_of: "Life | None" = None
    fork_offset: int = 0
    content: Extent = NOTHING
    """Its content as of the last restart; whatever part is retained must not change."""
    seen: list[Bytes] = field(default_factory=list)
    """Bytes that were acknowledged or read since then."""
    boundaries: list[int] = field(default_factory=list)
    """Offsets between the frames of batches since then; a snapshot may be there, inside an append."""
    last_numbers: dict[str, int] = field(default_factory=dict)
    """The last append of each writer that was read after a restart."""
    snapshot: Snapshot | None = None
    """The latest that was acknowledged or read."""
    start: int = 0
    """The offset up to which history was trimmed, at least."""
    tail: int = 0
    """The largest offset that any response named."""
    closed_at: int | None = None
    close_sent: bool = False
    delete_sent: bool = False
    gone: bool = False
    renewed_at: float = 0.0
    """When the last acknowledged write was sent: its lifetime began no earlier."""

    @property
    def position(self) -> int:
        """Orders the lives of one name."""
        return int(self.incarnation.rpartition("-")[2])


class Ledger:
    """Shared by all writers."""

    def __init__(self, kinds: dict[str, Kind]) -> None:
        self.kinds = kinds
        self.trims = True
        """Whether the running server trims history with each snapshot."""
        self.appends_acknowledged = 0
        self.snapshots_acknowledged = 0
        self.snapshots_unanswered: set[bytes] = set()
        """The digests of snapshots that were sent and that no client has seen published or refused."""
        self.forks_unanswered: list[tuple[str, float]] = []
        """Sources of forks, and when the forks were sent."""
        self._lives: dict[str, Life] = {}
        self._buried: set[str] = set()
        self._sent: dict[str, set[Key]] = {name: set() for name in kinds}
        self._snapshots: dict[str, set[Snapshot]] = {name: set() for name in kinds}
        self._retentions: dict[str, set[tuple[str, int]]] = {name: set() for name in kinds}
        self._created_at: dict[str, float] = {}
        self._used_at: dict[str, float] = {}
        self._lock = RLock()

    # -- What is sent ---------------------------------------------------------------------------------------------

    @contextmanager
    def using(self, name: str) -> Iterator[float]:
        """Note that requests in this block may renew a stream of that name; yields the time before."""
        try:
            yield time.time()
        finally:
            self._used_at[name] = time.time()

    def send_create(self, name: str) -> None:
        self._created_at[name] = time.time()

    def send_append(self, name: str, key: Key) -> None:
        with self._lock:
            self._sent[name].add(key)

    def refused(self, name: str, key: Key) -> None:
        """Note that an append was not carried out and never will be: no reader may see it."""
        with self._lock:
            self._sent[name].discard(key)

    def send_snapshot(self, snapshot: Snapshot) -> None:
        with self._lock:
            self._snapshots[snapshot.name].add(snapshot)
            self.snapshots_unanswered.add(snapshot.digest)

    def refused_snapshot(self, snapshot: Snapshot) -> None:
        with self._lock:
            self._snapshots[snapshot.name].discard(snapshot)
            self.snapshots_unanswered.discard(snapshot.digest)

    def send_retention(self, life: Life, offset: int) -> None:
        with self._lock:
            self._retentions[life.name].add((life.incarnation, offset))

    # -- What is acknowledged -------------------------------------------------------------------------------------

    def life(self, name: str, incarnation: str) -> Life:
        """The life that a response is about."""
        with self._lock:
            if incarnation not in self._lives:
                assert name in self._created_at, f"no client created {name}"
                self._lives[incarnation] = Life(name, incarnation, self._created_at[name])
            life = self._lives[incarnation]
            assert life.name == name, f"{incarnation} is a life of {life.name}, not of {name}"
            return life

    def see(self, name: str, response: Response, *, repeated: bool = False) -> Life:
        """Note the tail and the closure in a response; they bind the server.

        The answer to a repeated request says where that request had ended, and others may have written since.
        """
        with self._lock:
            life = self.life(name, response.incarnation)
            life.tail = max(life.tail, response.next_offset)
            if response.closed and repeated:
                assert life.closed_at is None or life.closed_at >= response.next_offset, f"{name} shrank"
            elif response.closed:
                assert life.closed_at in (None, response.next_offset), f"{name} grew after it was closed"
                life.closed_at = response.next_offset
            return life

    def tell(
        self, name: str, response: Response, data: bytes, appended: bool = False, *, repeated: bool = False
    ) -> Life:
        """Note that a client has seen the bytes that end where the response says."""
        with self._lock:
            life = self.see(name, response, repeated=repeated)
            life.seen.append(Bytes(Extent.before(response.next_offset, data), appended))
            return life

    def acknowledge_append(
        self, name: str, response: Response, data: bytes, sent_at: float, *, repeated: bool = False
    ) -> None:
        with self._lock:
            self.appends_acknowledged += 1
            life = self.tell(name, response, data, appended=True, repeated=repeated)
            life.renewed_at = max(life.renewed_at, sent_at)

    def acknowledge_snapshot(self, life: Life, snapshot: Snapshot) -> None:
        """Note that a snapshot was published or read."""
        with self._lock:
            self.snapshots_unanswered.discard(snapshot.digest)
            known = life.snapshot
            if known is None or known.offset < snapshot.offset:
                life.snapshot = snapshot
            elif known.offset == snapshot.offset:
                assert known == snapshot, f"{life.name} {life.incarnation} has two snapshots at {snapshot.offset}"
            if snapshot.trims:
                self.acknowledge_start(life, snapshot.offset)

    def acknowledge_start(self, life: Life, offset: int) -> None:
        """Note that history before an offset is gone."""
        with self._lock:
            life.start = max(life.start, offset)

    def acknowledge_create(self, name: str, response: Response) -> Life:
        """Note that a stream exists; the older lives of its name must have been allowed to end, and have ended."""
        with self._lock:
            life = self.see(name, response)
            for older in self.living(name):
                if older.position < life.position:
                    self.bury(older)
            return life

    def bury(self, life: Life) -> None:
        """Record that a life has ended."""
        with self._lock:
            assert self.may_be_gone(life), f"{life.name} {life.incarnation} is lost"
            life.gone = True
            self._buried.add(life.incarnation)

    # -- What follows ---------------------------------------------------------------------------------------------

    def living(self, name: str) -> list[Life]:
        with self._lock:
            return [life for life in self._lives.values() if life.name == name and not life.gone]

    def is_buried(self, incarnation: str) -> bool:
        return incarnation in self._buried

    def may_be_gone(self, life: Life) -> bool:
        """Whether it may have ended: a client deleted it, or its lifetime may be over."""
        ttl = self.kinds[life.name].ttl_seconds
        return life.delete_sent or (ttl is not None and time.time() >= max(life.born_at, life.renewed_at) + ttl)

    def has_outlived(self, life: Life, now: float) -> bool:
        """Whether it must have ended, since nothing renewed it in time."""
        ttl = self.kinds[life.name].ttl_seconds
        used_at = max(life.born_at, self._used_at.get(life.name, 0.0))
        return ttl is not None and now > used_at + ttl * 1.1 + TTL_SLACK_SECONDS

    def lineage(self, name: str) -> list[str]:
        """A name, and those that its streams inherit from."""
        source = self.kinds[name].source
        return [name, *(self.lineage(source) if source is not None else [])]

    def senders(self, name: str) -> set[Key]:
        """Every append that a stream of this name may show, inherited ones among them."""
        return set[Key]().union(*(self._sent[ancestor] for ancestor in self.lineage(name)))

    def snapshots(self, name: str) -> set[Snapshot]:
        """Every snapshot that was sent to a stream of this name and was not refused."""
        with self._lock:
            return set(self._snapshots[name])

    def snapshots_of(self, life: Life) -> set[Snapshot]:
        """Every snapshot that this life may show: its own, and those of its possible sources."""
        inherited = [self.snapshots(name) for name in self.lineage(life.name)[1:]]
        own = {sent for sent in self.snapshots(life.name) if sent.incarnation == life.incarnation}
        return own.union(*inherited)

    def starts_of(self, life: Life) -> set[int]:
        """The offsets at which the retained history of this life may begin."""
        starts = {0} | {snapshot.offset for snapshot in self.snapshots_of(life) if snapshot.trims}
        for name in self.lineage(life.name):
            for incarnation, offset in self._retentions[name]:
                if name != life.name or incarnation == life.incarnation:
                    starts.add(offset)
        return starts

    def forget_the_dead(self) -> None:
        """Forget what no later check can need: lives that are over and not shown by a living fork."""
        with self._lock:
            needed: list[Life] = [life for life in self._lives.values() if not life.gone]
            for life in needed:
                if life.fork_of is not None and life.fork_of not in needed:
                    needed.append(life.fork_of)
            self._lives = {life.incarnation: life for life in needed}
