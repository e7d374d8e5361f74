"""How much of what was written to a connection its client has not taken yet."""

import asyncio
import fcntl
import struct
import termios

from headwater.http.wire.budgets import Budget

_NUMBER = struct.Struct("i")
_ZERO = _NUMBER.pack(0)


def unsent_bytes(transport: asyncio.Transport) -> int:
    """What waits in the transport and in the system.

    The system's part matters: it takes some of the transport's megabytes only after a good part of its own has left, so
    for a slow client the transport alone would not change for minutes.
    """
    descriptor = transport.get_extra_info("socket").fileno()
    in_system = _NUMBER.unpack(fcntl.ioctl(descriptor, termios.TIOCOUTQ, _ZERO))[0]
    return transport.get_write_buffer_size() + int(in_system)


class Unsent:
    """What a connection holds while its client does not read, taken from a budget; and whether it becomes less."""

    __slots__ = ("_budget", "_held_bytes", "_unsent_bytes")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._held_bytes = self._unsent_bytes = 0

    def hold(self, transport: asyncio.Transport) -> None:
        """The transport takes no more for now."""
        self._held_bytes = transport.get_write_buffer_size()
        self._budget.use(self._held_bytes)
        self._unsent_bytes = unsent_bytes(transport)

    def watch(self, transport: asyncio.Transport) -> bool:
        """Whether the transport has something to send, though it takes more; if so, see whether it becomes less."""
        if not transport.get_write_buffer_size():
            return False
        self._unsent_bytes = unsent_bytes(transport)
        return True

    def add(self, size: int) -> None:
        """More was written meanwhile."""
        self._unsent_bytes += size

    def falls(self, transport: asyncio.Transport) -> bool:
        """Whether the client has taken some of it since the last look."""
        before, self._unsent_bytes = self._unsent_bytes, unsent_bytes(transport)
        return self._unsent_bytes < before

    def release(self) -> None:
        """The transport takes more again, or the connection is over. Idempotent."""
        held_bytes, self._held_bytes = self._held_bytes, 0
        if held_bytes:
            self._budget.give_back(held_bytes)
