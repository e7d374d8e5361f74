"""Following many streams on one connection to a real server, also one that is killed, and through a faulty network."""

import json
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from headwater.client import NOW, Client, NotFound, OffsetTrimmed, RetryPolicy
from headwater.testing import RunningServer, running_server
from headwater.testing.ports import free_port

from .conftest import Both, run
from .proxy import FaultyProxy
from .test_restarts import JOIN_SECONDS, PATIENT

JSON = "application/json"
TEXT = "text/plain"
STREAMS = 20
STEADY = RetryPolicy(attempts_max=400, first_delay_seconds=0.005, delay_seconds_max=0.02)


def test_a_follower_sees_what_is_there_and_what_comes_in_every_stream(
    server: RunningServer, name: str, client_of: Both
) -> None:
    async def check() -> None:
        names = [f"{name}-text", f"many/{name}-json", f"many/{name}-bytes"]
        async with client_of(server.url) as client:
            for one, kind in zip(names, (TEXT, JSON, "application/octet-stream"), strict=True):
                await client.stream(one).create(kind, body="[1]" if kind == JSON else "old")
            writer = threading.Thread(target=write, args=(names,))
            found: dict[str, bytes] = dict.fromkeys(names, b"")
            async with client.follow_many({names[0]: None, names[1]: "-1", names[2]: NOW}) as follower:
                async for one, chunk in follower:
                    if not any(found.values()):
                        writer.start()
                    found[one] += chunk.data
            writer.join()
            assert found == {names[0]: b"oldnew", names[1]: b'[1][{"n" : 2}]', names[2]: b"new"}
            assert {one: int(offset) for one, offset in follower.offsets.items()} == dict(
                zip(names, (6, 10, 6), strict=True)
            )

    def write(names: list[str]) -> None:
        with Client(server.url) as client:
            client.stream(names[0]).close_stream("new")
            client.stream(names[1]).close_stream('{"n" : 2}')
            client.stream(names[2]).close_stream("new")

    run(check())


def test_a_follower_outlasts_responses_that_end(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(server.url) as client:
            stream = client.stream(name)
            await stream.create(JSON)
            writer = threading.Thread(target=write)
            writer.start()
            seen: list[int] = []
            async with client.follow_many({name: None}) as follower:
                async for _, chunk in follower:
                    seen += chunk.json()
            writer.join()
            assert seen == list(range(60))

    def write() -> None:
        # The server ends its responses after two seconds.
        with Client(server.url) as client:
            for number in range(60):
                client.stream(name).append_json(number)
                threading.Event().wait(0.08)
            client.stream(name).close_stream()

    run(check())


def test_a_missing_stream_raises_or_is_dropped(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(server.url) as client:
            await client.stream(name).create(TEXT, body="all", closed=True)
            wanted = {f"{name}-missing": None, name: None}
            with pytest.raises(NotFound, match="does not exist") as error:
                async for _ in client.follow_many(wanted):
                    pass
            assert error.value.url == f"{server.url}/v1/stream/{name}-missing"
            follower = client.follow_many(wanted, on_refused="drop")
            assert [(one, chunk.data) async for one, chunk in follower] == [(name, b"all")]
            assert isinstance(follower.refused[f"{name}-missing"], NotFound)

    run(check())


def test_a_trimmed_stream_says_where_it_begins_now(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(server.url) as client:
            bucket = client.bucket("trimmed")
            await bucket.create(exist_ok=True)
            stream = bucket.stream(name)
            await stream.create(TEXT, body="abcdef")
            await stream.publish_snapshot(b"six", offset="6")
            await stream.retain_from(offset="6")
            with pytest.raises(OffsetTrimmed) as error:
                async for _ in client.follow_many({f"trimmed/{name}": None}):
                    pass
            assert error.value.earliest_offset == f"{6:020d}"

    run(check())


def test_a_follower_ends_when_its_time_is_up(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(server.url) as client:
            await client.stream(name).create(TEXT, body="all")
            follower = client.follow_many({name: None}, timeout_seconds=0.3)
            assert [chunk.data async for _, chunk in follower] == [b"all"]
            assert int(follower.offsets[name]) == 3

    run(check())


def check_order(seen: dict[str, list[int]], names: list[str], count: int) -> None:
    for name in names:
        assert seen[name] == list(range(count)), name


def test_a_follower_outlives_the_server(tmp_path: Path) -> None:
    port, lives, messages = free_port(), 4, 10
    names = [f"run/{number}" for number in range(STREAMS)]
    seen: dict[str, list[int]] = defaultdict(list)
    url = f"http://127.0.0.1:{port}"
    with Client(url, retry=PATIENT, follow_retry=PATIENT) as client:

        def follow() -> None:
            with client.follow_many(dict.fromkeys(names)) as follower:
                for name, chunk in follower:
                    seen[name] += chunk.json()

        follower = threading.Thread(target=follow)
        for life in range(lives):
            with running_server("--port", str(port), data=tmp_path / "data") as server:
                if life == 0:
                    for name in names:
                        client.stream(name).create(JSON)
                    follower.start()
                for number in range(life * messages, (life + 1) * messages):
                    for name in names:
                        client.stream(name, content_type=JSON).append_json(number)
                if life == lives - 1:
                    for name in names:
                        client.stream(name).close_stream()
                    follower.join(JOIN_SECONDS)
                else:
                    server.kill()
    assert not follower.is_alive()
    check_order(seen, names, lives * messages)


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_or_repeated_on_a_network_that_breaks_connections(
    server: RunningServer, name: str, seed: int
) -> None:
    names = [f"{name}/{number}" for number in range(8)]
    seen: dict[str, list[Any]] = defaultdict(list)

    def write(client: Client, proxy: FaultyProxy) -> None:
        for number in range(40):
            for one in names:
                client.stream(one, content_type=JSON).append(json.dumps(number))
        proxy.calm = True
        for one in names:
            client.stream(one).close_stream()

    with Client(server.url) as client, FaultyProxy(server.url, seed).running() as proxy:
        for one in names:
            client.stream(one).create(JSON)
        writer = threading.Thread(target=write, args=(client, proxy))
        with (
            Client(proxy.url, follow_retry=STEADY, timeout_seconds=5, wait_timeout_seconds=2) as behind,
            behind.follow_many(dict.fromkeys(names), timeout_seconds=JOIN_SECONDS) as follower,
        ):
            writer.start()
            for one, chunk in follower:
                seen[one] += chunk.json()
        writer.join()
        assert proxy.faults
    check_order(seen, names, 40)
