"""A turn of the event loop sends one long page, and short pages do not wait for the long ones."""

import asyncio

from headwater.http.connection.connection import PIPELINE_MAX, Connection
from headwater.http.context import LONG_PAGES_BYTES_MAX
from headwater.http.exchange.crowding import SHORT_PAGE_BYTES

from ..fronts import Front, Socket

READERS = 6
LONG = b"x" * LONG_PAGES_BYTES_MAX
ASK = b"GET /v1/stream/%b?offset=-1%b HTTP/1.1\r\nHost: localhost\r\n\r\n"
MORE = b"POST /v1/stream/long HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nmore"


async def front() -> Front:
    """A server with a stream of two long pages, and a short one."""
    made = Front(short=False)
    for name, bodies in ((b"long", [LONG, LONG]), (b"short", [b"y" * SHORT_PAGE_BYTES])):
        connection, _ = made.connect()
        head = b" /v1/stream/%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n"
        connection.data_received(b"PUT" + head % (name, 0))
        for body in bodies:
            connection.data_received(b"POST" + head % (name, len(body)) + body)
        await made.settle()
        connection.connection_lost(None)
    return made


def reading(made: Front, count: int, more: bytes = b"") -> list[tuple[Connection, Socket]]:
    """Clients that ask for the long stream, all in one turn."""
    clients = [made.connect() for _ in range(count)]
    for connection, _ in clients:
        connection.data_received(ASK % (b"long", more))
    return clients


def pages(clients: list[tuple[Connection, Socket]]) -> list[int]:
    return [transport.sent.count(LONG) for _, transport in clients]


def test_a_turn_sends_one_long_page_and_those_who_wait_keep_their_order() -> None:
    async def main() -> None:
        made = await front()
        clients = reading(made, READERS)
        for sent in range(1, READERS + 1):
            assert pages(clients) == [1] * sent + [0] * (READERS - sent)
            await asyncio.sleep(0)
        assert len({transport.sent for _, transport in clients}) == 1

    asyncio.run(main())


def test_a_short_page_does_not_wait() -> None:
    async def main() -> None:
        made = await front()
        reading(made, READERS)
        connection, transport = made.connect()
        connection.data_received(ASK % (b"short", b""))
        assert transport.sent.endswith(b"y" * SHORT_PAGE_BYTES)
        connection.data_received(ASK % (b"none", b""))
        assert b"\r\n\r\n" in transport.sent and b"404" in transport.sent

    asyncio.run(main())


def test_a_write_after_a_page_that_waits_comes_after_it() -> None:
    async def main() -> None:
        made = await front()
        reading(made, READERS)
        connection, transport = made.connect()
        connection.data_received(ASK % (b"long", b"") + MORE + ASK % (b"long", b""))
        assert not transport.sent
        for _ in range(5 * READERS):
            await asyncio.sleep(0)
        answers = transport.sent.split(b"HTTP/1.1 ")[1:]
        assert [answer[:3] for answer in answers] == [b"200", b"204", b"200"]

    asyncio.run(main())


def test_a_client_that_has_left_takes_nothing_of_a_turn() -> None:
    async def main() -> None:
        made = await front()
        clients = reading(made, READERS)
        for connection, _ in clients[1:-1]:
            connection.connection_lost(None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert pages(clients) == [1] + [0] * (READERS - 2) + [1]

    asyncio.run(main())


def test_live_readers_take_turns_too() -> None:
    async def main() -> None:
        made = await front()
        clients = reading(made, READERS, b"&live=sse")
        for sent in range(1, 2 * READERS + 1):
            assert sum(pages(clients)) == sent
            await asyncio.sleep(0)
        assert pages(clients) == [2] * READERS

    asyncio.run(main())


def test_a_client_that_does_not_read_holds_one_page_however_many_it_asks_for() -> None:
    async def main() -> None:
        made = await front()
        reading(made, 1)
        connection, transport = made.connect()
        write = transport.write

        def full_after_a_page(data: bytes) -> None:
            write(data)
            if not connection.write_paused:
                connection.pause_writing()

        transport.write = full_after_a_page  # type: ignore[method-assign]
        connection.data_received(ASK % (b"long", b"") * PIPELINE_MAX)
        for _ in range(2 * PIPELINE_MAX):
            await asyncio.sleep(0)
        assert (pages([(connection, transport)]), len(connection.exchanges)) == ([1], PIPELINE_MAX - 1)
        transport.write = write  # type: ignore[method-assign]
        connection.resume_writing()
        for _ in range(2 * PIPELINE_MAX):
            await asyncio.sleep(0)
        assert (pages([(connection, transport)]), len(connection.exchanges)) == ([PIPELINE_MAX], 0)

    asyncio.run(main())
