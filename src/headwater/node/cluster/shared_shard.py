"""A shard whose log has other proposers: what this node has applied may be older than what another acknowledged.

Before it answers from its state, it waits for a barrier: a point in the log behind everything that any node had
acknowledged when the question came. A final answer to a write (missing, gone, closed) is judged again behind one, and
everything on the same name that comes after it waits, so that one client's writes keep their order.
"""

import asyncio
from collections import deque
from typing import NamedTuple

import msgspec

from headwater.log.seam import MemberLog, Reached
from headwater.node.chores.debts import SettleBucket
from headwater.node.cluster.digests import Digests
from headwater.node.cluster.keeping import Keeping
from headwater.node.cluster.membership import Membership, Profile
from headwater.node.committer import Done, Submit
from headwater.node.shard import Shard
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.batches import CLIENT_COMMANDS
from headwater.streams.commands import Command
from headwater.streams.commands.streams import Append, Delete
from headwater.streams.queries import Boundary
from headwater.streams.replies import Reply

DELETES_MAX = 3
"""How often a DELETE is tried again because the stream was created anew meanwhile."""
WAIT_SECONDS = 1.0
"""How long a chore's command waits before it is tried again, while this node's clock is wrong."""
STALE = "The log cannot be reached, so this node does not know what others have acknowledged; try again in a second."


class _Held(NamedTuple):
    command: Command
    done: Done


class SharedShard(Shard):
    """One node's replica of a shard that several nodes write to."""

    keeping: Keeping | None = None
    membership: Membership | None = None
    """On a log whose nodes are members."""
    digests: Digests
    _held: dict[str, deque[_Held]]
    """Commands that wait for a barrier or behind a deletion, by the name of their stream."""

    # -- Life ---------------------------------------------------------------------------------------------------------

    def join(self, profile: Profile, log: MemberLog) -> None:
        """Become a member of the cluster whose log this is, and serve from then on; call it before the start."""
        assert log is self.command_log, "a shard has one log"
        self.membership = Membership(
            profile, self.state, log, submit=self.committer.submit, now=self.now, serve=self._let_answer
        )

    def _let_answer(self, allowed: bool) -> None:
        self.committer.may_answer = allowed

    def start(self) -> None:
        self._held = {}
        self.digests = Digests(self.state, None if self.membership is None else self.membership.log.compare)
        super().start()
        if self.membership is not None:
            self.membership.start()

    @property
    def outage(self) -> str | None:
        """Why this node cannot decide anything, nor say what others decided, as one sentence; None while it can."""
        if self.command_log.outage is not None or self.membership is None:
            return self.command_log.outage
        return self.membership.outage

    def start_chores(self, route: Submit, settle_bucket: SettleBucket) -> None:
        """Watch what expires; do the chores while the log's lease is this node's."""
        self._route, self._settle_bucket = route, settle_bucket
        self._reaper.reaps = False
        self._reaper.start()
        self.keeping = Keeping(
            self.node,
            self.state,
            submit=self.committer.submit,
            now=self.now,
            begin=self._begin_chores,
            end=self._end_chores,
            may_ask=lambda: self.membership is None or self.membership.may_propose,
        )
        self.keeping.start()

    def _may_stamp(self) -> bool:
        return self.membership is None or self.membership.clock_is_good

    def _begin_chores(self, epoch: int) -> None:
        self._reaper.reaps = True
        self.begin_chores(epoch)

    async def _end_chores(self) -> None:
        self._reaper.reaps = False
        chores, self.chores = self.chores, None
        if chores is not None:
            await chores.stop()
            await chores.stop_imager()

    async def stop_chores(self) -> None:
        """Flush, give the chores back, and end what every node does."""
        if self.lake is not None:
            await self.lake.flush_before_stop()
        if self.keeping is not None:
            await self.keeping.stop()
        await super().stop_chores()

    async def stop(self) -> None:
        """Finish what was submitted, leave the members, and release the log."""
        await self.digests.stop()
        if self.membership is not None:
            await self.finish()
            await self.membership.stop()
        await super().stop()

    def _after_batch(self) -> None:
        if self.membership is not None:
            self.membership.after_batch()
        self.digests.after_batch()
        super()._after_batch()
        if self.keeping is not None:
            self.keeping.after_batch()

    def barrier(self, reached: Reached) -> None:
        """Go on when everything that any node had acknowledged before this call is applied here."""
        if self.outage is not None:
            reached(False)
        elif self.membership is None:
            self.command_log.barrier(reached)
        else:
            # A node that was evicted meanwhile has not asked those that joined since.
            self.command_log.barrier(lambda fresh: reached(fresh and self.outage is None))

    # -- Changes ------------------------------------------------------------------------------------------------------

    def submit(self, command: Command, done: Done) -> None:
        """Have a command decided; a final answer of the applied state is judged again behind a barrier."""
        if type(command) not in CLIENT_COMMANDS:
            if self._may_stamp():
                super().submit(command, done)
            else:
                # A chore's command waits until the clock is right: chores do not expect to be refused.
                asyncio.get_running_loop().call_later(WAIT_SECONDS, self.submit, command, done)
            return
        if (outage := self.outage) is not None:
            done(Refusal(Code.LOG_UNAVAILABLE, outage))
            return
        held = self._held.get(getattr(command, "name", ""))
        if held is not None:
            held.append(_Held(command, done))
            self.committer.queued_bytes += command.cost_bytes()
        elif isinstance(command, Append | Delete) and self._early(command) is not None:
            self._hold(command, done)
        else:
            self._decide(command, done)

    def _decide(self, command: Command, done: Done) -> None:
        if isinstance(command, Delete) and command.incarnation is None and command.name in self.state.streams:
            self._delete(command, done)
        else:
            super().submit(command, done)

    def _hold(self, command: Append | Delete, done: Done) -> None:
        """Wait until nothing that another node acknowledged can change the answer."""
        name = command.name
        waiting = self._held[name] = deque([_Held(command, done)])
        self.committer.queued_bytes += command.cost_bytes()

        def reached(fresh: bool) -> None:
            del self._held[name]
            self.committer.queued_bytes -= sum(one.command.cost_bytes() for one in waiting)
            if not fresh:
                for one in waiting:
                    one.done(Refusal(Code.LOG_UNAVAILABLE, self.outage or STALE))
                return
            waiting.popleft()
            final = self._early(command)
            if final is None:
                self._decide(command, done)
            else:
                done(final)
            for one in waiting:
                self.submit(one.command, one.done)

        self.barrier(reached)

    def _delete(self, command: Delete, done: Done) -> None:
        """Delete the life that is there now: if that is decided late, it cannot end a later one.

        It is aimed again if another node has created the stream anew, so everything that comes after it waits.
        """
        name, tries = command.name, DELETES_MAX
        waiting = self._held[name] = deque[_Held]()

        def aim() -> None:
            stream = self.state.streams.get(name)
            incarnation = None if stream is None else stream.incarnation
            Shard.submit(self, msgspec.structs.replace(command, incarnation=incarnation), deleted)

        def deleted(reply: Reply) -> None:
            nonlocal tries
            if isinstance(reply, Refusal) and reply.code is Code.INCARNATION_CHANGED and tries:
                tries -= 1
                aim()
                return
            try:
                done(reply)
            finally:
                del self._held[name]
                self.committer.queued_bytes -= sum(one.command.cost_bytes() for one in waiting)
                for one in waiting:
                    self.submit(one.command, one.done)

        aim()

    def _early(self, command: Append | Delete) -> Reply | None:
        return super().early(command)

    # -- Judgements before a body has arrived: only what no other node can change ---------------------------------

    def early(self, command: Append | Delete) -> Reply | None:
        """No answer is final without a barrier."""
        return None

    def judge_target(self, name: str) -> Refusal | None:
        """Why an append would be refused whatever it is: there is no room."""
        return self._no_room()

    def judge_snapshot(self, boundary: Boundary, *, trims: bool) -> Refusal | None:
        """Why a snapshot would be refused whatever it is: there is no room."""
        return self._no_room()
