"""Membership: when this node may answer clients, and who else is a member.

Who asks all members how far they have applied the log learns of everything that was acknowledged, because no node
acknowledges what it has not applied. So a node answers only while it is a member by its own applied state, and a node
that has joined answers only once every other member has applied its join, too. A member that falls silent is evicted;
it notices when it applies that, withholds its answers, and joins again.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol, runtime_checkable

from headwater.log.seam import CommandLog
from headwater.node.committer import Submit, ask
from headwater.node.keeping import NodeId
from headwater.streams.cluster import Evict, Join, Keeper, Member, RaiseLevel
from headwater.streams.replies import Misplaced, Reply
from headwater.streams.state import State

TICK_SECONDS = 0.1
SILENT_SECONDS = 5.0
"""After this time without a pulse a member is evicted."""
CLOCK_MAX_US = 5_000_000
"""How far a node's clock may be off for it to take part."""
CLOCKS_SECONDS = 1.0
"""How long a node that starts waits for the first pulse of another one, whose clock it needs."""
LEAVE_SECONDS = 3.0
"""How long a node that stops waits until its leaving is in the log."""

log = logging.getLogger(__name__)


class Peer(Protocol):
    """What a pulse says of another node."""

    @property
    def applied(self) -> int: ...
    @property
    def heard_at(self) -> float: ...


@runtime_checkable
class MemberLog(CommandLog, Protocol):
    """A shared log whose nodes hear each other's pulses."""

    members: Mapping[str, str]
    """Whom a barrier asks: the session of each member, by its name. A former process of that name does not count."""

    @property
    def applied(self) -> int:
        """The sequence up to which this node has applied the log."""

    @property
    def peers(self) -> Mapping[str, Peer]:
        """The other nodes that were heard."""

    def clock_offset_us(self) -> int:
        """How far this node's clock is off."""


class Standing(Enum):
    """How far this node has come."""

    JOINING = "joining"
    CONFIRMING = "confirming"
    """It is a member, and waits until every other member has applied that."""
    SERVING = "serving"
    LEAVING = "leaving"


class Profile:
    """What this node says of itself when it joins."""

    def __init__(self, node: NodeId, address: str, level: int) -> None:
        self.name, self.session = node
        self.address, self.level = address, level


def end_process(reason: str) -> None:
    """End at once: another process has taken over the name."""
    log.critical(reason)
    os._exit(1)


class Membership:
    """Joins, watches the others, and says whether this node may answer."""

    def __init__(
        self,
        profile: Profile,
        state: State,
        command_log: MemberLog,
        *,
        submit: Submit,
        serve: Callable[[bool], None],
        end: Callable[[str], None] = end_process,
    ) -> None:
        self._profile, self._state, self._log, self._submit = profile, state, command_log, submit
        self._serve, self._end = serve, end
        self.standing = Standing.JOINING
        self._joined_sequence = 0
        self._seen: dict[str, Member] | None = None
        self._began_at = 0.0
        self._joined_at: dict[tuple[str, str], float] = {}
        """When each member was first seen here: it may not have been heard yet."""
        self._asking = False
        self._refused: str | None = None
        """Why the log did not let this node join."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._began_at = time.monotonic()
        self._serve(False)
        self._tick()

    @property
    def outage(self) -> str | None:
        """Why this node answers nobody, as one sentence; None while it serves."""
        offset = self._log.clock_offset_us()
        if abs(offset) > CLOCK_MAX_US:
            side = "behind" if offset < 0 else "ahead of"
            return f"This node's clock is {abs(offset) / 1e6:.0f} s {side} the cluster's; set it, or use another node."
        if self._refused is not None:
            return self._refused
        if self.standing is not Standing.SERVING:
            return f"This node is {self.standing.value} the cluster; try again in a second, or use another node."
        return None

    @property
    def _mine(self) -> Member | None:
        member = self._state.cluster.members.get(self._profile.name)
        return member if member is not None and member.session == self._profile.session else None

    @property
    def _others(self) -> dict[str, Member]:
        members = self._state.cluster.members
        return {name: member for name, member in members.items() if name != self._profile.name}

    # -- What the log says ----------------------------------------------------------------------------------------

    def after_batch(self) -> None:
        """Take note if the members have changed."""
        members = self._state.cluster.members
        if members is self._seen:
            return
        before, self._seen = self._seen or {}, members
        self._log.members = {name: member.session for name, member in members.items()}
        now = time.monotonic()
        self._joined_at = {
            process: self._joined_at.get(process, now)
            for process in ((name, member.session) for name, member in members.items())
        }
        was = before.get(self._profile.name)
        if self._mine is None:
            if was is not None and was.session == self._profile.session and self._profile.name in members:
                self._end(f"Another process took over the name {self._profile.name!r}; this one ends.")
            elif self.standing in (Standing.SERVING, Standing.CONFIRMING):
                log.warning("this node was evicted from the cluster, and joins it again")
                self.standing = Standing.JOINING
                self._serve(False)
        elif self.standing is Standing.JOINING:
            self._joined_sequence = self._log.applied
            self.standing = Standing.CONFIRMING
            self._confirm()

    def _confirm(self) -> None:
        """Serve if every other member has applied this node's join."""
        peers = self._log.peers
        for name in self._others:
            peer = peers.get(name)
            if peer is None or peer.applied < self._joined_sequence:
                return
        self.standing = Standing.SERVING
        self._serve(True)
        log.info("this node is a member of the cluster", extra={"members": sorted(self._state.cluster.members)})

    # -- Several times a second -----------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)
        self.after_batch()
        if self._log.outage is not None or abs(self._log.clock_offset_us()) > CLOCK_MAX_US:
            return
        if self.standing is Standing.JOINING:
            if self._knows_clocks:
                self._join()
        elif self.standing is Standing.CONFIRMING:
            self._confirm()
        self._evict_silent()
        self._raise_level()

    @property
    def _knows_clocks(self) -> bool:
        """Whether this node's clock was compared with another's: a join stamped ahead would stop all the others."""
        return not self._others or bool(self._log.peers) or time.monotonic() - self._began_at > CLOCKS_SECONDS

    def _join(self) -> None:
        if not self._asking:
            self._asking = True
            profile = self._profile
            self._submit(Join(profile.name, profile.session, profile.address, profile.level), self._joined)

    def _joined(self, reply: Reply) -> None:
        self._asking = False
        self._refused = reply.detail if isinstance(reply, Misplaced) else None

    def _evict_silent(self) -> None:
        """The keeper evicts those that fell silent; any node does, if the keeper is among them."""
        now, peers = time.monotonic(), self._log.peers
        heard = {name: peer.heard_at for name, peer in peers.items()}
        silent = {
            name: member
            for name, member in self._others.items()
            if now - max(self._joined_at[name, member.session], heard.get(name, 0.0)) > SILENT_SECONDS
        }
        keeper = self._state.cluster.keeper
        if silent and not self._asking and (keeper is None or keeper.node in silent or self._keeps(keeper)):
            self._asking = True
            name, member = next(iter(silent.items()))
            log.warning("the member %s has been silent for %.0f s and is evicted", name, SILENT_SECONDS)
            self._submit(Evict(name, member.session), self._done)

    def _raise_level(self) -> None:
        """The keeper raises the level of commands once every member knows a higher one."""
        cluster = self._state.cluster
        known = min((member.level for member in cluster.members.values()), default=0)
        if known > cluster.level and not self._asking and cluster.keeper is not None and self._keeps(cluster.keeper):
            self._asking = True
            self._submit(RaiseLevel(known), self._done)

    def _keeps(self, keeper: Keeper) -> bool:
        return keeper.session == self._profile.session

    def _done(self, reply: Reply) -> None:
        self._asking = False

    async def stop(self) -> None:
        """Leave: nobody asks this node any more, and nobody has to wait for its silence."""
        if self._timer is not None:
            self._timer.cancel()
        if self._mine is None or self._log.outage is not None:
            return
        self.standing = Standing.LEAVING
        try:
            await asyncio.wait_for(ask(self._submit, Evict(self._profile.name, self._profile.session)), LEAVE_SECONDS)
        except TimeoutError:
            log.warning("leaving the cluster was not confirmed in time; the others evict this node in some seconds")
