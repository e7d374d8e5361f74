"""Requests over non-blocking sockets: each process has many connections under one epoll and nothing above it."""

import math
import select
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait

from headwater.load import messages, targets
from headwater.load.loads import Load, Tally
from headwater.load.messages import LoadFailed
from headwater.load.processes import Crew
from headwater.load.sources import Source
from headwater.load.targets import Target

ANSWER_SECONDS_MAX = 10.0
RECONNECTS_MAX = 100
REPORT_SECONDS = 0.2
RECEIVE_BYTES_MIN, RECEIVE_BYTES_MAX = 16 * 1024, 256 * 1024
REASON_BYTES_MAX = 200

Report = Callable[[int], None]


@dataclass(slots=True)
class Job:
    """What one process does: `sources` has one for each connection, and connections may share one.

    `rate` is operations per second, 0 for as many as the server answers. With `fails_fast`, the first request that is
    refused or not answered ends the load; otherwise it is counted.
    """

    target: Target
    sources: list[Source]
    seconds: float
    rate: float = 0.0
    fails_fast: bool = False
    answer_seconds_max: float = ANSWER_SECONDS_MAX


class Connection:
    """One socket with at most one request in flight; with a timeout, it blocks."""

    __slots__ = ("began_ns", "buffer", "expected", "is_partial", "receive_bytes", "request", "socket", "source")

    def __init__(self, target: Target, source: Source | None = None, *, timeout_seconds: float | None = None) -> None:
        self.socket = target.connect()
        self.socket.settimeout(timeout_seconds or 0.0)
        self.source = source
        self.buffer = bytearray()
        self.request = b""
        self.expected = b""
        self.receive_bytes = RECEIVE_BYTES_MIN
        self.is_partial = False
        self.began_ns = 0

    def send(self, request: bytes) -> None:
        self.request = request
        try:
            sent = self.socket.send(request)
        except (BlockingIOError, ssl.SSLWantWriteError):
            sent = 0
        if sent != len(request):
            # Only a large request does not fit into the buffer of the socket.
            self.socket.settimeout(ANSWER_SECONDS_MAX)
            self.socket.sendall(memoryview(request)[sent:])
            self.socket.setblocking(False)

    def receive(self, size: int) -> bytes | bytearray | None:
        """Return the response once it is complete."""
        data = targets.receive(self.socket, size)
        if not data:
            raise ConnectionError("the server closed the connection")
        if not self.buffer and messages.is_complete(data):
            return data
        self.buffer += data
        if not messages.is_complete(self.buffer):
            return None
        response, self.buffer = self.buffer, bytearray()
        return response

    def ask(self, request: bytes, *, is_head: bool = False) -> bytes:
        """Send a request and block until its response is complete."""
        self.socket.sendall(request)
        response = b""
        while not messages.is_complete(response, is_head=is_head):
            data = targets.receive(self.socket, RECEIVE_BYTES_MAX)
            if not data:
                raise ConnectionError("the server closed the connection")
            response = response + data if response else data
        return response

    def close(self) -> None:
        self.socket.close()


class Worker:
    """Keeps every connection busy, or idle where the rate says so, until the time is over or the sources are empty."""

    def __init__(self, job: Job, report: Report | None = None) -> None:
        self.job = job
        self.report = report
        self.tally = Tally()
        self.poll = select.epoll()
        self.busy: dict[int, Connection] = {}
        self.idle: deque[Connection] = deque()
        self.sent = 0
        self.is_over = False
        self.end = math.inf
        self.progress_at = 0.0

    def run(self) -> Tally:
        for source in self.job.sources:
            self._open(source)
        began, began_cpu = time.monotonic(), time.process_time()
        self.end, self.progress_at, report_at = began + self.job.seconds, began, began
        try:
            while self._goes_on(now := time.monotonic()):
                self._feed(now - began)
                if self.report is not None and now >= report_at:
                    self.report(self.tally.done)
                    report_at = now + REPORT_SECONDS
                for fd, _ in self.poll.poll(0.001 if self.job.rate else 0.1):
                    self._answer(fd)
        finally:
            for connection in (*self.busy.values(), *self.idle):
                connection.close()
            self.poll.close()
        self.tally.broken += len(self.busy)
        self.tally.seconds = time.monotonic() - began
        self.tally.cpu_seconds = time.process_time() - began_cpu
        return self.tally

    def _goes_on(self, now: float) -> bool:
        self.is_over = self.is_over or now >= self.end
        if not self.busy and (self.is_over or not self.idle):
            return False
        is_stuck = bool(self.busy) and now >= self.progress_at + self.job.answer_seconds_max
        if is_stuck and self.job.fails_fast:
            connection = next(iter(self.busy.values()))
            self._fail(connection, f"got no response within {self.job.answer_seconds_max:g} s")
        return not (is_stuck and now >= self.end + self.job.answer_seconds_max)

    def _open(self, source: Source | None) -> None:
        connection = Connection(self.job.target, source)
        self.poll.register(connection.socket.fileno(), select.EPOLLIN)
        self.idle.append(connection)

    def _feed(self, elapsed_seconds: float) -> None:
        """Let idle connections send, as many as the rate allows so far."""
        while self.idle and not self.is_over:
            if self.job.rate and self.sent >= elapsed_seconds * self.job.rate:
                return
            self._send(self.idle.popleft())

    def _send(self, connection: Connection) -> None:
        source = connection.source
        request = b"" if source is None else source.next()
        if source is None or not request:
            connection.close()
            return
        if not connection.is_partial:
            self.sent += 1
            connection.began_ns = time.monotonic_ns()
        if source.expected is not connection.expected:
            connection.expected = source.expected
            connection.receive_bytes = max(RECEIVE_BYTES_MIN, min(RECEIVE_BYTES_MAX, len(source.expected)))
        connection.is_partial = source.is_partial
        if not self.busy:
            self.progress_at = time.monotonic()
        self.busy[connection.socket.fileno()] = connection
        try:
            connection.send(request)
        except OSError as error:
            self._lose(connection, str(error))

    def _answer(self, fd: int) -> None:
        connection = self.busy.get(fd)
        if connection is None:
            self._check_idle(fd)
            return
        try:
            response = connection.receive(connection.receive_bytes)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(connection, str(error))
            return
        self.progress_at = time.monotonic()
        if response is None:
            return
        self._count(connection, response)
        del self.busy[fd]
        if messages.closes(response):
            connection.close()
            if not self.is_over or connection.is_partial:
                self._reopen(connection)
        elif connection.is_partial or not (self.job.rate or self.is_over or self.progress_at >= self.end):
            # What was begun is completed, even if the time is over.
            self._send(connection)
        else:
            self.idle.append(connection)

    def _count(self, connection: Connection, response: bytes | bytearray) -> None:
        tally = self.tally
        if response[9:10] != b"2":
            tally.refused += 1
            if self.job.fails_fast:
                self._fail(connection, f"was answered with {messages.status(response)}: {_reason(response)}")
        elif connection.expected and messages.body(response) != connection.expected:
            tally.wrong += 1
        elif not connection.is_partial:
            tally.done += 1
            tally.latencies.add((time.monotonic_ns() - connection.began_ns) // 1000)

    def _check_idle(self, fd: int) -> None:
        """Replace an idle connection that the server has closed, as it may."""
        for connection in self.idle:
            if connection.socket.fileno() == fd:
                if _has_ended(connection):
                    self.idle.remove(connection)
                    connection.close()
                    self._reopen(connection)
                return

    def _lose(self, connection: Connection, reason: str) -> None:
        """Replace a connection that broke while a request was in flight."""
        if self.job.fails_fast:
            self._fail(connection, f"got no response ({reason})")
        self.tally.broken += 1
        connection.is_partial = False
        del self.busy[connection.socket.fileno()]
        connection.close()
        if self.tally.broken <= RECONNECTS_MAX and not self.is_over:
            self._reopen(connection)

    def _reopen(self, old: Connection) -> None:
        try:
            self._open(old.source)
        except OSError as error:
            if self.job.fails_fast:
                raise LoadFailed(f"the server closed a connection and accepts no other ({error})") from error
            return
        new = self.idle[-1]
        new.is_partial, new.began_ns = old.is_partial, old.began_ns
        if new.is_partial:
            self._send(self.idle.pop())

    @staticmethod
    def _fail(connection: Connection, reason: str) -> None:
        raise LoadFailed(f"{messages.first_line(connection.request)} {reason}")


def _reason(response: bytes | bytearray) -> str:
    text = messages.body(response)[:REASON_BYTES_MAX].decode(errors="replace")
    return " ".join(text.split()).rstrip(".").replace(". ", "; ")


def work(job: Job, report: Report | None = None) -> Tally:
    """Do a job in this process."""
    return Worker(job, report).run()


def run(jobs: list[Job], report: Report | None = None) -> Load:
    """Do each job in its own process, and add up what they counted; `report` receives what is done so far."""
    with Crew(_work, [(job, report is not None) for job in jobs]) as crew:
        pending, done, tallies = dict.fromkeys(crew.pipes, 0), 0, []
        while pending:
            for pipe in wait(list(pending)):
                assert isinstance(pipe, Pipe)
                message = crew.receive(pipe)
                if isinstance(message, Tally):
                    tallies.append(message)
                    done += message.done
                    del pending[pipe]
                else:
                    pending[pipe] = message
                if report is not None:
                    report(done + sum(pending.values()))
    return Load.of(tallies)


def _work(pipe: Pipe, job: Job, reports: bool) -> Tally:
    return work(job, pipe.send if reports else None)


def share(count: int, parts: int) -> list[int]:
    """Split a count evenly; no part is empty.

    >>> share(5, 2), share(1, 2)
    ([3, 2], [1])
    """
    return [count // parts + (index < count % parts) for index in range(min(count, parts))]


def _has_ended(connection: Connection) -> bool:
    """Whether the server has closed an idle connection; a server that was killed resets it."""
    try:
        return not targets.receive(connection.socket, RECEIVE_BYTES_MIN)
    except BlockingIOError:
        return False
    except OSError:
        return True
