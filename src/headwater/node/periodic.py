"""Work that a node repeats in the background."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)


class Periodic:
    """Runs the work, pauses, and runs it again, until stopped. A failure is logged, and the work is tried again."""

    def __init__(
        self,
        work: Callable[[], Awaitable[None]],
        pause_seconds: float,
        failure: str,
        *,
        expected: tuple[type[Exception], ...] = (),
    ) -> None:
        """`failure` is what the log says; a failure that is not `expected` is a bug, logged with its traceback."""
        self._work, self._pause_seconds, self._failure, self._expected = work, pause_seconds, failure, expected
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._repeat())

    async def stop(self) -> None:
        """Cancel the work, and wait until it has ended."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _repeat(self) -> None:
        while True:
            try:
                await self._work()
            except Exception as error:
                log.error("%s: %s", self._failure, error, exc_info=not isinstance(error, self._expected))
            await asyncio.sleep(self._pause_seconds)
