"""Our own load generator: several processes, each with non-blocking sockets under one epoll and nothing above it."""

import contextlib
import multiprocessing
import select
import socket
import time
from array import array
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from benchmarks import messages
from benchmarks.loads import SENDING_CORES, Load, percentiles
from benchmarks.sources import Appends, Reads, Source

ANSWER_SECONDS_MAX = 10.0
RECONNECTS_MAX = 100
RECEIVE_BYTES_MIN, RECEIVE_BYTES_MAX = 16 * 1024, 256 * 1024


@dataclass(slots=True)
class Job:
    """What one process does: `rate` is requests per second, 0 for as many as the server answers."""

    address: tuple[str, int]
    source: Source
    connections: int
    seconds: float
    rate: float = 0.0
    expected: bytes = b""


@dataclass(slots=True)
class Tally:
    done: int = 0
    refused: int = 0
    broken: int = 0
    wrong: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    latencies_us: "array[int]" = field(default_factory=lambda: array("L"))


class Connection:
    """One socket with at most one request under way."""

    __slots__ = ("buffer", "sent_ns", "socket")

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=ANSWER_SECONDS_MAX)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.buffer = bytearray()
        self.sent_ns = 0

    def send(self, request: bytes) -> None:
        self.sent_ns = time.monotonic_ns()
        if self.socket.send(request) != len(request):
            raise ConnectionError("the socket took only part of a small request")

    def receive(self, size: int) -> bytes | bytearray | None:
        """Returns the response once it is complete."""
        data = self.socket.recv(size)
        if not data:
            raise ConnectionError("closed by the server")
        if not self.buffer and messages.is_complete(data):
            return data
        self.buffer += data
        if not messages.is_complete(self.buffer):
            return None
        response, self.buffer = self.buffer, bytearray()
        return response


class Worker:
    """Keeps every connection busy, or idle while the rate says so, until time or source runs out."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.tally = Tally()
        self.poll = select.epoll()
        self.busy: dict[int, Connection] = {}
        self.idle: deque[Connection] = deque()
        self.sent = 0
        self.is_exhausted = False
        self.receive_bytes = max(RECEIVE_BYTES_MIN, min(RECEIVE_BYTES_MAX, len(job.expected)))

    def run(self) -> Tally:
        for _ in range(self.job.connections):
            self._open()
        began, began_cpu = time.monotonic(), time.process_time()
        end = began + self.job.seconds
        while (now := time.monotonic()) < end + ANSWER_SECONDS_MAX:
            if now >= end:
                self.is_exhausted = True
            self._feed(now - began)
            if self.is_exhausted and not self.busy:
                break
            for fd, _ in self.poll.poll(0.001 if self.job.rate else 0.1):
                self._answer(fd, end)
        self.tally.broken += len(self.busy)
        self.tally.seconds = time.monotonic() - began
        self.tally.cpu_seconds = time.process_time() - began_cpu
        for connection in (*self.busy.values(), *self.idle):
            connection.socket.close()
        return self.tally

    def _open(self) -> None:
        connection = Connection(self.job.address)
        self.poll.register(connection.socket.fileno(), select.EPOLLIN)
        self.idle.append(connection)

    def _feed(self, elapsed_seconds: float) -> None:
        """Puts idle connections to work, as many as the rate allows by now."""
        while self.idle and not self.is_exhausted:
            if self.job.rate and self.sent >= elapsed_seconds * self.job.rate:
                return
            self._send(self.idle.popleft())

    def _send(self, connection: Connection) -> None:
        request = self.job.source.next()
        if not request:
            self.is_exhausted = True
            self.idle.append(connection)
            return
        self.sent += 1
        self.busy[connection.socket.fileno()] = connection
        try:
            connection.send(request)
        except OSError:
            self._lose(connection)

    def _answer(self, fd: int, end: float) -> None:
        connection = self.busy.get(fd)
        if connection is None:
            self._drop_idle(fd)
            return
        try:
            response = connection.receive(self.receive_bytes)
        except BlockingIOError:
            return
        except OSError:
            self._lose(connection)
            return
        if response is None:
            return
        now_ns = time.monotonic_ns()
        self._count(response, (now_ns - connection.sent_ns) // 1000)
        del self.busy[fd]
        if self.job.rate or self.is_exhausted or now_ns >= end * 1e9:
            self.idle.append(connection)
        else:
            self._send(connection)

    def _count(self, response: bytes | bytearray, latency_us: int) -> None:
        tally = self.tally
        if response[9:10] != b"2":
            tally.refused += 1
        elif self.job.expected and messages.body(response) != self.job.expected:
            tally.wrong += 1
        else:
            tally.done += 1
            tally.latencies_us.append(latency_us)

    def _drop_idle(self, fd: int) -> None:
        for connection in self.idle:
            if connection.socket.fileno() == fd:
                self.idle.remove(connection)
                self.busy[fd] = connection
                self._lose(connection, is_fault=False)
                return

    def _lose(self, connection: Connection, is_fault: bool = True) -> None:
        """Replaces a broken connection; closing one that was idle is the server's right."""
        self.tally.broken += is_fault
        del self.busy[connection.socket.fileno()]
        connection.socket.close()
        if self.tally.broken <= RECONNECTS_MAX and not self.is_exhausted:
            with contextlib.suppress(OSError):
                self._open()


def work(job: Job) -> Tally:
    return Worker(job).run()


def share(connections: int, workers: int) -> list[int]:
    """Splits connections evenly.

    >>> share(5, 2)
    [3, 2]
    """
    return [connections // workers + (index < connections % workers) for index in range(workers)]


def run(jobs: list[Job]) -> Load:
    """Runs each job in a process of its own and adds up what they counted."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(jobs), mp_context=context) as pool:
        tallies = list(pool.map(work, jobs))
    latencies_us = [latency for tally in tallies for latency in tally.latencies_us]
    return Load(
        seconds=max(tally.seconds for tally in tallies),
        done=sum(tally.done for tally in tallies),
        refused=sum(tally.refused for tally in tallies),
        broken=sum(tally.broken for tally in tallies),
        wrong=sum(tally.wrong for tally in tallies),
        latencies_us=percentiles(latencies_us),
        busy_share=max(tally.cpu_seconds / tally.seconds for tally in tallies),
        cpu_seconds=sum(tally.cpu_seconds for tally in tallies),
    )


class SocketGenerator:
    """The generator that is always there."""

    name = "own (epoll)"

    def append(self, address: tuple[str, int], prefix: str, streams: int, connections: int, seconds: float) -> Load:
        shares = [count for count in share(connections, SENDING_CORES) if count]
        return run(
            [Job(address, Appends(prefix, streams, worker), count, seconds) for worker, count in enumerate(shares)]
        )

    def read(self, address: tuple[str, int], path: str, body: bytes, connections: int, seconds: float) -> Load:
        shares = [count for count in share(connections, SENDING_CORES) if count]
        return run([Job(address, Reads(path), count, seconds, expected=body) for count in shares])
