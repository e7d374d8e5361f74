"""Clients of a cluster under torture: writers with and without producers, and a check for stale reads after each."""

import asyncio
import random
from collections.abc import Sequence

import httpx2

from headwater.protocol.refusals import Code

from .ledger import Fate, Ledger

REQUEST_SECONDS = 25.0
PRODUCER_SECONDS = 2.0
"""How long a request may take; a producer tries another node earlier, because it may repeat what is in doubt."""
RETRY_SECONDS = 0.05
CHECK_SECONDS = 8.0
STALE_SHARE = 0.3
"""How often an acknowledgement is followed by a read on another node."""

_FAILURES = (httpx2.TransportError, httpx2.StreamError)


class TortureClients:
    """So many writers of each kind, each with a stream of its own, until they are told to stop."""

    def __init__(self, urls: Sequence[str], ledger: Ledger, seed: int) -> None:
        self._urls, self._ledger, self._random = urls, ledger, random.Random(seed)
        limits = httpx2.Limits(max_connections=400, max_keepalive_connections=200)
        self._http = httpx2.AsyncClient(timeout=REQUEST_SECONDS, limits=limits)
        self.stopping = False

    async def run(self, producers: int, plain: int) -> None:
        writers = [self._produce(f"torture/producer-{number}") for number in range(producers)]
        writers += [self._append_plainly(f"torture/plain-{number}") for number in range(plain)]
        try:
            await asyncio.gather(*writers)
        finally:
            await self._http.aclose()

    def _node(self) -> str:
        return self._random.choice(self._urls)

    async def _create(self, stream: str) -> None:
        while not self.stopping:
            try:
                url = f"{self._node()}/v1/stream/{stream}"
                answer = await self._http.put(url, headers={"Content-Type": "text/plain"})
            except _FAILURES:
                answer = None
            if answer is not None and answer.status_code in (200, 201):
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _produce(self, stream: str) -> None:
        """Each message is repeated on any node until it is acknowledged: exactly once, whatever happens."""
        await self._create(stream)
        number = 0
        while not self.stopping:
            message = f"{number};".encode()
            self._ledger.record(stream, message, Fate.UNKNOWN)
            producer = {"Producer-Id": stream, "Producer-Epoch": "0", "Producer-Seq": str(number)}
            while not self.stopping:
                answer = await self._post(stream, message, producer, PRODUCER_SECONDS)
                if answer is None or answer.status_code == 503:
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                if answer.status_code not in (200, 204):
                    self._ledger.problems.append(f"{stream}: {answer.status_code} {answer.text[:200]}")
                    return
                self._ledger.record(stream, message, Fate.ACKNOWLEDGED)
                await self._check(stream, answer.headers["Stream-Next-Offset"])
                break
            number += 1

    async def _append_plainly(self, stream: str) -> None:
        """Each message is sent once; what its client is told must be true."""
        await self._create(stream)
        number = 0
        while not self.stopping:
            message = f"{number};".encode()
            answer = await self._post(stream, message, {})
            if answer is None or (answer.status_code == 503 and answer.json()["code"] == Code.OUTCOME_UNKNOWN):
                self._ledger.record(stream, message, Fate.UNKNOWN)
                await asyncio.sleep(RETRY_SECONDS)
            elif answer.status_code == 503:
                self._ledger.record(stream, message, Fate.REFUSED)
                await asyncio.sleep(RETRY_SECONDS)
            elif answer.status_code in (200, 204):
                self._ledger.record(stream, message, Fate.ACKNOWLEDGED)
                await self._check(stream, answer.headers["Stream-Next-Offset"])
            else:
                self._ledger.problems.append(f"{stream}: {answer.status_code} {answer.text[:200]}")
                return
            number += 1

    async def _post(
        self, stream: str, message: bytes, more: dict[str, str], seconds: float = REQUEST_SECONDS
    ) -> httpx2.Response | None:
        url, fields = f"{self._node()}/v1/stream/{stream}", {"Content-Type": "text/plain", **more}
        try:
            return await self._http.post(url, content=message, headers=fields, timeout=seconds)
        except _FAILURES:
            return None

    async def _check(self, stream: str, offset: str) -> None:
        """A read that begins after an acknowledgement sees it, on any node."""
        if self._random.random() > STALE_SHARE:
            return
        node = self._node()
        try:
            answer = await self._http.head(f"{node}/v1/stream/{stream}", timeout=CHECK_SECONDS)
        except _FAILURES:
            return
        if answer.status_code == 503:
            return
        self._ledger.fresh_reads += 1
        if answer.status_code != 200 or answer.headers["Stream-Next-Offset"] < offset:
            seen = answer.headers.get("Stream-Next-Offset", answer.status_code)
            self._ledger.stale.append(f"{stream} on {node}: {seen} after {offset}")
