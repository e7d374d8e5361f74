"""NATS with one JetStream stream, as far as the log uses it, on virtual time and with everything that goes wrong there.

A message that a node publishes is delayed, lost, repeated much later, or overtaken. What the stream stores it stores
for good, in one order; the acknowledgement and each copy that goes to a node may be lost or late. Replicas answer from
the past. While the stream has no leader it is silent, refuses, or keeps what comes and stores it later.
"""

import asyncio
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import count
from typing import NamedTuple

import msgspec

from headwater.log.jetstream.client import Handler, NotConnected
from headwater.log.jetstream.judging import Judge, Taken
from headwater.log.jetstream.streams import LOG_ID_KEY, ClusterConfig, LogBehind, StreamInfo
from headwater.log.jetstream.wire import Message, ServerInfo

from .processes import Process, Scheduler

LOG_BYTES_MAX = 1 << 30
PLACE = ClusterConfig(["nats://simulated"])
NOTICE_SECONDS = 1.5
"""After how long a node notices that its connection is dead."""

LATE_SECONDS_MAX = 0.5


class Leader(Enum):
    """What the stream does with a message."""

    STORES = "stores it"
    SILENT = "loses it without a word"
    REFUSES = "says that it did not store it"
    KEEPS = "stores it when it has a majority again"


class Odds(NamedTuple):
    """How often things go wrong in a schedule, and how long they take."""

    delay_seconds: float = 0.002
    """The usual delay is between a tenth of this and this."""
    late: float = 0.0
    """How often a message takes much longer; those behind it on the connection wait, too."""
    overtakes: float = 0.0
    """How often a message is not kept in the order of its connection."""
    lost: float = 0.0
    unacknowledged: float = 0.0
    unrepublished: float = 0.0
    ghosts: float = 0.0
    """How often a published message is stored once more, much later."""
    ghost_seconds_max: float = 8.0
    stale: float = 0.0
    """How often a replica answers from the past."""
    stale_seconds_max: float = 1.0


class Stored(NamedTuple):
    """A message of the stream, when it was stored, and the process that sent it."""

    at_seconds: float
    data: bytes
    sender: Process


class SimulatedNats:
    """The servers as a whole, and the one stream."""

    def __init__(self, scheduler: Scheduler, servers: Process, odds: Odds, log_id: str) -> None:
        self._scheduler, self._servers, self._random = scheduler, servers, scheduler.random
        self.odds, self.log_id = odds, log_id
        self.history: list[Stored] = []
        """Everything ever stored; the sequence of the first is 1."""
        self.first = 1
        """The sequence of the first message that was not purged."""
        self.leader = Leader.STORES
        self._kept: list[tuple[bytes, bytes, SimulatedClient]] = []
        self.clients: list[SimulatedClient] = []
        self.client_numbers = count(1)
        self.counts = {"lost": 0, "ghosts": 0, "overtaken": 0, "purges": 0}

    # -- On the way to the servers ------------------------------------------------------------------------------------

    def publish(self, client: "SimulatedClient", subject: bytes, data: bytes, reply: bytes) -> None:
        """A client has sent a message."""
        random, odds = self._random, self.odds
        if client.cut or random.random() < odds.lost or (client.mute and subject != PLACE.subject("log")):
            self.counts["lost"] += 1
        else:
            self._servers.call_at(self._arrival(client.out), self._route, client, subject, data, reply)
        if subject != PLACE.subject("log"):
            return
        if odds.ghosts and self._scheduler.now > client.haunted_until and random.random() < odds.ghosts:
            # Not alone: what follows on the same connection comes once more, too.
            client.haunted_until = self._scheduler.now + random.random()
            client.haunted_by_seconds = random.random() * odds.ghost_seconds_max
        if self._scheduler.now <= client.haunted_until:
            self.counts["ghosts"] += 1
            self._servers.call_later(client.haunted_by_seconds, self._route, client, subject, data, b"")

    def _arrival(self, way: "Way", *, in_order: bool = False) -> float:
        """When a message arrives that is sent now."""
        random, odds = self._random, self.odds
        delay = odds.delay_seconds * way.slowness * (0.1 + 0.9 * random.random())
        if random.random() < odds.late:
            delay += LATE_SECONDS_MAX * random.random()
        arrival = self._scheduler.now + delay
        if odds.overtakes and not in_order and random.random() < odds.overtakes:
            self.counts["overtaken"] += 1
            return arrival
        way.last = max(way.last, arrival)
        return way.last

    def _route(self, client: "SimulatedClient", subject: bytes, data: bytes, reply: bytes) -> None:
        if subject == PLACE.subject("log"):
            self._propose(client, data, reply)
        elif subject.startswith(b"$JS.API.DIRECT.GET."):
            self._get(client, msgspec.json.decode(data), reply)
        elif subject.startswith(b"$JS.API."):
            self._call(client, subject, data, reply)
        else:
            for other in self.clients:
                self._deliver(other, Message(subject, reply, b"", data))

    def _deliver(self, client: "SimulatedClient", message: Message, way: "Way | None" = None) -> None:
        """Send a message to a client, if that listens to its subject."""
        handler = client.handler_of(message.subject)
        if handler is None or client.cut or client.deaf or not client.connected:
            return
        if self._random.random() < self.odds.lost:
            self.counts["lost"] += 1
            return
        connection = client.connection
        client.process.call_at(self._arrival(way or client.back), client.receive, connection, handler, message)

    # -- The stream ---------------------------------------------------------------------------------------------------

    def _propose(self, client: "SimulatedClient", data: bytes, reply: bytes) -> None:
        if self.leader is Leader.STORES:
            self._store(client, data, reply)
        elif self.leader is Leader.KEEPS:
            self._kept.append((data, reply, client))
        elif self.leader is Leader.REFUSES and reply:
            refused = b'{"error":{"code":503,"description":"no leader"},"seq":0}'
            self._deliver(client, Message(reply, b"", b"", refused))

    def elect(self, *, keep: bool) -> None:
        """There is a leader again; what was kept is stored now, or never."""
        self.leader = Leader.STORES
        kept, self._kept = self._kept, []
        if keep:
            for data, reply, client in kept:
                self._store(client, data, reply)

    def _store(self, client: "SimulatedClient", data: bytes, reply: bytes) -> None:
        self.history.append(Stored(self._scheduler.now, data, client.process))
        sequence = len(self.history)
        if reply and self._random.random() >= self.odds.unacknowledged:
            self._deliver(client, Message(reply, b"", b"", b'{"stream":"headwater-0","seq":%d}' % sequence))
        decided = stored_message(PLACE.subject("decided"), sequence, data)
        for other in self.clients:
            if self._random.random() >= self.odds.unrepublished:
                self._deliver(other, decided, other.stream)

    def _last_of_replica(self) -> int:
        """How far some replica is: it may answer from the past."""
        if self._random.random() >= self.odds.stale:
            return len(self.history)
        past = self._scheduler.now - self._random.random() * self.odds.stale_seconds_max
        return bisect_right(self.history, past, key=lambda stored: stored.at_seconds)

    def _get(self, client: "SimulatedClient", request: dict[str, int], reply: bytes) -> None:
        last, first = self._last_of_replica(), max(request["seq"], self.first)
        stop = min(last, first + request["batch"] - 1) + 1
        status = b"204" if first <= last else b"404"
        answers = [stored_message(reply, number, self.history[number - 1].data) for number in range(first, stop)]
        answers.append(Message(reply, b"", b"NATS/1.0 %b\r\n\r\n" % status, b""))
        if self._random.random() < self.odds.lost:
            # They come on one connection, so they may end too early, but nothing is missing between.
            del answers[self._random.randrange(len(answers)) :]
        handler = client.handler_of(reply)
        if handler is not None and not (client.cut or client.deaf) and client.connected:
            for answer in answers:
                arrival = self._arrival(client.back, in_order=True)
                client.process.call_at(arrival, client.receive, client.connection, handler, answer)

    def _call(self, client: "SimulatedClient", subject: bytes, data: bytes, reply: bytes) -> None:
        answer = b"{}"
        if b".STREAM.INFO." in subject:
            answer = msgspec.json.encode(self.info())
        elif b".STREAM.PURGE." in subject:
            self.counts["purges"] += 1
            self.first = max(self.first, min(msgspec.json.decode(data)["seq"], len(self.history) + 1))
        if self.leader is Leader.STORES:
            self._deliver(client, Message(reply, b"", b"", answer))

    def info(self) -> StreamInfo:
        """What JetStream says of the stream, perhaps of its past."""
        last = self._last_of_replica()
        size = sum(len(stored.data) for stored in self.history[self.first - 1 : last])
        described = {
            "config": {"max_bytes": LOG_BYTES_MAX, "metadata": {LOG_ID_KEY: self.log_id}},
            "state": {"bytes": size, "first_seq": self.first, "last_seq": last},
        }
        return msgspec.convert(described, StreamInfo)

    def replay(self, config: ClusterConfig, log_id: str, judge: Judge) -> Iterator[tuple[bytes, Taken | None]]:
        """What a node that starts reads back, as `replaying.replay` does."""
        if judge.sequence + 1 < self.first:
            raise LogBehind(f"The log begins at {self.first}, not at {judge.sequence + 1}.")
        for sequence in range(judge.sequence + 1, self._last_of_replica() + 1):
            data = self.history[sequence - 1].data
            yield data, judge.take(sequence, data)


class Way:
    """One direction of a connection."""

    def __init__(self) -> None:
        self.last = 0.0
        """When the message that was sent last arrives; others keep behind it."""
        self.slowness = 1.0


class SimulatedClient:
    """Stands in for `client.Client`."""

    def __init__(self, nats: SimulatedNats, process: Process) -> None:
        self._nats, self.process = nats, process
        self._exact: dict[bytes, Handler] = {}
        self._inboxes: dict[bytes, Handler] = {}
        self._numbers = count(1)
        self._requests: dict[bytes, asyncio.Future[Message]] = {}
        self._name = b"_INBOX.%d" % next(nats.client_numbers)
        self.out, self.back, self.stream = Way(), Way(), Way()
        """What it sends, what others and servers send to it, and what the stream's leader republishes: that takes other
        routes between the servers, so either may overtake the other."""
        self.connection = 0
        """Counts connections: what was under way on an earlier one is lost with it."""
        self.connected = False
        self.cut = False
        """Whether the network loses everything, which nobody has noticed yet."""
        self.deaf = False
        """Whether everything that is sent to it is lost."""
        self.mute = False
        """Whether everything but what goes to the log is lost: the others do not hear this node."""
        self.haunted_until = self.haunted_by_seconds = -1.0
        self.info = ServerInfo()
        self.lost_at = time.monotonic()
        self.problem = "no server was tried yet"
        self.servers = "simulated"
        self.on_connected: Callable[[], None] = lambda: None
        self._inboxes[self._name] = self._answered

    @property
    def writable(self) -> bool:
        return self.connected

    def start(self) -> None:
        self._nats.clients.append(self)
        self.process.on_death.append(self.leave)
        self._reconnect_soon()

    async def close(self) -> None:
        self.leave()

    def leave(self) -> None:
        self.connected = False
        if self in self._nats.clients:
            self._nats.clients.remove(self)

    def switch(self, reason: str) -> None:
        if self.connected:
            self.disconnect(reason)
            self._reconnect_soon()

    # -- What a schedule does to it -----------------------------------------------------------------------------------

    def cut_off(self) -> None:
        """Lose everything from now on; the client notices later."""
        self.cut = True
        self.process.call_later(NOTICE_SECONDS, self._notice)

    def heal(self) -> None:
        self.cut = False
        if not self.connected:
            self._reconnect_soon()

    def reset(self) -> None:
        """The connection breaks, and the client connects again."""
        self.switch("the server closed the connection")

    def _notice(self) -> None:
        if self.cut and self.connected:
            self.disconnect("the server is silent")

    def disconnect(self, reason: str) -> None:
        self.connected, self.lost_at, self.problem = False, time.monotonic(), reason
        for answer in self._requests.values():
            if not answer.done():
                answer.set_exception(NotConnected(reason))

    def _reconnect_soon(self) -> None:
        self.process.call_later(0.01 + 0.1 * self._nats._random.random(), self._reconnect)

    def _reconnect(self) -> None:
        if not self.connected and not self.cut and self in self._nats.clients:
            self.connected = True
            self.connection += 1
            self.out.last = self.back.last = self.stream.last = 0.0
            self.on_connected()

    # -- Messages -----------------------------------------------------------------------------------------------------

    def subscribe(self, subject: bytes, handler: Handler) -> None:
        self._exact[subject] = handler

    def inbox(self, handler: Handler) -> bytes:
        subject = self._name + b"-%d" % next(self._numbers)
        self._inboxes[subject] = handler
        return subject

    def handler_of(self, subject: bytes) -> Handler | None:
        return self._exact.get(subject) or self._inboxes.get(subject.rsplit(b".", 1)[0])

    def receive(self, connection: int, handler: Handler, message: Message) -> None:
        if self.connected and connection == self.connection:
            handler(message)

    def publish(self, subject: bytes, data: bytes, reply: bytes = b"") -> bool:
        if self.connected:
            self._nats.publish(self, subject, data, reply)
        return self.connected

    async def request(self, subject: bytes, data: bytes, timeout_seconds: float) -> Message:
        reply = self._name + b".%d" % next(self._numbers)
        answer: asyncio.Future[Message] = self.process.create_future()
        self._requests[reply] = answer
        try:
            if not self.publish(subject, data, reply):
                raise NotConnected(self.problem)
            async with asyncio.timeout(timeout_seconds):
                return await answer
        finally:
            del self._requests[reply]

    def _answered(self, message: Message) -> None:
        answer = self._requests.get(message.subject)
        if answer is not None and not answer.done():
            answer.set_result(message)


def stored_message(subject: bytes, sequence: int, data: bytes) -> Message:
    """A message of the stream as it arrives at a node."""
    return Message(subject, b"", b"NATS/1.0\r\nNats-Sequence: %d\r\n\r\n" % sequence, data)
