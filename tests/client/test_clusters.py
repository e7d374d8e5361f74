"""Clients with several URLs, whose nodes die and return: nothing is lost, nothing is doubled."""

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headwater.client import (
    Admin,
    AsyncClient,
    Client,
    NotFound,
    OutcomeUnknown,
    RetryPolicy,
    ServerUnavailable,
    TransportFailed,
)
from headwater.client.values import Live
from headwater.testing import RunningServer

from .conftest import Both, run
from .fronts import Front, fronts_of

JSON = "application/json"
PATIENT = RetryPolicy(attempts_max=200, first_delay_seconds=0.005, delay_seconds_max=0.05)
JOIN_SECONDS = 60.0
TURNS = 12


@pytest.fixture
def fronts(server: RunningServer) -> Iterator[list[Front]]:
    with fronts_of(server.url) as fronts:
        yield fronts


def urls_of(fronts: list[Front]) -> list[str]:
    return [front.url for front in fronts]


def test_a_client_uses_the_next_url_while_one_is_dead(fronts: list[Front], client_of: Both, name: str) -> None:
    async def check() -> None:
        async with client_of(urls_of(fronts)) as client:
            stream = client.stream(name)
            await stream.create(JSON)
            for dead in (0, 1, 2, 0):
                fronts[dead].kill()
                # A kept connection that was reset may have carried the append, so it is a read that finds out.
                await stream.head()
                await stream.append_json(dead)
                assert (await stream.read_json())[-1] == dead
                fronts[dead].revive()
            assert await stream.read_json() == [0, 1, 2, 0]

    run(check())


def test_a_client_stays_at_one_url_and_keeps_its_connection(fronts: list[Front], client_of: Both, name: str) -> None:
    async def check() -> None:
        async with client_of(urls_of(fronts)) as client:
            stream = client.stream(name)
            await stream.create(JSON)
            for number in range(20):
                await stream.append_json(number)
        assert [front.connections for front in fronts] == [1, 0, 0]

    run(check())


def test_a_plain_write_goes_elsewhere_if_a_node_did_nothing(fronts: list[Front], client_of: Both, name: str) -> None:
    async def check() -> None:
        fronts[0].mode = "refuse"
        fronts[1].kill()
        async with client_of(urls_of(fronts)) as client:
            stream = client.stream(name, content_type=JSON)
            await stream.create()
            await stream.append_json("once")
            assert await stream.read_json() == ["once"]
            assert fronts[0].connections == 1

    run(check())


def test_a_plain_write_with_an_unknown_outcome_is_reported(fronts: list[Front], client_of: Both, name: str) -> None:
    async def check() -> None:
        async with client_of(urls_of(fronts)) as client:
            await client.stream(name).create(JSON)
        fronts[0].mode, fronts[0].code = "lose", "outcome_unknown"
        async with client_of(urls_of(fronts)) as client:
            stream = client.stream(name, content_type=JSON)
            with pytest.raises(OutcomeUnknown, match=f"^POST {fronts[0].url}/v1/stream/{name} was answered with 503"):
                await stream.append_json("once")
            # It did happen, and the next request goes to another node.
            assert await stream.read_json() == ["once"]

    run(check())


def test_a_producer_repeats_a_write_with_an_unknown_outcome(fronts: list[Front], client_of: Both, name: str) -> None:
    async def check() -> None:
        fronts[0].mode, fronts[0].code = "lose", "outcome_unknown"
        async with client_of(urls_of(fronts)) as client:
            stream = client.stream(name, content_type=JSON)
            assert (await stream.create(if_exists="fail")).new
            async with stream.producer("p") as producer:
                await producer.append_json("once")
            assert (await stream.append_once("[1]", producer_id="q", epoch=0, seq=0)).duplicate is False
            assert await stream.read_json() == ["once", 1]

    run(check())


def test_a_node_that_answers_nothing_is_left(fronts: list[Front], client_of: Both, name: str) -> None:
    async def check() -> None:
        fronts[0].mode = "silent"
        async with client_of(urls_of(fronts), timeout_seconds=0.3) as client:
            await client.stream(name).create(JSON)
            assert await client.stream(name).read_json() == []
            assert fronts[0].connections == 1

    run(check())


def test_an_error_says_how_many_urls_failed_and_names_the_last(fronts: list[Front], client_of: Both) -> None:
    async def check() -> None:
        for front in fronts[:2]:
            front.kill()
        fronts[2].mode = "refuse"
        async with client_of(urls_of(fronts)) as client:
            with pytest.raises(ServerUnavailable) as refused:
                await client.stream("s").head()
            fronts[2].kill()
            with pytest.raises(TransportFailed) as failed:
                await client.stream("s").head()
        assert str(refused.value).endswith("; all 3 URLs failed.") and fronts[2].url in str(refused.value)
        assert str(failed.value).endswith("; all 3 URLs failed.") and not failed.value.sent
        assert sum(front.url in str(failed.value) for front in fronts) == 1

    run(check())


def test_a_refusal_of_the_cluster_is_not_asked_for_again(fronts: list[Front], client_of: Both, name: str) -> None:
    async def check() -> None:
        fronts[0].kill()
        async with client_of(urls_of(fronts)) as client:
            with pytest.raises(NotFound) as missing:
                await client.stream(name).read()
            assert missing.value.url == f"{fronts[1].url}/v1/stream/{name}"
            assert "URLs failed" not in str(missing.value)

    run(check())


def test_what_a_node_links_to_is_found_on_all_nodes(fronts: list[Front], client_of: Both, name: str) -> None:
    async def check() -> None:
        fronts[0].kill()
        async with client_of(urls_of(fronts)) as client:
            created = await client.stream(name).create(JSON, body="[1,2]")
            assert created.location == f"{fronts[1].url}/v1/stream/{name}"
            doc = client.bucket("_default").stream(name)
            await doc.publish_snapshot(b"state", record=1)
            # The latest snapshot is where the node redirects to.
            assert (await doc.snapshot()).data == b"state"
            fronts[1].kill()
            assert await client.stream(created.location).read_json() == [1, 2]
            assert (await doc.snapshot()).data == b"state"

    run(check())


def test_the_administrative_surface_has_all_urls(fronts: list[Front]) -> None:
    fronts[0].kill()
    with Admin(urls_of(fronts)) as admin:
        assert admin.status()["streams"] >= 0
        fronts[1].mode = "refuse"
        assert admin.whoami()["mode"]
        assert admin.url == fronts[0].url


# -- Producers and followers, while nodes die and return --------------------------------------------------------------


@contextlib.contextmanager
def dying(fronts: list[Front], seed: int) -> Iterator[Callable[[], int]]:
    """Kill and revive the front ends in turn, with at least one alive; gives the number of deaths so far."""
    dice, ended, deaths = random.Random(seed), threading.Event(), 0

    def kill_in_turn() -> None:
        nonlocal deaths
        while not ended.is_set():
            victims = dice.sample(fronts, dice.randrange(1, len(fronts)))
            for front in victims:
                front.kill()
                deaths += 1
            ended.wait(dice.random() * 0.15)
            for front in victims:
                front.revive()
            ended.wait(dice.random() * 0.05)

    def count() -> int:
        assert not killing.done() or ended.is_set(), killing.exception()
        return deaths

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill_in_turn)
        try:
            yield count
        finally:
            ended.set()
    killing.result(0)


def patient(kind: Any, fronts: list[Front]) -> Any:
    return kind(urls_of(fronts), retry=PATIENT, follow_retry=PATIENT, timeout_seconds=5, wait_timeout_seconds=5)


def write_until(producer: Any, deaths: Callable[[], int], count: int = TURNS) -> int:
    """Write numbers until nodes have died this often; returns how many numbers."""
    written = 0
    while deaths() < count:
        assert written < 100_000
        producer.append_json(written).result(JOIN_SECONDS)
        written += 1
    return written


LIVES: list[Live] = ["auto", "sse", "long-poll"]


@pytest.mark.parametrize("live", LIVES)
def test_a_producer_and_a_follower_outlive_their_nodes(fronts: list[Front], name: str, live: Live) -> None:
    seen: list[Any] = []
    with patient(Client, fronts) as client:
        stream = client.stream(name, content_type=JSON)
        stream.create()

        def follow() -> None:
            with patient(Client, fronts) as other, other.stream(name).follow(live=live) as follower:
                seen.extend(follower.messages())

        following = threading.Thread(target=follow)
        following.start()
        with dying(fronts, LIVES.index(live)) as deaths, stream.producer("p", linger_ms=0) as producer:
            written = write_until(producer, deaths)
            producer.close_stream()
            following.join(JOIN_SECONDS)
        assert not following.is_alive()
        assert seen == list(range(written)) == stream.read_json()


def test_a_follower_of_many_streams_outlives_its_nodes(fronts: list[Front], name: str) -> None:
    names = [f"{name}-{number}" for number in range(3)]
    seen: dict[str, list[Any]] = {one: [] for one in names}
    with patient(Client, fronts) as client:
        streams = [client.stream(one, content_type=JSON) for one in names]
        for stream in streams:
            stream.create()

        def follow() -> None:
            with patient(Client, fronts) as other, other.follow_many(dict.fromkeys(names)) as follower:
                for one, chunk in follower:
                    seen[one].extend(chunk.json())

        following = threading.Thread(target=follow)
        following.start()
        with dying(fronts, 7) as deaths, contextlib.ExitStack() as stack:
            producers = [stack.enter_context(stream.producer("p", linger_ms=0)) for stream in streams]
            counts = [write_until(producer, deaths, 5 * at) for at, producer in enumerate(producers, 1)]
            for producer in producers:
                producer.close_stream()
            following.join(JOIN_SECONDS)
        assert not following.is_alive()
        assert seen == {one: list(range(count)) for one, count in zip(names, counts, strict=True)}


def test_an_asynchronous_producer_and_follower_outlive_their_nodes(fronts: list[Front], name: str) -> None:
    async def check() -> None:
        with dying(fronts, 11) as deaths:
            async with patient(AsyncClient, fronts) as client:
                stream = client.stream(name, content_type=JSON)
                await stream.create()
                async with asyncio.TaskGroup() as tasks:
                    reading = tasks.create_task(follow(stream))
                    written = 0
                    async with stream.producer("p", linger_ms=0, batch_messages_max=5) as producer:
                        while deaths() < TURNS and written < 100_000:
                            future = await producer.append_json(written)
                            written += 1
                            if written % 7 == 0:
                                await future
                        await producer.close_stream()
                assert reading.result() == list(range(written)) == await stream.read_json()

    async def follow(stream: Any) -> list[Any]:
        async with stream.follow() as follower:
            return [message async for message in follower.messages()]

    run(check())
