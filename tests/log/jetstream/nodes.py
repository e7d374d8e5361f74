"""Nodes on a log in JetStream, without the rest of a server: what each was delivered, and what each was asked."""

import asyncio
from collections.abc import Callable
from itertools import count

from headwater.log.jetstream.identity import establish
from headwater.log.jetstream.log import JetStreamLog
from headwater.log.jetstream.streams import ClusterConfig
from headwater.log.seam import Ticket
from headwater.node.clock import Clock
from headwater.storage.memory import MemoryStore
from headwater.storage.store import Store
from headwater.streams.batches import Batch
from headwater.streams.commands import Command
from headwater.testing.nats import NatsServers

LOG_BYTES_MAX = 8 * 1024 * 1024

_numbers = count(1)


class Cluster:
    """One log, on NATS servers that other logs share."""

    def __init__(self, servers: NatsServers, store: Store | None = None) -> None:
        self.servers, self.store = servers, store or MemoryStore()
        self.name = f"t{next(_numbers)}"
        self._nodes = count(1)

    @property
    def stream(self) -> str:
        return self.config("n").stream

    def config(self, node: str) -> ClusterConfig:
        return ClusterConfig(self.servers.urls, self.name, 0, node, f"{node}#{next(_numbers)}")

    def open(
        self,
        mark: bytes = b"",
        *,
        node: str = "",
        clock: Callable[[], int] | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
        log_bytes_max: int = LOG_BYTES_MAX,
    ) -> JetStreamLog:
        """One more proposer."""
        config = self.config(node or f"n{next(self._nodes)}")
        established = establish(config, self.store, log_bytes_max=log_bytes_max)
        return JetStreamLog(config, established, mark, clock=clock or Clock().now, on_failure=on_failure or fail)


def fail(error: BaseException) -> None:
    raise AssertionError("the log failed") from error


class Node:
    """A proposer and everything that it was delivered."""

    def __init__(self, log: JetStreamLog) -> None:
        self.log = log
        self.batches: list[Batch] = list(log.replay(0))
        self.tickets: list[Ticket | None] = [None] * len(self.batches)
        self.given_back: list[Ticket] = []
        self._next_ticket = count(1)
        self._waiting: dict[Ticket, asyncio.Future[None]] = {}

    @property
    def member(self) -> tuple[str, str]:
        """Its name and session."""
        return self.log.config.node, self.log.config.session

    def start(self) -> "Node":
        self.log.start(self._receive, self.given_back.append)
        return self

    def _receive(self, batch: Batch, ticket: Ticket | None) -> None:
        self.batches.append(batch)
        self.tickets.append(ticket)
        if ticket is not None:
            self._waiting.pop(ticket).set_result(None)

    def append(self, commands: list[Command], at: int | None = None) -> "asyncio.Future[None]":
        """Append a batch; the future is done when it was delivered."""
        ticket = next(self._next_ticket)
        self._waiting[ticket] = asyncio.get_running_loop().create_future()
        waiting = self._waiting[ticket]
        self.log.append(Clock().now() if at is None else at, commands, ticket)
        return waiting

    async def barrier(self) -> bool:
        reached: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.log.barrier(reached.set_result)
        return await reached

    async def stop(self) -> None:
        self.log.close()
        assert self.log.closing is not None
        await self.log.closing


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)
