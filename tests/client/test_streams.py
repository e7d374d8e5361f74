"""The base protocol with a real server: create, append, read, follow, close, delete."""

import asyncio
import json
import threading

import pytest

from headwater.client import (
    AsyncClient,
    BadRequest,
    Client,
    Conflict,
    Deframer,
    Fork,
    NotFound,
    PreconditionFailed,
    ProtocolViolation,
    SequenceConflict,
    StreamClosed,
    frame,
)
from headwater.testing import RunningServer

from .conftest import Both, run

JSON = "application/json"
TEXT = "text/plain"


def flat(server: RunningServer) -> str:
    return f"{server.url}/v1/stream"


def test_what_is_appended_is_read(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            created = await stream.create(TEXT, body="one ", ttl_seconds=60)
            assert created.new and created.location.endswith(name)
            assert created.next_offset == (await stream.head()).next_offset
            assert not (await stream.create(TEXT, ttl_seconds=60)).new
            first = await stream.append(b"two ")
            second = await stream.append("thrée")
            assert first.next_offset < second.next_offset
            assert await stream.read_text() == "one two thrée"
            assert await stream.read(first.next_offset) == "thrée".encode()
            info = await stream.head()
            assert (info.content_type, info.next_offset, info.ttl_seconds) == (TEXT, second.next_offset, 60)
            assert not info.closed and info.incarnation == created.incarnation
            await stream.delete()
            with pytest.raises(NotFound) as caught:
                await stream.read()
            assert caught.value.code == "stream_not_found" and name in str(caught.value)

    run(check())


def test_the_url_of_a_server_is_enough_for_streams_and_buckets(
    server: RunningServer, name: str, client_of: Both
) -> None:
    async def check() -> None:
        async with client_of(server.url) as client:
            stream = client.stream(name)
            created = await stream.create(TEXT)
            assert created.next_offset and created.location == f"{flat(server)}/{name}" == stream.url
            await stream.append("one")
            bucketed = client.bucket("_default").stream(name)
            assert await bucketed.read_text() == "one"
            assert bucketed.url == f"{server.url}/_default/{name}"

    run(check())


def test_an_answer_to_create_that_is_not_about_a_stream_is_refused(
    server: RunningServer, name: str, client_of: Both
) -> None:
    async def check() -> None:
        async with client_of(server.url) as client:
            with pytest.raises(ProtocolViolation, match="Stream-Next-Offset"):
                # That is the URL of a bucket.
                await client.stream(f"{server.url}/{name}").create(TEXT)

    run(check())


def test_each_json_value_is_one_message(server: RunningServer, name: str, client_of: Both) -> None:
    values = [{"a": 1.5}, [1, [2]], "text", None, True, 12345678901234567890, "\ud800", {"ü": "\u2028"}]

    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(JSON)
            appended = await stream.append_json(*values)
            assert (appended.record_start, appended.record_next) == (0, len(values))
            await stream.append('[1, {"b" : 2}]')
            assert await stream.read_json() == [*values, 1, {"b": 2}]
            assert json.loads(await stream.read()) == [*values, 1, {"b": 2}]
            for broken in ("{", "[]", ""):
                with pytest.raises(ValueError, match=r"\w"):
                    await stream.append(broken)
            with pytest.raises(ValueError, match="not JSON compliant"):
                await stream.append_json(float("nan"))

    run(check())


def test_a_long_stream_is_read_page_by_page(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(TEXT)
            for number in range(12):
                await stream.append(f"{number:03}" * 100)
            async with stream.chunks() as chunks:
                found = [chunk async for chunk in chunks]
            assert len(found) > 2 and [chunk.up_to_date for chunk in found][-2:] == [False, True]
            assert b"".join(chunk.data for chunk in found) == await stream.read()
            page = await stream.page(page_bytes_max=300)
            assert page.data == b"000" * 100
            assert await stream.page(page_bytes_max=300, etag=page.etag) is None
            info = await stream.head()
            assert await stream.head_if_changed(info.etag) is None

    run(check())


def test_a_closed_stream_takes_nothing_more(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(TEXT)
            closed = await stream.close_stream("the end")
            assert (await stream.close_stream()).next_offset == closed.next_offset
            with pytest.raises(StreamClosed) as caught:
                await stream.append("more")
            assert caught.value.next_offset == closed.next_offset
            assert (await stream.head()).closed

    run(check())


def test_conditions_are_kept(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(JSON)
            await stream.append_json(1, seq="b")
            with pytest.raises(SequenceConflict):
                await stream.append_json(2, seq="a")
            etag = (await stream.head()).etag
            await stream.append_json(2, if_match=etag)
            with pytest.raises(PreconditionFailed):
                await stream.append_json(3, if_match=etag)
            await stream.append_json(3, record_match=2)
            with pytest.raises(PreconditionFailed):
                await stream.append_json(4, record_match=2)
            assert await stream.read_json() == [1, 2, 3]

    run(check())


def test_appends_at_the_same_time_share_requests(server: RunningServer, name: str) -> None:
    async def check() -> None:
        async with AsyncClient(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(JSON)
            appended = await asyncio.gather(*(stream.append_json(number) for number in range(100)))
            assert await stream.read_json() == list(range(100))
            assert [each.record_start for each in appended] == list(range(100))
            assert len({each.next_offset for each in appended}) < 10

    run(check())


def test_appends_of_many_threads_are_all_written(server: RunningServer, name: str) -> None:
    with Client(flat(server)) as client:
        stream = client.stream(name)
        stream.create(JSON)
        found: dict[int, int | None] = {}

        def write(number: int) -> None:
            found[number] = stream.append_json(number).record_start

        threads = [threading.Thread(target=write, args=(number,)) for number in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        written = stream.read_json()
        assert sorted(written) == list(range(40))
        assert all(written[place or 0] == number for number, place in found.items())


def test_a_cancelled_append_does_not_delay_others(server: RunningServer, name: str) -> None:
    async def check() -> None:
        async with AsyncClient(flat(server)) as client:
            stream = client.stream(name, content_type=JSON)
            await stream.create(JSON)
            tasks = [asyncio.create_task(stream.append_json(number)) for number in range(6)]
            await asyncio.sleep(0)
            for number in (1, 3):
                tasks[number].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await stream.append_json(6)
            assert set(await stream.read_json()) >= {0, 2, 4, 5, 6}

    run(check())


def test_an_append_cancelled_just_before_it_is_sent_does_not_delay_others(server: RunningServer, name: str) -> None:
    async def check() -> None:
        async with AsyncClient(flat(server)) as client:
            stream = client.stream(name, content_type=JSON)
            await stream.create(JSON)
            first = asyncio.create_task(stream.append_json(1))
            await asyncio.sleep(0)
            second = asyncio.create_task(stream.append_json(2))
            await first
            second.cancel()  # The first has just left the next request to it.
            await asyncio.gather(second, return_exceptions=True)
            await asyncio.wait_for(stream.append_json(3), 10)
            assert set(await stream.read_json()) >= {1, 3}

    run(check())


def test_a_fork_begins_with_what_its_source_held(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            source = client.stream(name)
            await source.create(JSON, body="[1]")
            tail = (await source.head()).next_offset
            await source.append("[2,3]")
            fork = client.stream(f"{name}-fork")
            await fork.create(fork=Fork(source.url, tail, 1))
            await fork.append_json(9)
            assert await fork.read_json() == [1, 2, 9]

    run(check())


def test_a_stream_that_exists_may_be_fine_or_not(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            await client.stream(name).create(TEXT)
            with pytest.raises(Conflict):
                await client.stream(name).create(TEXT, if_exists="fail")
            with pytest.raises(Conflict) as caught:
                await client.stream(name).create(JSON)
            assert caught.value.code == "stream_exists"

    run(check())


def test_functions_for_headers_and_parameters_are_called_for_each_request(
    server: RunningServer, name: str, client_of: Both
) -> None:
    calls: list[str] = []

    def token() -> str:
        calls.append("token")
        return f"Bearer {len(calls)}"

    async def check() -> None:
        async with client_of(flat(server), headers={"Authorization": token}, params={"tag": lambda: "x"}) as client:
            await client.stream(name).create(TEXT)
            await client.stream(name).head()
        assert len(calls) == 2

    run(check())


def test_names_are_quoted(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(f"{name}/a b?c#d%/ü")
            await stream.create(TEXT, body="x")
            assert await stream.read() == b"x"
            with pytest.raises(BadRequest):
                await stream.read("nonsense")

    run(check())


def test_framed_messages_come_back_from_a_byte_stream(server: RunningServer, name: str) -> None:
    messages = [b"one", b"", b"x" * 3_000, b"four"]
    with Client(flat(server)) as client:
        stream = client.stream(name)
        stream.create()
        for message in messages:
            stream.append(frame(message))
        deframer = Deframer()
        with stream.chunks(page_bytes_max=10) as chunks:
            assert [message for chunk in chunks for message in deframer.feed(chunk.data)] == messages
        assert deframer.waiting_bytes == 0
