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
from collections.abc import Callable
from enum import Enum

from headwater.log.seam import MemberLog
from headwater.node.cluster.keeping import NodeId
from headwater.node.committer import Now, Submit, ask
from headwater.streams.commands.cluster import Evict, Join, Keeper, Member, RaiseLevel
from headwater.streams.membership import judge_level
from headwater.streams.replies import Misplaced, Reply
from headwater.streams.state import State

TICK_SECONDS = 0.1
SILENT_SECONDS = 5.0
"""After this time without a pulse a member is evicted."""
STALL_SECONDS = 1.0
"""After a tick that comes so late, members have not been silent: this process did not run."""
CLOCK_MAX_US = 5_000_000
"""How far a node's clock may be off for it to take part."""
LEAVE_SECONDS = 3.0
"""How long a node that stops waits until its leaving is in the log."""

log = logging.getLogger(__name__)


class Standing(Enum):
    """How far this node has come."""

    JOINING = "joining"
    CONFIRMING = "confirming"
    """It is a member, and waits until every other member has applied its join."""
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
        now: Now,
        serve: Callable[[bool], None],
        end: Callable[[str], None] = end_process,
    ) -> None:
        self._profile, self._state, self.log, self._submit, self._now = profile, state, command_log, submit, now
        self._serve, self._end = serve, end
        self.standing = Standing.JOINING
        self._joined_sequence = 0
        self._seen: dict[str, Member] | None = None
        self._ticked_at = self._member_since = self._listens_since = 0.0
        """When this node last ticked, when it applied its own join, and since when it has heard what others say."""
        self._compared = False
        """Whether this node's clock has been compared with another member's, or there was none to compare it with."""
        self._said_clock = False
        self._expected: dict[Member, float] = {}
        """Since when each of the others has been a member, by this node's clock; one that joins again begins anew."""
        self._asking = False
        self._refused: str | None = None
        """Why the log did not let this node join."""
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._ticked_at = self._listens_since = time.monotonic()
        self._serve(False)
        self._tick()

    @property
    def outage(self) -> str | None:
        """Why this node refuses requests, in one sentence; None while it serves."""
        offset = self.log.clock_offset_us()
        if abs(offset) > CLOCK_MAX_US:
            side = "behind" if offset < 0 else "ahead of"
            return f"This node's clock is {abs(offset) / 1e6:.0f} s {side} the cluster's; set it, or use another node."
        if self._refused is not None:
            return self._refused
        if self.standing is not Standing.SERVING:
            return f"This node is {self.standing.value} the cluster; try again in a second, or use another node."
        return None

    @property
    def clock_is_good(self) -> bool:
        """Whether this node may stamp commands: one whose clock is ahead would push the log's time for all nodes.

        So nothing is stamped before the clock has been compared with another member's, unless all of them are silent.
        """
        if not self._compared:
            others, peers, since = self._others, self.log.peers, self._listens_since
            heard = any(name in peers and peers[name].heard_at >= since for name in others)
            self._compared = heard or not others or time.monotonic() - since > SILENT_SECONDS
        return self._compared and abs(self.log.clock_offset_us()) <= CLOCK_MAX_US

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
        self.log.members = {name: member.session for name, member in members.items()}
        was = before.get(self._profile.name)
        if self._mine is None:
            if was is not None and was.session == self._profile.session and self._profile.name in members:
                self._end(f"Another process took over the name {self._profile.name!r}; this one ends.")
            elif self.standing in (Standing.SERVING, Standing.CONFIRMING):
                log.warning("this node was evicted from the cluster, and joins it again")
                self.standing = Standing.JOINING
                self._serve(False)
                self.log.fail_barriers()
        elif self.standing is Standing.JOINING:
            self._joined_sequence, self._member_since = self.log.applied, time.monotonic()
            self.standing = Standing.CONFIRMING
            self._confirm()

    def _confirm(self) -> None:
        """Serve if every other member has applied this node's join."""
        peers = self.log.peers
        for name, member in self._others.items():
            peer = peers.get(name)
            # Another process of that name, which has not joined yet, says nothing about the member.
            if peer is None or peer.session != member.session or peer.applied < self._joined_sequence:
                return
        self.standing = Standing.SERVING
        self._serve(True)
        log.info("this node is a member of the cluster", extra={"members": sorted(self._state.cluster.members)})

    # -- Several times a second -----------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)
        self.after_batch()
        self._listen()
        if self.log.outage is not None:
            return
        if not self.clock_is_good:
            self._say_clock()
            return
        self._said_clock = False
        if self.standing is Standing.JOINING:
            self._join()
        elif self.standing is Standing.CONFIRMING:
            self._confirm()
        self._evict_silent()
        self._raise_level()

    def _listen(self) -> None:
        """Take note since when other members could be heard."""
        now = time.monotonic()
        if self.log.outage is not None or now - self._ticked_at > STALL_SECONDS:
            self._listens_since = now  # The others were not silent: this node was cut off, or did not listen.
        self._ticked_at = now
        self._expected = {member: self._expected.get(member, now) for member in self._others.values()}

    def _heard_at(self, name: str, member: Member) -> float:
        """When a member was last heard, or could first be; another process of its name does not count."""
        since, peer = max(self._expected[member], self._listens_since), self.log.peers.get(name)
        return max(since, peer.heard_at) if peer is not None and peer.session == member.session else since

    def _say_clock(self) -> None:
        """Say once why this node does not take part; at its start there is no other sign of it."""
        if self._compared and not self._said_clock:
            self._said_clock = True
            log.error("this node is not a cluster member: %s", self.outage)

    @property
    def may_propose(self) -> bool:
        """Whether this node may put anything into the log."""
        return self.log.outage is None and self.clock_is_good

    def _join(self) -> None:
        profile = self._profile
        refused = judge_level(self._state, profile.name, profile.level)
        if refused is not None:
            self._refused = refused.detail
        elif not self._asking:
            self._asking = True
            join = Join(profile.name, profile.session, profile.address, profile.level, self._now())
            self._submit(join, self._joined)

    def _joined(self, reply: Reply) -> None:
        self._asking = False
        self._refused = reply.detail if isinstance(reply, Misplaced) else None

    def _evict_silent(self) -> None:
        """The keeper evicts those that fell silent; any member does, if the keeper is among them.

        Silence counts from the join on: a member that has not learned of it yet may believe for that long that it asks
        all members (`barriers.CONTACT_SECONDS`).
        """
        if self._mine is None:
            return
        since = time.monotonic() - SILENT_SECONDS
        silent = {
            name: member
            for name, member in self._others.items()
            if max(self._heard_at(name, member), self._member_since) < since
        }
        keeper = self._state.cluster.keeper
        sessions = {member.session for member in self._state.cluster.members.values()}
        absent = keeper is None or keeper.node in silent or keeper.session not in sessions
        if silent and not self._asking and (absent or self._keeps(keeper)):
            self._asking = True
            name, member = next(iter(silent.items()))
            log.warning("the member %s has been silent for %.0f s and is evicted", name, SILENT_SECONDS)
            self._submit(Evict(name, member.session, self._profile.session), self._done)

    def _raise_level(self) -> None:
        """The keeper raises the level of commands once every member knows a higher one."""
        cluster = self._state.cluster
        known = min((member.level for member in cluster.members.values()), default=0)
        if known > cluster.level and not self._asking and self._keeps(cluster.keeper):
            self._asking = True
            self._submit(RaiseLevel(known), self._done)

    def _keeps(self, keeper: Keeper | None) -> bool:
        return keeper is not None and keeper.session == self._profile.session

    def _done(self, reply: Reply) -> None:
        self._asking = False

    async def stop(self) -> None:
        """Leave the cluster, so that other nodes stop asking this one and need not wait for its silence."""
        if self._timer is not None:
            self._timer.cancel()
        if self._mine is None or self.log.outage is not None:
            return
        self.standing = Standing.LEAVING
        try:
            leave = Evict(self._profile.name, self._profile.session, self._profile.session)
            await asyncio.wait_for(ask(self._submit, leave), LEAVE_SECONDS)
        except TimeoutError:
            log.warning("leaving the cluster was not confirmed in time; the others evict this node in some seconds")
