"""Rules: the access file is read again when it, or a file that it names, has changed. A bad one changes nothing.

A file that changes is read once it rests, because half of it may be a valid file with other rules. One that is bad is
looked at again soon: it may have been read while it was written.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from headwater.access.document import Stamp, stamp_of
from headwater.access.identities import Moment
from headwater.access.policy import Changes, PolicyError, reload
from headwater.http.guard.gates import Guard

LOOK_SECONDS = 5.0
REST_SECONDS = 0.25
"""For how long files must not have changed before they are read."""
RESTS_MAX = 20
"""How often to wait for that; files that never rest are read all the same."""
RETRY_SECONDS = 0.5
"""When bad files are looked at again; twice as long each time, up to the usual interval."""

_FAILURES_COUNTED = 10

log = logging.getLogger(__name__)

Stamps = dict[Path, Stamp | None]
"""How files look; None for one that is not there."""


class Rules:
    """Keeps a guard's rules up to date."""

    def __init__(self, guard: Guard, adopted: Callable[[Changes], None], look_seconds: float = LOOK_SECONDS) -> None:
        self._guard, self._adopted, self._look_seconds = guard, adopted, look_seconds
        self._asked = asyncio.Event()
        self._problem = ""
        """Why the rules could not be loaded the last time; empty if they were."""
        self._failures = 0
        """How often in a row they could not be loaded."""

    def ask(self) -> None:
        """Look at the files now."""
        self._asked.set()

    async def watch(self) -> None:
        """Look at the files every few seconds, in a thread, and fetch the keys of issuers when they are due."""
        while True:
            self._guard.policy.refresh(Moment(time.time(), time.monotonic()))
            pause_seconds = self._look_seconds
            if self._failures:
                pause_seconds = min(pause_seconds, RETRY_SECONDS * 2 ** (self._failures - 1))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), pause_seconds)
            asked = self._asked.is_set()
            self._asked.clear()
            seen = await self._look()
            if asked:
                self._problem = ""  # An explicit reload reports a known problem again.
            elif seen != self._guard.policy.files:
                seen = await self._rested(seen)
            # What failed is tried again: the file may be right, and a file that it names may have been in the way.
            if asked or self._problem or seen != self._guard.policy.files:
                await self._reload()

    async def _look(self) -> Stamps:
        return await asyncio.get_running_loop().run_in_executor(None, _stamps_of, tuple(self._guard.policy.files))

    async def _rested(self, seen: Stamps) -> Stamps:
        """The stamps of the files once they have stopped changing."""
        for _ in range(RESTS_MAX):
            await asyncio.sleep(REST_SECONDS)
            before, seen = seen, await self._look()
            if seen == before:
                break
        return seen

    async def _reload(self) -> None:
        """Load the files; what changes while they are read is found the next time."""
        before, number = self._guard.policy, self._guard.begin_loading()
        try:
            loaded = await asyncio.get_running_loop().run_in_executor(None, reload, before)
        except PolicyError as error:
            self._fail(str(error))
        except Exception as error:
            # Whatever it is, the next file must be looked at.
            self._fail(f"{type(error).__name__}: {error}")
        else:
            self._problem, self._failures = "", 0
            self._guard.adopt(loaded.policy, number)
            self._adopted(loaded.changes)

    def _fail(self, problem: str) -> None:
        """Report a problem once, however often it is met."""
        self._failures = min(self._failures + 1, _FAILURES_COUNTED)
        if problem != self._problem:
            self._problem = problem
            self._guard.reload_failures += 1
            log.error("the access rules stay as they were: %s", problem)


def _stamps_of(files: Sequence[Path]) -> Stamps:
    return {path: stamp_of(path) for path in files}
