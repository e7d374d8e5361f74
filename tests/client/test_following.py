"""Following a stream with a real server."""

import asyncio
import threading
from typing import Any

import pytest

from headwater.client import NOW, AsyncClient, Client, IncarnationChanged
from headwater.testing import RunningServer

from .conftest import Both, run

JSON = "application/json"
TEXT = "text/plain"


def flat(server: RunningServer) -> str:
    return f"{server.url}/v1/stream"


@pytest.mark.parametrize("live", ["auto", "sse", "long-poll"])
@pytest.mark.parametrize("content_type", [TEXT, "application/octet-stream", JSON])
def test_a_follower_sees_what_is_there_and_what_comes(
    server: RunningServer, name: str, client_of: Both, live: str, content_type: str
) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(content_type)
            await stream.append("1")
            writer = threading.Thread(target=write, args=(flat(server), name))
            found = b""
            async with stream.follow(live=live) as follower:
                async for chunk in follower:
                    if not found:
                        assert chunk.up_to_date
                        writer.start()
                    found += chunk.data
            writer.join()
            assert follower.closed and follower.up_to_date
            expected = b"[1][2][3][4]" if content_type == JSON else b"1234"
            assert found.replace(b",", b"][") == expected
            assert follower.offset == (await stream.head()).next_offset

    def write(url: str, name: str) -> None:
        with Client(url) as client:
            stream = client.stream(name)
            stream.append("2")
            stream.append("3")
            stream.close_stream("4")

    run(check())


def test_a_follower_may_begin_at_the_tail(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(JSON, body="[1,2]")
            async with stream.follow(NOW) as follower:
                found: list[Any] = []
                async for chunk in follower:
                    if chunk.empty and not chunk.closed:
                        with Client(flat(server)) as other:
                            other.stream(name).append_json(3)
                            other.stream(name).close_stream()
                    found += chunk.json()
            assert found == [3]

    run(check())


def test_a_follower_may_stop_after_some_time(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(TEXT, body="x")
            for live in ("sse", "long-poll"):
                async with stream.follow(live=live, timeout_seconds=1.0) as follower:
                    assert [chunk.data async for chunk in follower] == [b"x"]
                assert not follower.closed

    run(check())


def test_a_follower_can_be_closed_from_another_thread(server: RunningServer, name: str) -> None:
    with Client(flat(server)) as client:
        stream = client.stream(name)
        stream.create(TEXT, body="x")
        follower = stream.follow(live="sse")
        assert next(follower).data == b"x"
        closer = threading.Timer(0.2, follower.close)
        closer.start()
        assert list(follower) == []
        closer.join()


def test_a_cancelled_follower_closes_its_connection(server: RunningServer, name: str) -> None:
    async def check() -> None:
        async with AsyncClient(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(TEXT)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2), stream.follow() as follower:
                    async for _ in follower:
                        pass
            assert await stream.read() == b""

    run(check())


def test_text_and_messages_come_one_by_one(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            text = client.stream(f"{name}-text")
            await text.create(TEXT)
            for byte in "aü€".encode():
                await text.append(bytes([byte]))
            await text.close_stream()
            messages = client.stream(f"{name}-json")
            await messages.create(JSON, body="[1,[2],{}]", closed=True)
            if isinstance(client, AsyncClient):
                assert "".join([piece async for piece in text.follow().text()]) == "aü€"
                assert [message async for message in messages.follow().messages()] == [1, [2], {}]
            else:
                assert "".join(await text.follow().text()) == "aü€"
                assert list(await messages.follow().messages()) == [1, [2], {}]

    run(check())


def test_a_stream_that_was_created_again_is_not_mistaken_for_the_old_one(
    server: RunningServer, name: str, client_of: Both
) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            created = await stream.create(TEXT, body="old")
            held = client.stream(name, content_type=TEXT, incarnation=created.incarnation)
            with pytest.raises(IncarnationChanged):
                async with stream.follow(live="long-poll") as follower:
                    async for _ in follower:
                        await stream.delete()
                        await stream.create(TEXT, body="new and longer")
            with pytest.raises(IncarnationChanged):
                await held.append("x")
            assert await stream.read_text() == "new and longer"

    run(check())
