"""A NATS client for one purpose: cheap messages, and a connection that can be replaced at any moment.

Messages are parsed as bytes arrive and handed over in the same turn of the loop, without a task or a queue between. A
connection on which nothing answers is dropped without waiting for it. Either way the next server is tried, for ever.
"""

import asyncio
import logging
import secrets
import ssl
import time
import zlib
from collections.abc import Callable
from itertools import count
from typing import cast

from headwater.log.jetstream import wire
from headwater.log.jetstream.wire import Address, Message, ProtocolBroken, ServerInfo

CONNECT_SECONDS = 1.0
"""How long a server may take to accept a connection, and to greet."""
RETRY_SECONDS = 0.05
RETRY_SECONDS_MAX = 1.0
"""The pause after all servers were tried in vain; doubled each time."""
PING_SECONDS = 1.0
UNANSWERED_MAX = 3
"""How often a server is asked whether it is there, and after how many questions without a byte the connection is
dropped. Questions count and not time: a process that was paused finds answers that have long been waiting."""

Handler = Callable[[Message], None]

log = logging.getLogger(__name__)


class NotConnected(Exception):
    """There is no connection to a NATS server now, or it was lost before the answer came."""


class LoginRefused(Exception):
    """A NATS server refused the connection; the message is one sentence for a person."""


class Link(asyncio.Protocol):
    """One connection to one server."""

    def __init__(self, deliver: Callable[[int, Message], None]) -> None:
        self._deliver = deliver
        self._parser = wire.Parser(self)
        self._loop = asyncio.get_running_loop()
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self.greeting: asyncio.Future[ServerInfo] = self._loop.create_future()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        """Set by the first PONG: the server has accepted the login."""
        self.ended: asyncio.Future[str] = self._loop.create_future()
        self.writable = True
        self.unanswered = 0
        """How many questions whether the server is there were sent since its last byte."""

    # -- What the loop calls --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it.

    def data_received(self, data: bytes) -> None:
        self.unanswered = 0
        try:
            self._parser.feed(data)
        except ProtocolBroken as error:
            self.end(f"the server does not speak the NATS protocol: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self._end(str(error or "the server closed the connection"))

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True

    # -- What the parser finds ------------------------------------------------------------------------------------

    def on_message(self, sid: int, message: Message) -> None:
        self._deliver(sid, message)

    def on_info(self, info: ServerInfo) -> None:
        if not self.greeting.done():
            self.greeting.set_result(info)

    def on_ping(self) -> None:
        self.write(wire.PONG)

    def on_pong(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)

    def on_error(self, reason: str) -> None:
        self.end(f"the server said: {reason}")

    # -- What the client does -------------------------------------------------------------------------------------

    def write(self, *pieces: bytes) -> None:
        """Send these bytes together with everything else that this turn of the loop brings."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.extend(pieces)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(out))

    def end(self, reason: str) -> None:
        """Drop the connection at once, with everything that is still to be sent."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)
        for future in (self.greeting, self.ready):
            if not future.done():
                future.set_exception(LoginRefused(f"The NATS server ended the connection: {reason}."))
                future.exception()  # Retrieved, whether or not it is awaited.

    async def start_tls(self, host: str) -> None:
        assert self._transport is not None
        transport = await self._loop.start_tls(
            self._transport, self, ssl.create_default_context(), server_hostname=host
        )
        assert transport is not None
        self._transport = transport


class Client:
    """Keeps one connection to one of several servers, and all subscriptions on it."""

    def __init__(self, urls: list[str], name: str) -> None:
        self._addresses = [wire.parse_address(url) for url in urls]
        # Nodes begin with different servers, so that the loss of one does not stop them all.
        self._next = zlib.crc32(name.encode()) % len(self._addresses)
        self._name = name
        self._link: Link | None = None
        self._sids = count(1)
        self._subscriptions: dict[int, tuple[bytes, Handler]] = {}
        self._inbox = b"_INBOX." + secrets.token_hex(11).encode()
        self._requests: dict[bytes, asyncio.Future[Message]] = {}
        self._numbers = count(1)
        self._task: asyncio.Task[None] | None = None
        self.info = ServerInfo()
        self.lost_at = time.monotonic()
        """Since when there has been no connection, if there is none."""
        self.problem = "no server was tried yet"
        self.on_connected: Callable[[], None] = lambda: None
        self.subscribe(self._inbox + b".*", self._answered)

    @property
    def connected(self) -> bool:
        return self._link is not None

    @property
    def writable(self) -> bool:
        """Whether there is a connection that takes more bytes now."""
        return self._link is not None and self._link.writable

    @property
    def servers(self) -> str:
        """The addresses of all servers, for a message."""
        return ", ".join(address.name for address in self._addresses)

    def start(self) -> None:
        """Connect, and stay connected; call it on the event loop."""
        self._task = asyncio.get_running_loop().create_task(self._stay_connected())

    async def close(self) -> None:
        """End the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def switch(self, reason: str) -> None:
        """Drop the connection, and try the next server."""
        if self._link is not None:
            self._link.end(reason)

    def subscribe(self, subject: bytes, handler: Handler) -> None:
        """Have every message on a subject handed over, on this connection and on those that follow."""
        sid = next(self._sids)
        self._subscriptions[sid] = (subject, handler)
        if self._link is not None:
            self._link.write(wire.subscribe(subject, sid))

    def inbox(self, handler: Handler) -> bytes:
        """The beginning of subjects on which answers to this client arrive; add one word."""
        subject = self._inbox + b"-%d" % next(self._numbers)
        self.subscribe(subject + b".*", handler)
        return subject

    def publish(self, subject: bytes, data: bytes, reply: bytes = b"") -> bool:
        """Send a message; False if there is no connection."""
        if self._link is None:
            return False
        self._link.write(*wire.publish(subject, reply, data))
        return True

    async def request(self, subject: bytes, data: bytes, timeout_seconds: float) -> Message:
        """Send a message and wait for the first answer; NotConnected if it cannot come, TimeoutError if it does not."""
        reply = self._inbox + b".%d" % next(self._numbers)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
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

    def _deliver(self, sid: int, message: Message) -> None:
        self._subscriptions[sid][1](message)

    async def _stay_connected(self) -> None:
        failures = 0
        try:
            while True:
                address = self._addresses[self._next]
                self._next = (self._next + 1) % len(self._addresses)
                try:
                    link = await self._connect(address)
                except (OSError, TimeoutError, LoginRefused) as error:
                    self.problem = f"{address.name}: {str(error).rstrip('.') or 'no answer'}"
                    failures += 1
                    if failures % len(self._addresses) == 0:
                        rounds = failures // len(self._addresses)
                        await asyncio.sleep(min(RETRY_SECONDS * 2 ** min(rounds, 10), RETRY_SECONDS_MAX))
                    continue
                failures = 0
                await self._use(link, address)
        finally:
            if self._link is not None:
                self._link.end("the client is closing")
                self._link = None

    async def _connect(self, address: Address) -> Link:
        loop = asyncio.get_running_loop()
        link: Link | None = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, link = await loop.create_connection(lambda: Link(self._deliver), address.host, address.port)
                self.info = await link.greeting
                if address.tls or self.info.tls_required:
                    await link.start_tls(address.host)
                link.write(wire.connect(address, self._name), wire.PING)
                await link.ready
                return link
        except BaseException as error:
            if link is not None:
                link.end(str(error))
            raise

    async def _use(self, link: Link, address: Address) -> None:
        """Serve on a connection until it ends."""
        self._link = link
        log.debug("connected to NATS at %s", address.name)
        for sid, (subject, _) in self._subscriptions.items():
            link.write(wire.subscribe(subject, sid))
        self.on_connected()
        while not link.ended.done():
            link.unanswered += 1
            link.write(wire.PING)
            await asyncio.wait([link.ended], timeout=PING_SECONDS)
            if link.unanswered >= UNANSWERED_MAX:
                link.end("the server is silent")
        self._link, self.lost_at = None, time.monotonic()
        self.problem = f"{address.name}: {link.ended.result()}"
        log.info("the connection to NATS at %s ended, the next server is tried: %s", address.name, link.ended.result())
        for answer in self._requests.values():
            if not answer.done():
                answer.set_exception(NotConnected(self.problem))
