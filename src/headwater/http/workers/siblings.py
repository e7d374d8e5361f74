"""Siblings: processes that serve one port together, so that each must be able to answer for all of them.

Each listens on a Unix socket in a folder that they share. Whichever a client asks for metrics, status or usage asks the
others. What a process has counted is also in a file, written before it is told, and its successor starts from there:
counters never fall, although processes die.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

ASK_SECONDS = 2.0
"""How long a sibling may take to answer; one that takes longer is left out, except for what it has counted."""

WAIT_CHECK_SECONDS = 0.01

log = logging.getLogger(__name__)

Answering = Callable[[bytes], Awaitable[bytes]]
"""Answers what a sibling asks: one word."""


class Siblings:
    """One process among several, by their names."""

    def __init__(
        self,
        folder: Path,
        name: str,
        names: Sequence[str],
        others: dict[str, int],
        ask_seconds: float = ASK_SECONDS,
    ) -> None:
        self.name, self.others = name, others
        """Its own name, and processes that serve no clients: what they do, and their ids."""
        self._folder, self._ask_seconds = folder, ask_seconds
        self._names = [one for one in names if one != name]
        self._server: asyncio.Server | None = None

    @property
    def count(self) -> int:
        """How many processes serve together."""
        return len(self._names) + 1

    async def listen(self, answering: Answering) -> None:
        """Answer the others."""
        path = self._folder / self.name
        path.unlink(missing_ok=True)

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                if word := (await reader.readline()).strip():  # Nothing from one that only looks, or has died.
                    writer.write(await answering(word))
                    await writer.drain()
            except OSError as error:
                log.warning("a sibling went away while it was answered: %s", error)
            finally:
                writer.close()

        self._server = await asyncio.start_unix_server(answer, str(path))

    async def wait_for(self, name: str, seconds_max: float) -> None:
        """Wait until another one answers its siblings, but not forever: it may have died."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds_max):
                while not await self._answers(name):
                    await asyncio.sleep(WAIT_CHECK_SECONDS)

    async def _answers(self, name: str) -> bool:
        try:
            _, writer = await asyncio.open_unix_connection(str(self._folder / name))
        except OSError:
            return False
        writer.close()
        return True

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def ask(self, word: bytes) -> list[tuple[str, bytes | None]]:
        """What every other one says; None for one that does not answer."""
        answers = await asyncio.gather(*(self._ask(name, word) for name in self._names))
        return list(zip(self._names, answers, strict=True))

    async def _ask(self, name: str, word: bytes) -> bytes | None:
        try:
            async with asyncio.timeout(self._ask_seconds):
                reader, writer = await asyncio.open_unix_connection(str(self._folder / name))
                try:
                    writer.write(word + b"\n")
                    return await reader.read() or None
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return None

    # -- What was counted -----------------------------------------------------------------------------------------

    def save(self, counted: bytes) -> None:
        """Save the counts of this process before it reports them; on a full disk the last saved ones stay."""
        path = self._counted(self.name)
        temporary = path.with_suffix(".new")
        try:
            temporary.write_bytes(counted)
            os.replace(temporary, path)
        except OSError as error:
            log.warning("counters cannot be kept, so they fall if this process dies: %s", error)

    def saved(self, name: str | None = None) -> bytes | None:
        """What a process kept last, the own predecessor if none is named."""
        with suppress(FileNotFoundError):
            return self._counted(name or self.name).read_bytes()
        return None

    def _counted(self, name: str) -> Path:
        return self._folder / f"{name}.counted"
