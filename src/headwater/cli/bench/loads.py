"""The three loads: many writers, many live readers, many replays. Each reads back what it wrote and compares it."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from headwater.cli.bench.results import Check, Latencies, Result
from headwater.cli.bench.wire import BenchFailed, Connection, pages, sse_data

TEXT = {"Content-Type": "text/plain"}
FILL_BYTES = 1024 * 1024
SETTLE_SECONDS_MAX = 60.0
"""How long readers may take to receive the last event."""

Show = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Load:
    """The parameters of a measurement; each load uses those that it needs."""

    connect: Callable[[], Connection]
    show: Show
    seconds: float
    message_bytes: int
    keep: bool = False


def message(stream: int, number: int, size: int, at_ns: int = 0) -> bytes:
    """Return a unique message of exactly this size, without line ends."""
    head = b"%06x.%010x.%016x." % (stream, number, at_ns)
    return (head + b"0123456789abcdef" * (size // 16 + 1))[:size]


MESSAGE_BYTES_MIN = len(message(0, 0, 100).rpartition(b".")[0]) + 1


async def append(load: Load, result: Result, streams: int, connections: int) -> None:
    """Append to streams with one writer each; the writers share connections."""
    names = _names(streams)
    latencies = Latencies()
    counts = [0] * streams
    deadline = began = 0.0

    async def write(connection: Connection, mine: range) -> None:
        while time.monotonic() < deadline:
            for stream in mine:
                body = message(stream, counts[stream], load.message_bytes)
                sent_at = time.monotonic_ns()
                await connection.ask("POST", names[stream], TEXT, body)
                latencies.add(time.monotonic_ns() - sent_at)
                counts[stream] += 1
            load.show(f"{latencies.count:,} appends, {max(deadline - time.monotonic(), 0):.0f} s left")

    async def verify(connection: Connection, mine: range) -> None:
        for stream in mine:
            load.show(f"reading back {names[stream]}")
            content = partial(message, stream, size=size)
            await _verify(connection, names[stream], counts[stream], content, result.check)

    size = load.message_bytes
    shares = [range(first, streams, connections) for first in range(min(connections, streams))]
    async with _streams(load, names, len(shares)) as opened:
        began = time.monotonic()
        deadline = began + load.seconds
        await _all(write(connection, share) for connection, share in zip(opened, shares, strict=True))
        seconds = time.monotonic() - began
        await _all(verify(connection, share) for connection, share in zip(opened, shares, strict=True))
    result.measured("appends", latencies.count, latencies.count * size, seconds, latencies)


async def fanout(load: Load, result: Result, readers: int, rate: float) -> None:
    """Deliver one stream, written at a steady rate, to many SSE readers."""
    [name] = _names(1)
    latencies = Latencies()
    sent: list[bytes] = []
    connected = 0
    deliveries = 0

    async def listen(connection: Connection) -> bytes:
        nonlocal connected, deliveries
        digest, rest, first = sha256(), b"", True
        async for data in sse_data(connection, name):
            connected += first
            first = False
            digest.update(data)
            now, rest = time.monotonic_ns(), rest + data
            while len(rest) >= load.message_bytes:
                latencies.add(now - int(rest[18:34], 16))
                rest = rest[load.message_bytes :]
                deliveries += 1
        return digest.digest()

    async def speak(connection: Connection) -> float:
        while connected < readers:
            load.show(f"{connected:,} of {readers:,} readers connected")
            await asyncio.sleep(0.02)
        began = time.monotonic()
        for number in range(max(int(rate * load.seconds), 1)):
            await asyncio.sleep(max(began + number / rate - time.monotonic(), 0))
            body = message(0, number, load.message_bytes, time.monotonic_ns())
            await connection.ask("POST", name, TEXT, body)
            sent.append(body)
            load.show(f"{len(sent):,} events sent, {deliveries:,} delivered")
        await connection.ask("POST", name, {"Stream-Closed": "true"})
        return began

    async with _streams(load, [name], 1) as [writer]:
        listening = [asyncio.create_task(listen(load.connect())) for _ in range(readers)]
        try:
            began = await _while(listening, speak(writer))
            async with asyncio.timeout(SETTLE_SECONDS_MAX):
                digests = await asyncio.gather(*listening)
        except TimeoutError:
            raise BenchFailed(f"Readers lagged by more than {SETTLE_SECONDS_MAX:g} s; use fewer.") from None
        finally:
            for task in listening:
                task.cancel()
            await asyncio.gather(*listening, return_exceptions=True)
        seconds = time.monotonic() - began
        await _verify(writer, name, len(sent), sent.__getitem__, result.check)
    right = sha256(b"".join(sent)).digest()
    result.check.messages += deliveries
    result.check.lost += max(len(sent) * readers - deliveries, 0)
    result.check.doubled += max(deliveries - len(sent) * readers, 0)
    result.check.changed += sum(digest != right for digest in digests)
    result.measured("deliveries", deliveries, deliveries * load.message_bytes, seconds, latencies)


async def replay(load: Load, result: Result, clients: int, messages: int) -> None:
    """Read one stream from beginning to end with many clients, again and again."""
    [name] = _names(1)
    latencies = Latencies()
    size = load.message_bytes
    content = b"".join(message(0, number, size) for number in range(messages))
    right = sha256(content).digest()

    async def read(connection: Connection, deadline: float) -> None:
        while True:
            digest, began_at = sha256(), time.monotonic_ns()
            async for data in pages(connection, name):
                digest.update(data)
            latencies.add(time.monotonic_ns() - began_at)
            if digest.digest() != right:
                await _verify(connection, name, messages, partial(message, 0, size=size), result.check)
                result.check.changed += result.check.ok
            result.check.messages += messages
            load.show(f"{latencies.count:,} replays, {max(deadline - time.monotonic(), 0):.0f} s left")
            if time.monotonic() >= deadline:
                return

    async with _streams(load, [name], clients) as opened:
        step = max(FILL_BYTES // size, 1) * size
        for at in range(0, len(content), step):
            await opened[0].ask("POST", name, TEXT, content[at : at + step])
        began = time.monotonic()
        await _all(read(connection, began + load.seconds) for connection in opened)
        seconds = time.monotonic() - began
    result.measured("replays", latencies.count, latencies.count * len(content), seconds, latencies)


# -- Shared by the loads -----------------------------------------------------------------------------------------------


def _names(count: int) -> list[str]:
    token = secrets.token_hex(4)
    return [f"bench-{token}-{number}" for number in range(count)]


@asynccontextmanager
async def _streams(load: Load, names: list[str], connections: int) -> AsyncIterator[list[Connection]]:
    """Create streams and open connections for them; delete the streams at the end."""
    opened = [load.connect() for _ in range(connections)]

    async def each(connection: Connection, method: str, share: list[str], *, ok: bool = True) -> None:
        for name in share:
            load.show(f"{method} {name}")
            await connection.ask(method, name, TEXT if method == "PUT" else {}, ok=ok)

    shares = [names[first::connections] for first in range(connections)]
    try:
        await _all(each(connection, "PUT", share) for connection, share in zip(opened, shares, strict=True))
        yield opened
    finally:
        for connection in opened:
            # A failure may have left a request unanswered; the next request opens a new connection.
            connection.close()
        with suppress(BenchFailed):
            if not load.keep:
                work = zip(opened, shares, strict=True)
                await _all(each(connection, "DELETE", share, ok=False) for connection, share in work)
        for connection in opened:
            connection.close()


async def _verify(connection: Connection, name: str, count: int, content: Callable[[int], bytes], check: Check) -> None:
    """Compare a stream with what was acknowledged."""
    expected, found = sha256(), sha256()
    for number in range(count):
        expected.update(content(number))
    async for data in pages(connection, name):
        found.update(data)
    check.messages += count
    if found.digest() != expected.digest():
        check.explain(b"".join([data async for data in pages(connection, name)]), count, content)


async def _all(work: Iterable[Awaitable[None]]) -> None:
    """Run everything concurrently; the first failure cancels the rest."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _while(others: list["asyncio.Task[bytes]"], work: Awaitable[float]) -> float:
    """Await the work, unless one of the other tasks fails first."""
    mine = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait([mine, *others], return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            if task is not mine:
                task.result()
        return await mine
    finally:
        mine.cancel()
