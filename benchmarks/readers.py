"""Live readers over server-sent events: several processes with many connections each, and next to no parsing."""

import os
import select
import socket
import time
from array import array
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection as Pipe
from multiprocessing.process import BaseProcess

from benchmarks import messages

MESSAGE_BYTES = 100
# A message begins with a mark, "#", number, ":", nanoseconds, ";", which readers find in the raw bytes, whatever the
# events and chunks around it look like.
MARK_BYTES = 30
PADDING = b"." * (MESSAGE_BYTES - MARK_BYTES)
CONNECT_SECONDS_MAX = 30.0
REPORT_SECONDS_MAX = 30.0
RECEIVE_BYTES = 64 * 1024


def message(sequence: int, due_ns: int) -> bytes:
    """Builds a message that carries its number and the moment at which it was due.

    >>> len(message(1, 2))
    100
    """
    return b"#%08d:%019d;" % (sequence, due_ns) + PADDING


@dataclass(slots=True)
class Receipt:
    """What the readers of one process have seen; `strays` are messages doubled, missed in between or out of order."""

    delivered: int = 0
    strays: int = 0
    closed: int = 0
    last_ns: int = 0
    cpu_seconds: float = 0.0
    latencies_us: "array[int]" = field(default_factory=lambda: array("L"))


class Reader:
    __slots__ = ("following", "socket", "tail")

    def __init__(self, address: tuple[str, int], request: bytes) -> None:
        self.socket = socket.create_connection(address, timeout=CONNECT_SECONDS_MAX)
        self.socket.sendall(request)
        self.following = 0
        self.tail = b""

    def await_first_event(self) -> None:
        """Blocks until the server has sent the first event, so that nothing written later can be missed."""
        seen = b""
        while b"\n\n" not in seen.partition(b"event: control")[2]:
            data = self.socket.recv(RECEIVE_BYTES)
            seen += data
            if not data or not seen.startswith(b"HTTP/1.1 200"[: len(seen)]):
                raise ConnectionError(f"a live read was refused: {seen[:200]!r}")
        self.socket.setblocking(False)


class Crowd:
    """All the readers of one process."""

    def __init__(self, address: tuple[str, int], path: str, count: int) -> None:
        request = messages.request("GET", f"{path}?offset=-1&live=sse")
        self.receipt = Receipt()
        self.readers: dict[int, Reader] = {}
        self.poll = select.epoll()
        for _ in range(count):
            reader = Reader(address, request)
            self.readers[reader.socket.fileno()] = reader
            self.poll.register(reader.socket.fileno(), select.EPOLLIN)
        for reader in self.readers.values():
            reader.await_first_event()

    def listen(self, pipe: Pipe) -> Receipt:
        """Reads until the parent said how many messages there are and all have come, or its deadline has passed."""
        pipe_fd = pipe.fileno()
        self.poll.register(pipe_fd, select.EPOLLIN)
        began_cpu = time.process_time()
        wanted, deadline = -1, time.monotonic() + 600.0
        while time.monotonic() < deadline and (wanted < 0 or self.receipt.delivered < wanted):
            for fd, _ in self.poll.poll(0.1):
                if fd == pipe_fd:
                    total, deadline = pipe.recv()
                    wanted = total * len(self.readers)
                    self.poll.unregister(pipe_fd)
                else:
                    self._receive(fd)
        self.receipt.cpu_seconds = time.process_time() - began_cpu
        return self.receipt

    def _receive(self, fd: int) -> None:
        try:
            data = os.read(fd, RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.poll.unregister(fd)
            self.receipt.closed += 1
            return
        self._take(self.readers[fd], data, time.monotonic_ns())

    def _take(self, reader: Reader, data: bytes, now_ns: int) -> None:
        """Counts the messages in the bytes received; a mark that the network cut in two waits for its rest."""
        if reader.tail:
            data, reader.tail = reader.tail + data, b""
        receipt, at = self.receipt, data.find(b"#")
        while at >= 0:
            if len(data) < at + MARK_BYTES:
                reader.tail = data[at:]
                return
            sequence = int(data[at + 1 : at + 9])
            receipt.strays += sequence != reader.following
            reader.following = sequence + 1
            receipt.delivered += 1
            receipt.latencies_us.append(max(0, now_ns - int(data[at + 10 : at + 29])) // 1000)
            receipt.last_ns = now_ns
            at = data.find(b"#", at + MARK_BYTES)


def crowd(address: tuple[str, int], path: str, count: int, pipe: Pipe) -> None:
    """The body of a reader process: says "ready", listens, and sends its receipt."""
    try:
        everyone = Crowd(address, path, count)
    except OSError as error:
        pipe.send(f"{error}")
        return
    pipe.send("ready")
    pipe.send(everyone.listen(pipe))


class Audience:
    """Reader processes as seen from the writer's side."""

    def __init__(self, address: tuple[str, int], path: str, counts: list[int]) -> None:
        context = get_context("spawn")
        self.members: list[tuple[BaseProcess, Pipe]] = []
        for count in counts:
            ours, theirs = context.Pipe()
            process = context.Process(target=crowd, args=(address, path, count, theirs), daemon=True)
            process.start()
            theirs.close()
            self.members.append((process, ours))

    def await_ready(self) -> None:
        for _, pipe in self.members:
            word = pipe.recv() if pipe.poll(CONNECT_SECONDS_MAX) else "the readers did not connect in time"
            if word != "ready":
                raise OSError(word)

    def finish(self, total: int, deadline: float) -> list[Receipt]:
        """Tells the readers how many messages were sent and collects what they saw by then."""
        for _, pipe in self.members:
            pipe.send((total, deadline))
        return [self._receipt(pipe, deadline) for _, pipe in self.members]

    @staticmethod
    def _receipt(pipe: Pipe, deadline: float) -> Receipt:
        if not pipe.poll(max(0.0, deadline - time.monotonic()) + REPORT_SECONDS_MAX):
            raise OSError("a reader process did not report in time")
        receipt: Receipt = pipe.recv()
        return receipt

    def close(self) -> None:
        for process, pipe in self.members:
            pipe.close()
            process.terminate()
            process.join()
