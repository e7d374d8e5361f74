"""The audience of one stream: several processes with many live reads each, over server-sent events."""

import select
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from typing import NamedTuple

from headwater.load import targets
from headwater.load.events import EVENT_BYTES, Tracker
from headwater.load.loads import Latencies
from headwater.load.messages import LoadFailed
from headwater.load.processes import Crew
from headwater.load.sse import EventStream
from headwater.load.targets import Target

CONNECT_SECONDS_MAX = 30.0
CONNECTS_PER_SECOND_MIN = 100
REPORT_SECONDS = 0.5
REPORT_SECONDS_MAX = 30.0
LISTEN_SECONDS_MAX = 2 * 86_400.0
RECEIVE_BYTES = 64 * 1024


class Ending(NamedTuple):
    """How many events were sent, until when readers may wait for them, and whether the stream was closed after them."""

    total: int
    deadline: float
    is_closed: bool


@dataclass(slots=True)
class Receipt:
    """What the readers of one process have received; see `Tracker` for what is counted how."""

    delivered: int = 0
    skipped: int = 0
    repeated: int = 0
    changed: int = 0
    missing: int = 0
    """Events that readers had not received at the end."""
    waiting: int = 0
    """Readers that were still waiting when the deadline passed."""
    resumed: int = 0
    """How often the server ended a live read and its reader resumed."""
    checksums: list[int] = field(default_factory=list)
    """Of everything that each reader received."""
    last_ns: int = 0
    cpu_seconds: float = 0.0
    latencies: Latencies = field(default_factory=Latencies)


class Reader:
    """One live read, resumed at the last offset whenever the server ends it."""

    __slots__ = ("_path", "_target", "events", "socket", "tracker")

    def __init__(self, target: Target, path: str, tracker: Tracker) -> None:
        self._target = target
        self._path = path
        self.tracker = tracker
        self._open("-1")

    def _open(self, offset: str) -> None:
        self.events = EventStream()
        self.socket = self._target.connect()
        self.socket.sendall(self._target.request("GET", f"{self._path}?offset={offset}&live=sse"))

    def await_first_event(self) -> None:
        """Block until the server has sent the first control event, so that nothing written later can be missed."""
        self.socket.settimeout(CONNECT_SECONDS_MAX)
        while not self.events.has_position:
            self.receive()
            if self.events.is_ended:
                raise LoadFailed("the server ended a live read before its first event")
        self.socket.setblocking(False)

    def receive(self) -> None:
        """Take what has arrived; the end of the connection is the end of the response."""
        try:
            data = targets.receive(self.socket, RECEIVE_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self.events.is_ended = True
        elif confirmed := self.events.feed(data):
            self.tracker.take(confirmed, time.monotonic_ns())

    def resume(self) -> None:
        """Continue in a new response; what the old one left unconfirmed arrives again."""
        if not self.events.has_position:
            raise LoadFailed("the server ended a live read before its first event")
        offset = self.events.next_offset
        self.socket.close()
        self._open(offset)
        self.socket.setblocking(False)


class Crowd:
    """All the readers of one process."""

    def __init__(self, target: Target, path: str, count: int, event_bytes: int) -> None:
        self.receipt = Receipt()
        self.readers: dict[int, Reader] = {}
        self.poll = select.epoll()
        opened = [Reader(target, path, Tracker(self.receipt.latencies, event_bytes)) for _ in range(count)]
        for reader in opened:
            reader.await_first_event()
            self._register(reader)

    def _register(self, reader: Reader) -> None:
        fd = reader.socket.fileno()
        self.readers[fd] = reader
        self.poll.register(fd, select.EPOLLIN)

    def listen(self, pipe: Pipe) -> Receipt:
        """Read until the parent has announced the ending and every reader has reached it, or the deadline passes."""
        self.poll.register(pipe.fileno(), select.EPOLLIN)
        began_cpu = time.process_time()
        report_at = time.monotonic()
        ending = Ending(-1, report_at + LISTEN_SECONDS_MAX, is_closed=False)
        while (now := time.monotonic()) < ending.deadline and self._waits(ending):
            for fd, _ in self.poll.poll(0.1):
                if fd == pipe.fileno():
                    ending = pipe.recv()
                    self.poll.unregister(fd)
                else:
                    self._receive(fd)
            if now >= report_at and ending.total < 0:
                pipe.send(sum(reader.tracker.delivered for reader in self.readers.values()))
                report_at = now + REPORT_SECONDS
        self.receipt.cpu_seconds = time.process_time() - began_cpu
        return self._sum_up(ending)

    def _waits(self, ending: Ending) -> bool:
        return ending.total < 0 or any(_is_waiting(reader, ending) for reader in self.readers.values())

    def _receive(self, fd: int) -> None:
        reader = self.readers[fd]
        reader.receive()
        if reader.events.is_closed:
            self.poll.unregister(fd)
        elif reader.events.is_ended:
            del self.readers[fd]
            reader.resume()
            self.receipt.resumed += 1
            self._register(reader)

    def _sum_up(self, ending: Ending) -> Receipt:
        receipt = self.receipt
        for reader in self.readers.values():
            tracker = reader.tracker
            receipt.delivered += tracker.delivered
            receipt.skipped += tracker.skipped
            receipt.repeated += tracker.repeated
            receipt.changed += tracker.changed + bool(tracker.rest)
            receipt.missing += max(0, ending.total - tracker.following)
            receipt.waiting += _is_waiting(reader, ending)
            receipt.checksums.append(tracker.checksum)
            receipt.last_ns = max(receipt.last_ns, tracker.last_ns)
        return receipt


def _is_waiting(reader: Reader, ending: Ending) -> bool:
    if ending.is_closed:
        return not reader.events.is_closed
    return reader.tracker.following < ending.total


def _attend(pipe: Pipe, target: Target, path: str, count: int, event_bytes: int) -> Receipt:
    """The work of a reader process: report that all readers are connected, then what they have received."""
    crowd = Crowd(target, path, count, event_bytes)
    pipe.send(0)
    return crowd.listen(pipe)


class Audience(Crew):
    """The reader processes, as the writer sees them."""

    def __init__(self, target: Target, path: str, counts: list[int], event_bytes: int = EVENT_BYTES) -> None:
        super().__init__(_attend, [(target, path, count, event_bytes) for count in counts])
        self._readers = sum(counts)
        self._delivered = dict.fromkeys(self.pipes, 0)

    def await_ready(self) -> None:
        """Wait until every reader has received its first event."""
        deadline = time.monotonic() + CONNECT_SECONDS_MAX + self._readers / CONNECTS_PER_SECOND_MIN
        for pipe in self.pipes:
            self.receive(pipe, deadline)

    def delivered(self) -> int:
        """Return how many events have been delivered so far; a failure among the readers is raised here."""
        for pipe in self.pipes:
            while pipe.poll():
                self._delivered[pipe] = self.receive(pipe)
        return sum(self._delivered.values())

    def finish(self, ending: Ending) -> list[Receipt]:
        """Announce the ending, and return what the readers have received when they reach it."""
        self.send(ending)
        return [self._receipt(pipe, ending.deadline + REPORT_SECONDS_MAX) for pipe in self.pipes]

    def _receipt(self, pipe: Pipe, deadline: float) -> Receipt:
        while True:
            message = self.receive(pipe, deadline)
            if isinstance(message, Receipt):
                return message
