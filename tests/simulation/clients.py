"""Clients of a simulated cluster: they write, read and fork on any node, and note what they were told."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

from headwater.node.cluster.shared_shard import STALE
from headwater.node.committer import Done
from headwater.node.node import Node
from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.producers import Producer
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands import Command
from headwater.streams.commands.forks import Ancestry
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.forking import ForkRequest
from headwater.streams.queries import Head, Read
from headwater.streams.replies import Page, Reply

from .cluster import Cluster, Server
from .history import Answer, Lost, Operation
from .processes import Process, Scheduler

TEXT = "text/plain"
PATIENCE_SECONDS = 5.0
NAMES = [f"b/s{number}" for number in range(4)]

Ask = Callable[[Node, Done], None]


def head(name: str, node: Node, done: Done) -> None:
    """HEAD, as the HTTP surface asks it: behind a barrier."""
    _when_fresh(node, done, lambda: done(node.describe(Head(name))))


def read(name: str, offset: int, node: Node, done: Done) -> None:
    """GET, as the HTTP surface asks it: behind a barrier unless the page ends before the tail."""
    query = Read(name, offset)
    page = node.read_hot(query)
    if isinstance(page, Page) and not page.up_to_date:
        done(page)
    else:
        _when_fresh(node, done, lambda: _finish(node.read(query), done))


def fork(request: ForkRequest, node: Node, done: Done) -> None:
    _when_fresh(node, done, lambda: node.fork(request, done))


def write(command: Command, node: Node, done: Done) -> None:
    node.submit(command, done)


def _finish(answer: "Reply | asyncio.Task[Reply]", done: Done) -> None:
    if isinstance(answer, asyncio.Task):
        answer.add_done_callback(lambda task: None if task.cancelled() else done(task.result()))
    else:
        done(answer)


def _when_fresh(node: Node, done: Done, work: Callable[[], None]) -> None:
    def reached(fresh: bool) -> None:
        if fresh:
            work()
        else:
            done(Refusal(Code.LOG_UNAVAILABLE, node.outage or STALE))

    node.barrier(reached)


class Clients:
    """All clients of a schedule, on one machine beside the cluster."""

    def __init__(self, scheduler: Scheduler, process: Process, cluster: Cluster, random: Random) -> None:
        self._scheduler, self._process, self._cluster, self.random = scheduler, process, cluster, random
        self.operations: list[Operation] = []
        self.stopping = False
        self._numbers = 0
        self.produced: dict[str, list[bytes]] = {}
        """What each producer has had acknowledged, in order."""

    # -- One request --------------------------------------------------------------------------------------------------

    async def ask(self, server: Server, ask: Ask, asked: object, name: str, *, repeats: bool = False) -> Answer:
        """Send a request to a node and wait for the answer; note both."""
        began, latency = self._scheduler.now, 0.0001 + 0.001 * self.random.random()
        answered: asyncio.Future[Answer] = self._process.create_future()

        def settle(answer: Answer) -> None:
            if not answered.done():
                answered.set_result(answer)

        def done(reply: Reply) -> None:
            self._process.call_later(latency, settle, reply)

        def begin() -> None:
            if server.node is not None:
                ask(server.node, done)

        def lose() -> None:
            self._process.call_later(latency, settle, Lost())

        if server.process.dead:
            lose()
        server.process.on_death.append(lose)
        server.process.call_later(latency, begin)
        self._process.call_later(PATIENCE_SECONDS, settle, Lost())
        answer = await answered
        server.process.on_death.remove(lose)
        self.operations.append(Operation(asked, name, server.name, began, self._scheduler.now, answer, repeats))
        return answer

    async def write(self, server: Server, command: Append | Create | Delete, *, repeats: bool = False) -> Answer:
        return await self.ask(server, partial(write, command), command, command.name, repeats=repeats)

    async def look(self, server: Server, name: str) -> Answer:
        """Ask what a stream is, one way or another."""
        if self.random.random() < 0.6:
            return await self.ask(server, partial(head, name), name, name)
        return await self.ask(server, partial(read, name, 0), name, name)

    # -- What they do -------------------------------------------------------------------------------------------------

    async def pick(self) -> Server:
        """Some node that runs."""
        while not (living := self._cluster.living):
            await asyncio.sleep(0.1)
        serving = [server for server in living if server.serves]
        return self.random.choice(serving if serving and self.random.random() < 0.9 else living)

    def payload(self) -> bytes:
        """Bytes that no other write has; some are so long that they are cut into parts."""
        self._numbers += 1
        unique = b"%d;" % self._numbers
        return unique + b"." * self.random.randrange(100, 900) if self.random.random() < 0.15 else unique

    async def pause(self) -> None:
        await asyncio.sleep(self.random.random() * 0.25)

    async def run_writer(self) -> None:
        """Write to streams that others create and delete meanwhile, and look at them on other nodes."""
        while not self.stopping:
            server, name = await self.pick(), self.random.choice(NAMES)
            answer = await self.write(server, self._some_command(name))
            if self.random.random() < 0.7 and not isinstance(answer, Lost | Refusal):
                await self.look(await self.pick(), name)
            await self.pause()

    def _some_command(self, name: str) -> Append | Create | Delete:
        chance = self.random.random()
        if chance < 0.7:
            return Append(name, self.payload(), content_type=TEXT, close=chance < 0.02)
        return Delete(name) if chance < 0.76 else Create(name, TEXT, payload=self.payload())

    async def run_pipeliner(self) -> None:
        """Several writes on one connection to one node, without waiting for the answers: they keep their order."""
        while not self.stopping:
            server, name = await self.pick(), self.random.choice(NAMES)
            commands = [self._some_command(name) for _ in range(self.random.randrange(2, 6))]
            await asyncio.gather(*(self.write(server, command) for command in commands))
            await self.pause()

    async def run_reader(self) -> None:
        while not self.stopping:
            await self.look(await self.pick(), self.random.choice(NAMES))
            await self.pause()

    async def run_forker(self) -> None:
        """Fork streams, some for a short time only, and delete the forks."""
        number = 0
        while not self.stopping:
            await asyncio.sleep(self.random.random() * 2)
            number += 1
            name, source = f"b/f{number}", self.random.choice(NAMES)
            lifetime = Lifetime(ttl_seconds=1) if self.random.random() < 0.2 else None
            request = ForkRequest(name, Ancestry(source, None, 0, None, lifetime), False, self.payload())
            await self.ask(await self.pick(), partial(fork, request), request, name)
            if lifetime is None and self.random.random() < 0.5:
                await self.write(await self.pick(), Delete(name))

    async def run_producer(self, name: str) -> None:
        """Write a stream exactly once: repeat every request on any node until its outcome is known."""
        first = self.payload()
        await self._until_known(Create(name, TEXT, payload=first))
        acknowledged = self.produced[name] = [first]
        while not self.stopping:
            payload = self.payload()
            command = Append(name, payload, content_type=TEXT, producer=Producer(name, 0, len(acknowledged) - 1))
            await self._until_known(command)
            acknowledged.append(payload)
            if self.random.random() < 0.5:
                await self.look(await self.pick(), name)
            await self.pause()

    async def _until_known(self, command: Create | Append) -> None:
        while True:
            answer = await self.write(await self.pick(), command, repeats=True)
            if isinstance(answer, Lost):
                continue
            if isinstance(answer, Refusal) and answer.code in (
                Code.OUTCOME_UNKNOWN,
                Code.LOG_UNAVAILABLE,
                Code.OVERLOADED,
            ):
                await self.pause()
                continue
            return

    def workers(self) -> list[Coroutine[Any, Any, None]]:
        """Everything that the clients do, for as long as they are not told to stop."""
        return [
            self.run_writer(),
            self.run_writer(),
            self.run_pipeliner(),
            self.run_reader(),
            self.run_forker(),
            self.run_producer("b/p0"),
            self.run_producer("c/p1"),
        ]
