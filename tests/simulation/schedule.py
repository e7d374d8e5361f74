"""One schedule: a cluster, its clients and its faults, all chosen by one seed, and what must be true in the end."""

import asyncio
import logging
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from typing import Any, NamedTuple
from unittest import mock

from headwater.log.jetstream import barriers, judging, publishing, room
from headwater.log.jetstream import log as jetstream_log
from headwater.log.jetstream.streams import LogBehind
from headwater.node import committer
from headwater.node.cluster import keeping, membership
from headwater.node.lake import compactor, flusher
from headwater.node.scans import pace
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.memory import MemoryStore
from headwater.storage.store import StoreFailed
from headwater.streams import images
from headwater.streams.commands.streams import Append, Create
from headwater.streams.images import image_of
from headwater.streams.queries import Read
from headwater.streams.replies import Appended, Created, Existed, Page
from headwater.streams.state import State

from ..doubles.faulty_store import FaultyStore
from .clients import TEXT, Clients
from .cluster import Cluster, NameTaken, Server
from .faults import Faults, choose_odds
from .history import Answer, Checker, Reference, Wrong
from .nats import SimulatedClient, SimulatedNats
from .processes import Process, ProcessEnded, Scheduler

LOG_ID = "9f2c000000000001"
HEAL_SECONDS_MAX = 40.0
"""How long a cluster may take until every node serves again, once nothing is wrong any more."""

SESSION_US = 6_000_000
SHORT: dict[Any, dict[str, object]] = {
    jetstream_log: {"TICK_SECONDS": 0.05, "CHECKPOINT_MESSAGES": 16},
    room: {"CHECKPOINT_MESSAGES": 16},
    judging: {"SESSION_US": SESSION_US, "PART_BYTES": 256, "CHECKPOINT_MESSAGES": 16},
    publishing: {"SESSION_US": SESSION_US, "SESSION_FRESH_US": SESSION_US // 2, "FREIGHT_BYTES_IN_FLIGHT_MAX": 600},
    barriers: {"CONTACT_SECONDS": 0.9},
    membership: {"CLOCK_MAX_US": 500_000, "SILENT_SECONDS": 1.0},
    keeping: {"RENEW_SECONDS": 0.3, "LEASE_SECONDS": 1.2},
    committer: {"OUTCOME_SECONDS": 3.0},
    images: {"PIECE_BYTES": 700, "PIECE_ROWS": 3, "NAMES_PER_STEP": 3},
}
"""Limits that make seconds of what takes minutes, and a few messages of what takes thousands."""


EXPECTED_ENDS = LogBehind, StoreFailed, NameTaken
"""A process ends and is started again if the log was purged behind it, if the store fails while it starts, and if a
late join of an earlier process of its name arrives."""


class Outcome(NamedTuple):
    """What a schedule saw."""

    seed: int
    seconds: float
    """By the virtual clock."""
    steps: int
    operations: int
    messages: int
    counts: "Counter[str]"
    digest: str
    """Equal for two runs of one seed."""


class Schedule:
    """Everything in one schedule."""

    def __init__(self, seed: int, theme: str = "") -> None:
        self.seed = seed
        self.random = Random(seed)
        self.scheduler = Scheduler(Random(self.random.getrandbits(64)))
        self.outside = Process(self.scheduler, "outside")
        """NATS, the clients and the faults run here; it never fails."""
        self.odds = choose_odds(self.random)
        self.nats = SimulatedNats(self.scheduler, self.outside, self.odds, LOG_ID)
        self.store = FaultyStore(MemoryStore(), Random(self.random.getrandbits(64)))
        self.has_lake = self.random.random() < 0.5 or theme == "tenures"
        self.cluster = Cluster(self.scheduler, self.nats, self.store, has_lake=self.has_lake)
        self.clients = Clients(self.scheduler, self.outside, self.cluster, Random(self.random.getrandbits(64)))
        faults = Random(self.random.getrandbits(64))
        self.faults = Faults(faults, self.cluster, self.store, self.outside, theme)
        self._secrets = Random(self.random.getrandbits(64))
        self._deadline_us = self.random.choice((600_000, 3_000_000))
        """How long a segment may take to be published: less than a lease, or so long that a tenure ends meanwhile."""
        self._turns = Random(self.random.getrandbits(64))

    # -- The world that the nodes see ---------------------------------------------------------------------------------

    @contextmanager
    def simulated(self) -> Iterator[None]:
        """Virtual time, seeded secrets and a simulated NATS for everything that runs inside."""
        with ExitStack() as stack:
            for module, values in SHORT.items():
                for name, value in values.items():
                    stack.enter_context(mock.patch.object(module, name, value))
            for target, name, replacement in (
                (time, "monotonic", self.scheduler.monotonic),
                (committer, "monotonic", self.scheduler.monotonic),
                (pace, "monotonic", self._pace),
                (os, "_exit", self._exit),
                (secrets, "randbits", self._secrets.getrandbits),
                (secrets, "token_hex", lambda size: self._secrets.randbytes(size).hex()),
                (jetstream_log, "Client", self._client),
                (jetstream_log, "replay", self.nats.replay),
                (flusher, "PUBLISH_DEADLINE_US", self._deadline_us),
                (compactor, "PUBLISH_DEADLINE_US", self._deadline_us),
            ):
                stack.enter_context(mock.patch.object(target, name, replacement))
            yield

    def _pace(self) -> float:
        """The clock by which long work yields: the seed says where, because virtual time stands still within a step."""
        return self._turns.random() * 2 * pace.TURN_SECONDS

    def _client(self, urls: list[str], name: str) -> SimulatedClient:
        assert self.scheduler.current is not None
        return SimulatedClient(self.nats, self.scheduler.current)

    def _exit(self, code: int) -> None:
        process = self.scheduler.current
        assert process is not None
        for server in self.cluster.started:
            if server.process is process:
                server.ended_because = server.ended_because or ProcessEnded(f"exit code {code}")
                server.end()
        raise ProcessEnded

    # -- Running ------------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run the schedule and check everything; Wrong says what is not right."""
        with self.simulated():
            try:
                main = self.outside.create_task(self._main())
                self.scheduler.run(main)
                main.result()
            finally:
                self._bury()
        return self._outcome

    async def _main(self) -> None:
        for number in range(self.random.choice((2, 3, 3, 3))):
            self.cluster.start(f"n{number}")
        work = [self.outside.create_task(worker) for worker in self.clients.workers()]
        await self.faults.run(self.random.choice((2.0, 4.0, 6.0)))
        self.faults.heal()
        self.clients.stopping = True
        await self._heal()
        await asyncio.wait_for(asyncio.gather(*work), HEAL_SECONDS_MAX)
        await self._try_every_node()
        await self._settle()
        self._check()
        await self._read_everything()

    async def _heal(self) -> None:
        """Wait until every node serves, and one of them does the chores."""
        deadline = self.scheduler.now + HEAL_SECONDS_MAX
        while not self._healthy():
            await asyncio.sleep(0.1)
            self._check_processes()
            if self.scheduler.now > deadline:
                states = {server.name: _describe(server) for server in self.cluster.servers.values()}
                raise Wrong(f"The cluster does not heal: {states}")

    def _healthy(self) -> bool:
        servers = self.cluster.servers.values()
        return all(server.serves for server in servers) and any(server.shard.chores is not None for server in servers)

    async def _try_every_node(self) -> None:
        """Every node takes a write, be it once an eviction that was on its way has been made good."""
        for server in list(self.cluster.servers.values()):
            name = f"b/last-{server.name}"
            created = await self._write_at_last(server, Create(name, TEXT, payload=self.clients.payload()))
            appended = await self._write_at_last(server, Append(name, self.clients.payload(), content_type=TEXT))
            if not isinstance(created, Created | Existed) or not isinstance(appended, Appended):
                raise Wrong(f"Node {server.name} does not write after everything has healed: {created}, {appended}")

    async def _write_at_last(self, server: Server, command: Create | Append) -> Answer:
        for _ in range(10):
            answer = await self.clients.write(server, command, repeats=True)
            if not isinstance(answer, Refusal) or answer.code is not Code.LOG_UNAVAILABLE:
                break
            await self._heal()
        return answer

    async def _settle(self) -> None:
        """Wait until all nodes have applied the same messages, and none is on its way."""
        deadline = self.scheduler.now + HEAL_SECONDS_MAX
        while True:
            applied = {server.log.applied for server in self.cluster.servers.values() if server.log is not None}
            if applied == {len(self.nats.history)}:
                return
            await asyncio.sleep(0.003)
            if self.scheduler.now > deadline:
                raise Wrong(f"The nodes have applied {applied} of {len(self.nats.history)} messages.")

    # -- Checking -----------------------------------------------------------------------------------------------------

    def _check_processes(self) -> None:
        """No process may have failed, except one that the log left behind, or whose name was taken over."""
        for server in self.cluster.started:
            if server.process.failures:
                raise Wrong("; ".join(server.process.failures))
            if server.ended_because is not None and not isinstance(server.ended_because, EXPECTED_ENDS):
                raise Wrong(f"Node {server.name} ended: {server.ended_because!r}")
        if self.outside.failures:
            raise Wrong("; ".join(self.outside.failures))

    def _check(self) -> None:
        self._check_processes()
        reference = Reference(self.nats)
        expected = image_of(reference.state)
        for server in self.cluster.servers.values():
            if _image(server.shard.state) != expected:
                raise Wrong(f"The state of {server.name} is not what the log says.")
        checker = Checker(reference)
        checker.check(self.clients.operations)
        for name, payloads in self.clients.produced.items():
            content = reference.contents[reference.state.streams[name].incarnation]
            if bytes(content) != b"".join(payloads):
                raise Wrong(f"{name} holds {bytes(content)!r} instead of {b''.join(payloads)!r}")
        self._check_lake(reference)
        self.reference = reference
        kinds = Counter(fault.split()[1] for fault in self.faults.happened)
        counts = Counter(checker.counts) + kinds + Counter(self.nats.counts)
        state, cold = reference.state, reference.state.cold
        counts += Counter(segments=len(cold.segments), retired=len(cold.retired), streams=len(state.streams))
        self._outcome = Outcome(
            self.seed,
            self.scheduler.now,
            self.scheduler.steps,
            len(self.clients.operations),
            len(self.nats.history),
            counts,
            f"{hash(tuple(expected)) & 0xFFFFFFFF:08x}-{self.scheduler.steps}",
        )

    def _check_lake(self, reference: Reference) -> None:
        """Every segment that the state names is in the store."""
        stored = {item.key for item in self.store.store.items("segments/")}
        for held in reference.state.cold.segments.values():
            if not any(held.segment.id in key for key in stored):
                raise Wrong(f"The store has lost segment {held.segment.id}, which the state names.")

    async def _read_everything(self) -> None:
        """Every stream can be read to its end, on some node or two, wherever its bytes are."""
        for server in self.random.sample(list(self.cluster.servers.values()), 1 + self.has_lake):
            for name, stream in list(self.reference.state.streams.items()):
                if not stream.deleted and stream.lifetime.ttl_seconds is None:
                    await self._read_stream(server, name)

    async def _read_stream(self, server: Server, name: str) -> None:
        incarnation, offset, content = 0, 0, b""
        while True:
            answer = await self.clients.ask(server, partial(_read, name, offset), name, name)
            if not isinstance(answer, Page):
                raise Wrong(f"{name} cannot be read on {server.name}: {answer}")
            incarnation, offset, content = answer.incarnation, answer.next_offset, content + answer.body
            if answer.up_to_date:
                break
        expected = bytes(self.reference.contents[incarnation])
        if content != expected:
            raise Wrong(f"{name} on {server.name} holds {content!r} instead of {expected!r}")

    def _bury(self) -> None:
        """Release what the processes hold, without a word about work that they never finished."""
        for server in self.cluster.started:
            server.process.kill()
        self.outside.kill()


def _read(name: str, offset: int, node: Any, done: Any) -> None:
    answer = node.read(Read(name, offset))
    if isinstance(answer, asyncio.Task):
        answer.add_done_callback(lambda task: None if task.cancelled() else done(task.result()))
    else:
        done(answer)


def _image(state: State) -> list[bytes]:
    """The image of a state of which the imager may be taking one, too."""
    observers, state.observers = state.observers, []
    try:
        return image_of(state)
    finally:
        state.observers = observers


def _describe(server: Server) -> str:
    if server.process.dead or server.node is None:
        return "not running"
    member = server.shard.membership
    assert member is not None
    return f"{member.standing.value}, chores: {server.shard.chores is not None}, {server.node.outage}"


def run(seed: int, theme: str = "") -> Outcome:
    """Run the schedule of a seed; Wrong says what is not right, and its notes how it came to that."""
    schedule = Schedule(seed, theme)
    logging.disable(logging.CRITICAL)
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        return schedule.run()
    except Exception as error:
        wrong = error if isinstance(error, Wrong) else Wrong(f"{type(error).__name__}: {error}")
        wrong.add_note(f"{schedule.odds}")
        wrong.add_note(f"Faults: {', '.join(schedule.faults.happened)}")
        raise wrong from error
    finally:
        del schedule
        sys.unraisablehook = hook
        logging.disable(logging.NOTSET)
