"""The imager: takes an image when the log has grown enough, a slice per turn of the loop, and drops older log."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from headwater.log.images.files import Images, ImageWriter
from headwater.log.seam import Trimming
from headwater.streams.images import Walk
from headwater.streams.state import State

STOP_CHECK_SECONDS = 0.1
"""How soon an image that waits for a command notices that the server is stopping."""

log = logging.getLogger(__name__)


class ImageLimits(NamedTuple):
    """When an image is due, and how it shares the loop and the disk."""

    log_bytes: int
    """How much log makes an image due."""
    slice_seconds: float = 0.001
    """How long encoding may hold the loop before other work gets a turn."""
    retry_seconds: float = 10.0
    """How long the disk is left alone after an image that failed, or that freed no space on a full disk."""


class _Stopping(Exception):
    """The server is stopping; the image is left unfinished."""


class Imager:
    """Takes one image at a time.

    An image is due when the log since the last one exceeds both a limit and the size of that image, so that log and
    images together write at most twice as much as the log. On a full disk it is due whenever anything was logged: the
    commands that free space do so only once an image lets the log be dropped. The log is dropped before the older of
    two images, so on a full disk a second one follows, for which a command without effect moves the position on.
    """

    def __init__(
        self,
        state: State,
        command_log: Trimming,
        images: Images,
        limits: ImageLimits,
        move_on: Callable[[], None],
    ) -> None:
        self._state, self._log, self._images, self._limits = state, command_log, images, limits
        self._move_on = move_on
        """Submits a command without effect."""
        self._moved_on_to = -1
        """The position that the last such command was meant to have."""
        self._timer: asyncio.TimerHandle | None = None
        self._image_bytes = 0
        self._log_mark = 0
        self._not_before_seconds = 0.0
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._thread = ThreadPoolExecutor(1, "imager")

    def start(self) -> None:
        """From now on look after a full disk now and then: while everything is refused, no batch brings it to mind."""
        self._timer = asyncio.get_running_loop().call_later(self._limits.retry_seconds, self.start)
        if self._log.has_room or self._task is not None:
            return
        if self._log.size_bytes == self._log_mark and self._state.position != self._moved_on_to:
            self._moved_on_to = self._state.position + 1
            self._move_on()
        else:
            self.begin_if_due()

    def begin_if_due(self) -> None:
        """Called after every batch: one subtraction and two comparisons."""
        grown_bytes = self._log.size_bytes - self._log_mark
        due = grown_bytes > max(self._limits.log_bytes, self._image_bytes) or not self._log.has_room
        if due and grown_bytes and self._task is None and time.monotonic() >= self._not_before_seconds:
            if self._is_walked:
                return
            mark = self._log.size_bytes
            self._task = asyncio.get_running_loop().create_task(self._take())
            self._task.add_done_callback(lambda task: self._taken(task, mark))

    def _taken(self, task: asyncio.Task[None], mark: int) -> None:
        self._task = None
        error = task.exception()
        if error is None:
            self._log_mark = mark
        elif not isinstance(error, _Stopping):
            log.error("no image was taken, so the journal keeps growing until the next attempt: %s", error)
        if error is not None or not self._log.has_room:
            self._not_before_seconds = time.monotonic() + self._limits.retry_seconds

    async def stop(self) -> None:
        """Stop at the next slice."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            await asyncio.wait([self._task])
        self._thread.shutdown()

    async def _take(self) -> None:
        await self.write()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop_old)

    async def replace_all(self, move_on: Callable[[], Awaitable[None]]) -> bool:
        """Take two images one after the other, and drop all others and the log before them; False if not now.

        `move_on` has a command without effect decided, so that the second has another position.
        """
        if self._task is not None or self._is_walked:
            return False
        mark = self._log.size_bytes
        task = self._task = asyncio.get_running_loop().create_task(self._take_two(move_on))
        task.add_done_callback(lambda task: self._taken(task, mark))
        await asyncio.wait([task])
        task.result()
        return True

    async def _take_two(self, move_on: Callable[[], Awaitable[None]]) -> None:
        await self.write()
        moving = asyncio.ensure_future(move_on())
        while not moving.done():
            await asyncio.wait([moving], timeout=STOP_CHECK_SECONDS)
            if self._stopping:
                # The log may be away, and the command be decided much later.
                moving.cancel()
                raise _Stopping
        moving.result()
        while self._is_walked:
            await asyncio.sleep(self._limits.slice_seconds)
        await self.write()
        await self.drop_old()

    async def drop_old(self) -> None:
        """Drop all images but the newest two, damaged ones too, and the log before them."""
        work = partial(self._drop_old, damaged=True)
        await asyncio.get_running_loop().run_in_executor(self._thread, work)

    @property
    def _is_walked(self) -> bool:
        """Whether the state is being hashed, or another image is being taken."""
        return any(isinstance(observer, Walk) for observer in self._state.observers)

    async def write(self) -> int:
        """Write an image of the state now, and return its position."""
        loop = asyncio.get_running_loop()
        started = time.monotonic()
        # In one turn of the loop, so that the mark is that of the walk's position.
        walk, mark = Walk(self._state), self._log.mark()
        try:
            writer = await loop.run_in_executor(self._thread, self._images.begin, walk.position, mark)
            try:
                await self._write(walk, writer)
            except Exception:
                await loop.run_in_executor(self._thread, writer.abandon)
                raise
        finally:
            walk.end()
        self._image_bytes = writer.size_bytes
        seconds = time.monotonic() - started
        log.info("image of %d bytes at position %d in %.1f s", writer.size_bytes, writer.position, seconds)
        return writer.position

    async def _write(self, walk: Walk, writer: ImageWriter) -> None:
        loop = asyncio.get_running_loop()
        pieces = walk.pieces()
        finished = False
        while not finished:
            if self._stopping:
                raise _Stopping
            turn: list[bytes] = []
            until = time.monotonic() + self._limits.slice_seconds
            for piece in pieces:
                turn.append(piece)
                if time.monotonic() > until:
                    break
            else:
                finished = True
            await loop.run_in_executor(self._thread, writer.write, turn)
        walk.end()
        await loop.run_in_executor(self._thread, writer.finish)

    def _drop_old(self, *, damaged: bool = False) -> None:
        self._log.forget(self._images.drop_old(damaged=damaged))
