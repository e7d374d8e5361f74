"""Sending over a socket that does not block: what does not fit now is kept, in order, and counted."""

import socket
from collections import deque
from collections.abc import Sequence
from itertools import islice

PARTS_MAX = 512
"""How many parts one system call sends; the system takes at most 1,024."""


class Outbox:
    """What is still to be sent over one socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._parts: deque[bytes | memoryview] = deque()
        self.unsent_bytes = 0

    def post(self, parts: Sequence[bytes]) -> None:
        """Send these parts, or keep them."""
        self._parts += parts
        self.unsent_bytes += sum(map(len, parts))
        if len(self._parts) == len(parts):
            self.send()

    def send(self) -> None:
        """Send as much as the socket takes."""
        parts = self._parts
        while parts:
            try:
                sent = self._socket.sendmsg(list(islice(parts, PARTS_MAX)))
            except BlockingIOError:
                return
            self.unsent_bytes -= sent
            while sent:
                first = len(parts[0])
                if sent < first:
                    parts[0] = memoryview(parts[0])[sent:]
                    return
                parts.popleft()
                sent -= first
            while parts and not parts[0]:
                parts.popleft()
