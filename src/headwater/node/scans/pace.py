"""Pace: long work on the event loop gives others a turn now and then."""

import asyncio
from time import monotonic

TURN_SECONDS = 0.002
"""How long a piece of work may hold the loop before others get a turn."""


class Pace:
    """Whoever works in small steps calls `rest` between them."""

    def __init__(self) -> None:
        self._until = monotonic() + TURN_SECONDS

    async def rest(self) -> None:
        """Let others work, if this turn has been long enough."""
        if monotonic() > self._until:
            await asyncio.sleep(0)
            self._until = monotonic() + TURN_SECONDS
