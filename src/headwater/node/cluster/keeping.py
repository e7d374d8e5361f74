"""Keeping: on a shared log, one node at a time does the chores, under a lease that the log grants.

Safety does not depend on it: what a former keeper still does is refused by the log, or harmless. The lease only sees to
it that each chore is done, and not twice.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from headwater.node.committer import Now, Submit, ask
from headwater.protocol.limits import SECOND_US
from headwater.streams.commands.cluster import Keep, Keeper
from headwater.streams.replies import Reply
from headwater.streams.state import State

RENEW_SECONDS = 1.0
LEASE_SECONDS = 5.0
"""How often the lease is renewed, and for how long it is granted."""
TRY_SECONDS = 0.1
"""How soon a node that cannot ask for the chores yet tries again."""
GIVE_BACK_SECONDS = 2.0
"""How long a node that stops waits until it has given the chores back."""

log = logging.getLogger(__name__)


class NodeId(NamedTuple):
    """A process that shares a log: its name, and a random session that tells it from earlier ones of that name."""

    name: str
    session: str


class Keeping:
    """Requests the chores when no node does them, and starts and stops them as the log decides."""

    def __init__(
        self,
        node: NodeId,
        state: State,
        *,
        submit: Submit,
        now: Now,
        may_ask: Callable[[], bool],
        begin: Callable[[int], None],
        end: Callable[[], Awaitable[None]],
    ) -> None:
        self._node, self._session = node
        self._state = state
        self._submit, self._now, self._may_ask, self._begin, self._end = submit, now, may_ask, begin, end
        self._seen: Keeper | None = None
        self._renewed_at = 0.0
        self._asking = False
        self._stopping = False
        self._timer: asyncio.TimerHandle | None = None
        self._epoch: int | None = None
        """Since when this node does the chores; None if it does not."""
        self._changing: asyncio.Task[None] | None = None

    @property
    def keeper(self) -> Keeper | None:
        """The lease, if it is ours."""
        keeper = self._state.cluster.keeper
        return keeper if keeper is not None and keeper.session == self._session else None

    def start(self) -> None:
        keeper = self._state.cluster.keeper
        free = keeper is None or keeper.session == self._session or self._now() > keeper.until
        # A clock that is wrong makes a node think that a lease has ended, and its request would move the log's time.
        may_ask = self._may_ask()
        pause_seconds = RENEW_SECONDS if may_ask else min(RENEW_SECONDS, TRY_SECONDS)
        self._timer = asyncio.get_running_loop().call_later(pause_seconds, self.start)
        if free and not self._asking and may_ask:
            self._asking = True
            self._submit(Keep(self._node, self._session, int(LEASE_SECONDS * SECOND_US)), self._asked)
        self.after_batch()

    def _asked(self, reply: Reply) -> None:
        self._asking = False

    def after_batch(self) -> None:
        """Begin or end the chores if the lease has changed hands."""
        keeper = self._state.cluster.keeper
        if keeper is not self._seen:
            self._seen = keeper
            if self.keeper is not None:
                self._renewed_at = time.monotonic()
        if self._wanted != self._epoch and self._changing is None:
            self._changing = asyncio.get_running_loop().create_task(self._change())
            self._changing.add_done_callback(self._changed)

    @property
    def _wanted(self) -> int | None:
        """The epoch in which this node should do the chores; None if it should not."""
        keeper = self.keeper
        lapsed = time.monotonic() > self._renewed_at + LEASE_SECONDS
        return None if keeper is None or lapsed or self._stopping else keeper.epoch

    async def _change(self) -> None:
        while (wanted := self._wanted) != self._epoch:
            if self._epoch is not None:
                self._epoch = None
                await self._end()
                log.info("this node no longer does the chores")
            elif wanted is not None:
                self._epoch = wanted
                self._begin(wanted)
                log.info("this node does the chores", extra={"epoch": wanted})

    def _changed(self, task: "asyncio.Task[None]") -> None:
        self._changing = None
        if not task.cancelled() and task.exception() is not None:
            log.error("failed to hand over background work", exc_info=task.exception())

    async def stop(self) -> None:
        """End the chores and give the lease back, so that another node need not wait for its end."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        if self._changing is not None:
            await asyncio.wait([self._changing])
        await self._change()
        if self.keeper is not None:
            given_back = ask(self._submit, Keep(self._node, self._session, 0))
            try:
                await asyncio.wait_for(given_back, GIVE_BACK_SECONDS)
            except TimeoutError:
                log.warning("the chores were not given back in time; another node takes them over in some seconds")
