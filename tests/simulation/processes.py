"""Processes on virtual time: each has its own event loop, and one scheduler runs them all, one step at a time.

Nothing here waits. When nothing is left to do now, the clock jumps to the next timer. A process can be killed between
any two steps, and paused: then everything that is due for it waits in order, as on a machine that is suspended.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from itertools import count
from random import Random
from typing import Any, cast

EPOCH_SECONDS = 1_700_000_000.0
"""What wall clocks say when a schedule begins."""
STEPS_MAX = 2_000_000
"""Far more than a schedule takes: one that goes beyond has begun to spin."""


class ProcessEnded(BaseException):
    """A process called `os._exit`."""


class Spinning(Exception):
    """A schedule does not come to its end."""


class Scheduler:
    """The virtual clock, and everything that is due on it."""

    def __init__(self, random: Random) -> None:
        self.now = 0.0
        self.random = random
        self.current: Process | None = None
        self.steps = 0
        self._numbers = count()
        self._ready: deque[tuple[Process, asyncio.Handle]] = deque()
        self._timers: list[tuple[float, int, Process, asyncio.Handle]] = []

    def monotonic(self) -> float:
        return self.now

    def add(self, process: "Process", handle: asyncio.Handle) -> None:
        self._ready.append((process, handle))

    def add_timer(self, when: float, process: "Process", handle: asyncio.Handle) -> None:
        heapq.heappush(self._timers, (when, next(self._numbers), process, handle))

    def run(self, main: "asyncio.Future[Any]") -> None:
        """Run every process until a future is done."""
        ready, timers = self._ready, self._timers
        while not main.done():
            if ready:
                process, handle = ready.popleft()
            else:
                when, _, process, handle = heapq.heappop(timers)
                self.now = max(self.now, when)
            if not (process.dead or handle.cancelled()):
                self.steps += 1
                process.run(handle)
            if self.steps > STEPS_MAX:
                raise Spinning(f"A schedule takes more than {STEPS_MAX} steps.")


class Process:
    """An event loop that lives and dies like a process. It has what asyncio and nodes use of a loop, and no more."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._loop = cast(asyncio.AbstractEventLoop, self)
        self._scheduler, self.name = scheduler, name
        self.dead = False
        self.clock_skew_seconds = 0.0
        self.thread_seconds_max = 0.005
        """How long work in a thread may take until it begins, and until its end is noticed."""
        self.failures: list[str] = []
        """Exceptions that nothing handled."""
        self.on_death: list[Callable[[], None]] = []
        self._stalled: deque[asyncio.Handle] | None = None
        self._tasks: list[asyncio.Task[Any]] = []

    # -- What a schedule does to it -----------------------------------------------------------------------------------

    def run(self, handle: asyncio.Handle) -> None:
        """Run one step, unless the process is paused."""
        if self._stalled is not None:
            self._stalled.append(handle)
            return
        scheduler = self._scheduler
        scheduler.current = self
        asyncio._set_running_loop(self._loop)
        try:
            handle._run()
        finally:
            asyncio._set_running_loop(None)
            scheduler.current = None

    @property
    def paused(self) -> bool:
        return self._stalled is not None

    def pause(self) -> None:
        if self._stalled is None:
            self._stalled = deque()

    def resume(self) -> None:
        stalled, self._stalled = self._stalled or deque(), None
        for handle in stalled:
            self._scheduler.add(self, handle)

    def kill(self) -> None:
        """End at once: no step of this process is run any more."""
        if not self.dead:
            self.dead = True
            for task in self._tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            for told in self.on_death:
                told()

    def clock_us(self) -> int:
        """The wall clock of the machine that it runs on."""
        return int((EPOCH_SECONDS + self._scheduler.now + self.clock_skew_seconds) * 1e6)

    # -- What asyncio asks of a loop ----------------------------------------------------------------------------------

    def time(self) -> float:
        return self._scheduler.now

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._loop, context)
        self._scheduler.add(self, handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._scheduler.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self._loop, context)
        self._scheduler.add_timer(when, self, handle)
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self._loop)

    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> "asyncio.Task[Any]":
        task = asyncio.Task(coro, loop=self._loop, name=name, context=context)
        self._tasks.append(task)
        return task

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        """Work after a while, and say so after another: what happens meanwhile happens beside the thread."""
        done = self.create_future()
        random, most = self._scheduler.random, self.thread_seconds_max

        def work() -> None:
            try:
                result, error = func(*args), None
            except Exception as raised:
                result, error = None, raised
            self.call_later(random.random() * most, end, result, error)

        def end(result: Any, error: Exception | None) -> None:
            if not done.cancelled():
                if error is None:
                    done.set_result(result)
                else:
                    done.set_exception(error)

        self.call_later(random.random() * most, work)
        return done

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, ProcessEnded) and not self.dead:
            self.failures.append(f"{self.name}: {context.get('message')}: {error!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self.dead

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass
