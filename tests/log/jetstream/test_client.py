"""The NATS client against real servers: it connects, reconnects, and moves on to another server."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from headwater.log.jetstream import client as client_module
from headwater.log.jetstream.client import Client, NotConnected
from headwater.log.jetstream.wire import Message
from headwater.testing.nats import NatsServers, running_nats

from .nodes import until

LOOPS = {"asyncio": asyncio.run, "uvloop": uvloop.run}


def run(urls: list[str], use: Callable[[Client], Awaitable[None]]) -> None:
    async def main() -> None:
        client = Client(urls, "test")
        client.start()
        await use(client)
        await client.close()

    for run_on_loop in LOOPS.values():
        run_on_loop(main())


def test_messages_arrive_on_every_subscription_of_their_subject(nats: NatsServers) -> None:
    async def use(client: Client) -> None:
        received: list[bytes] = []
        client.subscribe(b"client.a", lambda message: received.append(b"1" + message.data))
        await until(lambda: client.connected)
        client.subscribe(b"client.*", lambda message: received.append(b"2" + message.data))
        client.publish(b"client.a", b"x")
        await until(lambda: len(received) == 2)
        assert sorted(received) == [b"1x", b"2x"]

    run(nats.urls, use)


def test_a_request_is_answered_or_fails(nats: NatsServers) -> None:
    async def use(client: Client) -> None:
        with pytest.raises(NotConnected):
            await client.request(b"client.echo", b"x", 1)
        await until(lambda: client.connected)

        def echo(message: Message) -> None:
            client.publish(message.reply, message.data * 2)

        client.subscribe(b"client.echo", echo)
        assert (await client.request(b"client.echo", b"x", 1)).data == b"xx"
        assert (await client.request(b"client.nobody", b"x", 1)).status == 503
        client.subscribe(b"client.mute", lambda message: None)
        with pytest.raises(TimeoutError):
            await client.request(b"client.mute", b"x", 0.05)

    run(nats.urls, use)


def test_a_lost_connection_is_replaced_and_keeps_its_subscriptions(nats: NatsServers) -> None:
    async def use(client: Client) -> None:
        received: list[bytes] = []
        client.subscribe(b"client.b", lambda message: received.append(message.data))
        client.subscribe(b"client.mute", lambda message: None)
        await until(lambda: client.connected)
        waiting = asyncio.create_task(client.request(b"client.mute", b"x", 10))
        await asyncio.sleep(0)
        client.switch("test")
        with pytest.raises(NotConnected, match="test"):
            await waiting
        assert not client.publish(b"client.b", b"lost")
        await until(lambda: client.connected)
        client.publish(b"client.b", b"x")
        await until(lambda: received == [b"x"])

    run(["nats://127.0.0.1:1", *nats.urls], use)


def test_a_paused_server_is_left_for_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "PING_SECONDS", 0.05)
    with running_nats(3) as servers:
        by_name = {server.name: server for server in servers.servers}

        async def use(client: Client) -> None:
            await until(lambda: client.connected)
            first = client.info.server_name
            by_name[first].pause()
            await until(lambda: client.connected and client.info.server_name != first)
            by_name[first].resume()

        run(servers.urls, use)


def test_a_server_that_is_none_is_reported_and_tried_no_more_than_often(nats: NatsServers) -> None:
    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n")
        await writer.drain()
        await reader.read()
        writer.close()

    async def use(client: Client) -> None:
        began = time.monotonic()
        await until(lambda: "does not speak the NATS protocol" in client.problem)
        assert not client.connected
        assert time.monotonic() - began < 10

    async def main() -> None:
        server = await asyncio.start_server(hello, "127.0.0.1", 0)
        client = Client([f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"], "test")
        client.start()
        await use(client)
        await client.close()
        server.close()
        await asyncio.sleep(0.01)

    asyncio.run(main())
