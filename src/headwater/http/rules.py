"""Rules: the access file is read again when it, or a file that it names, has changed. A bad one changes nothing."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from headwater.access.identities import Moment
from headwater.access.policy import PolicyError, load
from headwater.http.gates import Guard

LOOK_SECONDS = 5.0

log = logging.getLogger(__name__)

Signature = tuple[tuple[int, int, int] | None, ...]
"""What changes when a file is written or replaced; None for a file that is not there."""


class Rules:
    """Keeps a guard's rules up to date."""

    def __init__(
        self, guard: Guard, adopted: Callable[[dict[str, list[str]]], None], look_seconds: float = LOOK_SECONDS
    ) -> None:
        self._guard, self._adopted, self._look_seconds = guard, adopted, look_seconds
        self._asked = asyncio.Event()
        self._seen = _signature(guard.policy.files)

    def ask(self) -> None:
        """Look at the files now."""
        self._asked.set()

    async def watch(self) -> None:
        """Look at the files every few seconds, in a thread, and fetch the keys of issuers when they are due."""
        loop = asyncio.get_running_loop()
        while True:
            self._guard.policy.refresh(Moment(time.time(), time.monotonic()))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), self._look_seconds)
            asked = self._asked.is_set()
            self._asked.clear()
            seen = await loop.run_in_executor(None, _signature, self._guard.policy.files)
            if asked or seen != self._seen:
                self._seen = seen
                await self._reload()

    async def _reload(self) -> None:
        before = self._guard.policy
        try:
            policy = await asyncio.get_running_loop().run_in_executor(None, load, before.path, before)
        except PolicyError as error:
            self._guard.reload_failures += 1
            log.error("the access rules stay as they were: %s", error)
            return
        self._seen = _signature(policy.files)
        if self._guard.policy is before:
            self._adopted(self._guard.adopt(policy))


def _signature(files: Sequence[Path]) -> Signature:
    return tuple(map(_look_at, files))


def _look_at(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
