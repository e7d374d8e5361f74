"""A link between a node and a NATS server that a test can cut, stall and slow down: a TCP proxy on the test's loop."""

import asyncio
from contextlib import suppress

CHUNK_BYTES = 64 * 1024


class Link:
    """Forwards connections to one port, unless it is cut (they are closed) or stalled (bytes stop)."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self.port = 0
        self.delay_seconds = 0.0
        self._cut = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self.cut()
        self._server.close()

    def cut(self) -> None:
        """Close every connection, and accept no other."""
        self._cut = True
        for writer in self._writers:
            writer.transport.abort()

    def stall(self) -> None:
        """Let no byte through, as a network that drops every packet does; connections stay open."""
        self._flowing.clear()

    def heal(self) -> None:
        self._cut, self.delay_seconds = False, 0.0
        self._flowing.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            writer.transport.abort()
            return
        try:
            behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, behind_writer}
        self._writers |= pair
        try:
            await asyncio.gather(self._copy(reader, behind_writer), self._copy(behind_reader, writer))
        finally:
            self._writers -= pair
            for one in pair:
                one.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
