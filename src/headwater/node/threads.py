"""Work in a thread, for the event loop to wait for."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(threads: ThreadPoolExecutor, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Run something in one of these threads, and wait for its result."""
    return await asyncio.get_running_loop().run_in_executor(threads, lambda: work(*arguments, **named))
