"""Through a proxy that breaks connections, producers write everything once and followers see everything once.

Each seed is a repeatable run. `TESTS_CLIENT_SEEDS` sets their number, for a longer test.
"""

import asyncio
import contextlib
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from headwater.client import Appended, AsyncClient, Chunk, Client, ClientError, OutcomeUnknown, RetryPolicy
from headwater.client.values import Live
from headwater.testing import RunningServer, running_server

from .proxy import FATES, FaultyProxy

SEEDS = range(int(os.environ.get("TESTS_CLIENT_SEEDS", "6")))
PATIENT = RetryPolicy(attempts_max=200, first_delay_seconds=0.001, delay_seconds_max=0.02)
MESSAGES = 150
JOIN_SECONDS = 60.0
FAULTS: Counter[str] = Counter()


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server("--page-bytes", "700", "--long-poll-seconds", "0.3", "--sse-seconds", "0.5") as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def _count() -> Iterator[None]:
    yield
    print(f"\nFaults: {FAULTS.total()} ({dict(FAULTS)})")


def client_of(url: str) -> Client:
    return Client(f"{url}/v1/stream", retry=PATIENT, follow_retry=PATIENT, timeout_seconds=5, wait_timeout_seconds=2)


def async_client_of(url: str) -> AsyncClient:
    return AsyncClient(
        f"{url}/v1/stream", retry=PATIENT, follow_retry=PATIENT, timeout_seconds=5, wait_timeout_seconds=2
    )


def message(seed: int, number: int) -> str:
    dice = random.Random(seed * 1000 + number)
    filling = "".join(dice.choices("xyz \r\nü", k=dice.randrange(60)))
    return f"<{seed}:{number}:{filling}>"


# -- Producers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_blocking_producer_writes_each_message_once_and_in_order(server: RunningServer, seed: int) -> None:
    with client_of(server.url) as direct, FaultyProxy(server.url, seed).running() as proxy:
        name = f"producer-{seed}"
        direct.stream(name).create("application/json")
        with client_of(proxy.url) as client:
            stream = client.stream(name, content_type="application/json")
            with stream.producer("p", linger_ms=0, in_flight_max=1 + seed % 4, batch_messages_max=5) as producer:
                futures = [producer.append_json(number) for number in range(MESSAGES)]
                closed = producer.close_stream()
        FAULTS.update(proxy.faults)
        assert direct.stream(name).read_json() == list(range(MESSAGES))
        assert closed.next_offset == direct.stream(name).head().next_offset
        assert all(future.result().next_offset <= closed.next_offset for future in futures)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_asynchronous_producer_writes_each_message_once_and_in_order(server: RunningServer, seed: int) -> None:
    async def write(url: str, name: str) -> None:
        async with async_client_of(url) as client:
            stream = client.stream(name, content_type="text/plain")
            async with stream.producer("p", linger_ms=0, in_flight_max=1 + seed % 4, batch_bytes_max=200) as producer:
                for number in range(MESSAGES):
                    await producer.append(message(seed, number))
                    if number % 40 == 0:
                        await producer.flush()

    with client_of(server.url) as direct, FaultyProxy(server.url, 1_000 + seed).running() as proxy:
        name = f"async-producer-{seed}"
        direct.stream(name).create("text/plain")
        asyncio.run(write(proxy.url, name))
        FAULTS.update(proxy.faults)
        assert direct.stream(name).read_text() == "".join(message(seed, number) for number in range(MESSAGES))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plain_append_happens_once_or_raises_outcome_unknown(server: RunningServer, seed: int) -> None:
    # A network that repeats requests repeats plain appends too; producers exist for that.
    kinds = tuple(kind for kind in FATES if kind != "echo")
    with client_of(server.url) as direct, FaultyProxy(server.url, 4_000 + seed, kinds=kinds).running() as proxy:
        name = f"append-{seed}"
        direct.stream(name).create("application/json")
        unknown: set[int] = set()
        with client_of(proxy.url) as client:
            stream = client.stream(name, content_type="application/json")
            for number in range(MESSAGES):
                try:
                    stream.append_json(number)
                except OutcomeUnknown:
                    unknown.add(number)
        FAULTS.update(proxy.faults)
        written = direct.stream(name).read_json()
        assert unknown
        assert sorted(set(written)) == written
        assert set(range(MESSAGES)) - unknown <= set(written)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_that_claim_from_each_other_write_each_message_once_at_most(server: RunningServer, seed: int) -> None:
    with client_of(server.url) as direct, FaultyProxy(server.url, 5_000 + seed, rate=0.3).running() as proxy:
        name = f"claim-{seed}"
        direct.stream(name).create("application/json")
        with client_of(proxy.url) as client:
            stream = client.stream(name, content_type="application/json")
            both = [
                stream.producer("p", auto_claim=True, linger_ms=0, in_flight_max=3, batch_messages_max=4)
                for _ in range(2)
            ]
            futures: dict[tuple[int, int], Future[Appended]] = {}
            with contextlib.suppress(ClientError):
                for number in range(MESSAGES):
                    for writer, producer in enumerate(both):
                        futures[writer, number] = producer.append_json([writer, number])
            for producer in both:
                with contextlib.suppress(ClientError):
                    producer.close()
        FAULTS.update(proxy.faults)
        written = [(writer, number) for writer, number in direct.stream(name).read_json()]
        assert len(set(written)) == len(written)
        assert {key for key, future in futures.items() if future.exception() is None} <= set(written)
        for writer in range(2):
            numbers = [number for found, number in written if found == writer]
            assert numbers == sorted(numbers)


# -- Followers ---------------------------------------------------------------------------------------------------------

LIVES: list[Live] = ["auto", "sse", "long-poll"]


def write_slowly(server: RunningServer, name: str, seed: int) -> None:
    with client_of(server.url) as direct:
        stream = direct.stream(name)
        dice = random.Random(seed)
        with stream.producer("w", linger_ms=0) as producer:
            for number in range(MESSAGES):
                producer.append(message(seed, number))
                if dice.random() < 0.3:
                    producer.flush()
                    threading.Event().wait(dice.random() * 0.01)
            producer.close_stream()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("live", LIVES)
@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream"])
def test_a_blocking_follower_sees_every_byte_once_and_in_order(
    server: RunningServer, content_type: str, live: Live, seed: int
) -> None:
    name = f"follow-{content_type[:4]}-{live}-{seed}"
    with client_of(server.url) as direct, FaultyProxy(server.url, 2_000 + seed).running() as proxy:
        direct.stream(name).create(content_type)
        writer = threading.Thread(target=write_slowly, args=(server, name, seed))
        writer.start()
        with client_of(proxy.url) as client, client.stream(name).follow(live=live) as follower:
            chunks = list(follower)
        writer.join(JOIN_SECONDS)
        FAULTS.update(proxy.faults)
        check(chunks, seed, exact=live != "sse" or content_type != "text/plain")
        assert follower.closed and follower.offset == direct.stream(name).head().next_offset


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("live", LIVES)
def test_an_asynchronous_follower_sees_every_byte_once_and_in_order(
    server: RunningServer, live: Live, seed: int
) -> None:
    async def follow(url: str) -> list[Chunk]:
        async with async_client_of(url) as client, client.stream(name).follow(live=live) as follower:
            return [chunk async for chunk in follower]

    name = f"async-follow-{live}-{seed}"
    with client_of(server.url) as direct, FaultyProxy(server.url, 3_000 + seed).running() as proxy:
        direct.stream(name).create("application/octet-stream")
        writer = threading.Thread(target=write_slowly, args=(server, name, seed))
        writer.start()
        chunks = asyncio.run(follow(proxy.url))
        writer.join(JOIN_SECONDS)
        FAULTS.update(proxy.faults)
        check(chunks, seed)


def check(chunks: list[Chunk], seed: int, *, exact: bool = True) -> None:
    expected = "".join(message(seed, number) for number in range(MESSAGES))
    found = b"".join(chunk.data for chunk in chunks).decode()
    # Events have only one kind of line end, which `live="sse"` accepts.
    assert found == expected if exact else lines(found) == lines(expected)
    assert [chunk.closed for chunk in chunks].index(True) == len(chunks) - 1
    offsets = [chunk.next_offset for chunk in chunks]
    assert offsets == sorted(offsets)


def lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
