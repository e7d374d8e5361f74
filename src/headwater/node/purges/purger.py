"""The purger: carries out purges, which are in the state, as one of the chores.

    deleting    the streams and, if they are to go, their forks; then their snapshots
    rewriting   their rows leave the lake, with every object that may have some
    dropping    the state names them no longer: two new images are taken, and all log and images before are dropped

A process that takes over repeats the stage it finds, which does no harm.
"""

import asyncio
import logging
import secrets
from collections.abc import Sequence

from headwater.log.seam import Trimming
from headwater.node.chores.blob_sweeper import BlobSweeper
from headwater.node.chores.imager import Imager
from headwater.node.committer import Submit, ask
from headwater.node.lake.lake import Lake
from headwater.node.purges import scope
from headwater.streams.commands import Command
from headwater.streams.commands.lake import ForgetSegments
from headwater.streams.commands.purges import DELETING, DONE, DROPPING, REFUSED, REWRITING, AdvancePurge, Purge
from headwater.streams.commands.streams import Delete, Expire
from headwater.streams.replies import Done
from headwater.streams.state import State, Stream

DELETED_AT_ONCE = 50
"""How many streams are deleted at a time: applying that takes some milliseconds."""
FORKS_AT_ONCE = 500
"""How many forks one command adds to a purge."""
FILLING_BYTES = 256 * 1024
"""The size of a command that only makes the log longer."""
POLL_SECONDS = 0.02
RETRY_SECONDS = 2.0
"""How often it is checked whether deleted streams are gone, and how long to wait after a failure."""

log = logging.getLogger(__name__)


class PurgeInterrupted(Exception):
    """The purge cannot go on here: another node does the chores, or the log refuses commands."""


class _Forked(Exception):
    """A fork needs one of the streams, and forks are to be spared."""


class Purger:
    """Carries out one purge at a time, the earliest first."""

    def __init__(
        self,
        state: State,
        command_log: Trimming,
        submit: Submit,
        *,
        sweeper: BlobSweeper,
        lake: Lake | None,
        imager: Imager | None,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._state, self._log, self._submit = state, command_log, submit
        self._sweeper, self._lake, self._imager, self._retry_seconds = sweeper, lake, imager, retry_seconds
        self._epoch: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._started = False
        self.problem: str | None = None
        """Why the purge in progress has failed, as one sentence; it is retried."""

    def start(self, epoch: int | None) -> None:
        self._epoch, self._started = epoch, True
        self.begin_if_asked()

    def begin_if_asked(self) -> None:
        """Called after every batch while the state has purges."""
        if self._started and self._task is None and self._next() is not None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        self._started = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._task = None

    def _next(self) -> str | None:
        return next((one for one, purge in self._state.cold.purges.items() if not purge.has_ended), None)

    async def _run(self) -> None:
        while (purge_id := self._next()) is not None:
            try:
                await self._carry_out(purge_id)
                self.problem = None
            except Exception as error:
                # Repeat the purge from its present stage, whatever the error is.
                self.problem = f"The purge {purge_id} failed in between and is tried again: {error}"
                log.error("purge %s failed in between and is tried again: %s", purge_id, error)
                await asyncio.sleep(self._retry_seconds)

    async def _carry_out(self, purge_id: str) -> None:
        purges = self._state.cold.purges
        if purges[purge_id].stage == DELETING:
            try:
                await self._delete(purge_id)
            except _Forked:
                log.warning("purge %s ends, because one of its streams was forked", purge_id)
                await self._advance(purge_id, REFUSED)
                return
            await self._sweeper.purge()
            await self._advance(purge_id, REWRITING)
        if purges[purge_id].stage == REWRITING:
            if self._lake is not None:
                await self._lake.purge(purges[purge_id].takes)
            await self._advance(purge_id, DROPPING)
        await self._drop()
        await self._advance(purge_id, DONE)
        log.info("purge %s is done", purge_id)

    async def _advance(self, purge_id: str, stage: str, forks: dict[str, int] | None = None) -> None:
        await self._ask(AdvancePurge(purge_id, stage, self._epoch, forks or {}))

    async def _ask(self, command: Command) -> None:
        reply = await ask(self._submit, command)
        if not isinstance(reply, Done):
            raise PurgeInterrupted(str(reply))

    # -- Deleting -----------------------------------------------------------------------------------------------------

    async def _delete(self, purge_id: str) -> None:
        """Delete all streams of a purge, and wait until nothing in the state refers to any of them."""
        while True:
            purge = self._state.cold.purges[purge_id]
            if await scope.are_pinned(self._state, purge):
                others = await scope.forks_of(self._state, purge)
                if others and not purge.with_forks:
                    raise _Forked
                for at in range(0, len(others), FORKS_AT_ONCE):
                    some = {fork.name: fork.incarnation for fork in others[at : at + FORKS_AT_ONCE]}
                    await self._advance(purge_id, DELETING, some)
                if others:
                    continue
            if not await self._end_all(purge) and not scope.is_mentioned(self._state, purge):
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _end_all(self, purge: Purge) -> bool:
        """Delete the streams of a purge, a few at a time; return whether there were any."""
        some: list[Stream] = []
        any_found = False
        async for stream in scope.lives(self._state, purge):
            any_found = True
            some.append(stream)
            if len(some) == DELETED_AT_ONCE:
                await self._end(some)
                some = []
        await self._end(some)
        return any_found

    async def _end(self, lives: Sequence[Stream]) -> None:
        """Delete streams; one that has expired meanwhile is removed as such, and one that is being deleted is left."""
        now = self._state.now
        commands = [
            (Expire if stream.expired(now) else Delete)(stream.name, stream.incarnation)
            for stream in lives
            if not stream.deleted
        ]
        await asyncio.gather(*(ask(self._submit, command) for command in commands))

    # -- Dropping -----------------------------------------------------------------------------------------------------

    async def _drop(self) -> None:
        """Drop all log and all images up to now."""
        missing_bytes, position = self._log.cut(), self._state.position
        await self._ask(ForgetSegments(()))
        while missing_bytes > 0:
            # Hexadecimal, so that no compression makes it shorter than half.
            await self._ask(ForgetSegments((secrets.token_hex(FILLING_BYTES),)))
            missing_bytes -= FILLING_BYTES
        if self._imager is not None:
            while not await self._imager.replace_all(lambda: self._ask(ForgetSegments(()))):
                await asyncio.sleep(POLL_SECONDS)
            while not await self._log.has_forgotten(position):
                await asyncio.sleep(self._retry_seconds)
                await self._imager.drop_old()
