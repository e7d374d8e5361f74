"""Waiting for a barrier of the log."""

import asyncio
from collections.abc import Callable

from headwater.log.seam import Reached

Barrier = Callable[[Reached], None]
"""`Barriers.barrier`."""


async def reach(barrier: Barrier) -> bool:
    """Wait until all that any node had applied before is applied here; False if the log could not tell in time."""
    found: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def reached(in_time: bool) -> None:
        if not found.done():
            found.set_result(in_time)

    barrier(reached)
    return await found
