"""Pace: lets long work on the event loop yield regularly."""

import asyncio
from time import monotonic

TURN_SECONDS = 0.002
"""How long work may hold the loop before it yields."""


class Pace:
    """Work that consists of small steps calls `rest` between them."""

    def __init__(self) -> None:
        self._until = monotonic() + TURN_SECONDS

    async def rest(self) -> None:
        """Yield to the loop if this turn has lasted long enough."""
        if monotonic() > self._until:
            await asyncio.sleep(0)
            self._until = monotonic() + TURN_SECONDS
