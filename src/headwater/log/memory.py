"""A log that keeps nothing: decided means delivered."""

import asyncio
from collections.abc import Iterator

from headwater.log.seam import Deliver, GiveBack, Reached, Ticket
from headwater.streams.batches import Batch
from headwater.streams.commands import Command


class MemoryLog:
    """Delivers on the next turn of the loop; everything it held ends with the process."""

    has_room = True
    shortage = ""
    shared = False
    outage = None
    size_bytes = 0
    batches_in_flight_max = 1

    def __init__(self, log_id: str, position: int = 0) -> None:
        self.log_id = log_id
        self._position = position

    def replay(self, after: int) -> Iterator[Batch]:
        return iter(())

    def start(self, deliver: Deliver, give_back: GiveBack) -> None:
        self._loop, self._deliver = asyncio.get_running_loop(), deliver

    def append(self, at: int, commands: list[Command], ticket: Ticket) -> None:
        batch = Batch(self._position + 1, at, commands)
        self._position = batch.last_position
        self._loop.call_soon(self._deliver, batch, ticket)

    def barrier(self, reached: Reached) -> None:
        reached(True)

    def mark(self) -> bytes:
        return b""

    def forget(self, upto: int) -> None:
        pass

    def cut(self) -> int:
        return 0

    async def has_forgotten(self, upto: int) -> bool:
        return True

    def close(self) -> None:
        pass
