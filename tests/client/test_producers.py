"""Producers with a real server."""

import asyncio
import socket
import threading

import pytest

from headwater.client import (
    AsyncClient,
    Client,
    Conflict,
    IncarnationChanged,
    NotFound,
    OutcomeUnknown,
    ProducerEnded,
    ProducerEpochUsed,
    ProducerFenced,
    SequenceConflict,
    StreamClosed,
    TransportFailed,
)
from headwater.testing import RunningServer

from .conftest import QUICK, Both, run

JSON = "application/json"


def flat(server: RunningServer) -> str:
    return f"{server.url}/v1/stream"


def test_everything_is_written_in_order(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(JSON)
            async with stream.producer("p", linger_ms=1, batch_messages_max=7) as producer:
                futures = [await producer.append_json(number) for number in range(500)]
                await producer.append("[500, 501]")
                await producer.flush()
                assert [future.result().record_start for future in futures] == list(range(500))
            assert await stream.read_json() == list(range(502))
            assert not (await stream.head()).closed
            with pytest.raises(ProducerEnded):
                await producer.append_json(1)

    run(check())


def test_a_producer_may_close_the_stream(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create("text/plain")
            async with stream.producer("p") as producer:
                await producer.append("one ")
                closed = await producer.close_stream("two")
                assert (await producer.close_stream()) == closed
            assert await stream.read_text() == "one two"
            assert (await stream.head()).next_offset == closed.next_offset
            with pytest.raises(StreamClosed):
                async with stream.producer("other") as other:
                    await other.append("three")

    run(check())


def test_a_higher_epoch_fences_off_the_lower_one(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(JSON)
            old, new = stream.producer("p", epoch=0), stream.producer("p", epoch=1)
            await old.append_json(1)
            await old.flush()
            await new.append_json(2)
            await new.flush()
            future = await old.append_json(3)
            with pytest.raises(ProducerFenced) as caught:
                await old.flush()
            assert caught.value.current_epoch == 1
            assert isinstance(future.exception(), ProducerFenced)
            with pytest.raises(ProducerFenced):
                await old.aclose()
            await new.aclose()
            assert await stream.read_json() == [1, 2]

    run(check())


def test_a_producer_may_claim_the_next_epoch_whenever_it_starts(
    server: RunningServer, name: str, client_of: Both
) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(JSON)
            for run_ in range(4):
                async with stream.producer("p", auto_claim=True, batch_bytes_max=1) as producer:
                    for number in range(3):
                        await producer.append_json([run_, number])
                    await producer.flush()
                    assert producer.epoch == run_
            assert await stream.read_json() == [[run_, number] for run_ in range(4) for number in range(3)]

    run(check())


def test_a_second_run_in_the_same_epoch_is_told_that_nothing_was_written(
    server: RunningServer, name: str, client_of: Both
) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(JSON)
            async with stream.producer("p") as first:
                await first.append_json(1, 2)
            second = stream.producer("p")
            future = await second.append_json(3, 4)
            with pytest.raises(ProducerEpochUsed, match="higher epoch"):
                await second.flush()
            assert isinstance(future.exception(), ProducerEpochUsed)
            with pytest.raises(ProducerEpochUsed):
                await second.aclose()
            assert await stream.read_json() == [1, 2]
            async with stream.producer("p", epoch=1) as third:
                await third.append_json(3, 4)
            assert await stream.read_json() == [1, 2, 3, 4]

    run(check())


def test_a_longer_second_run_in_the_same_epoch_writes_nothing_at_all(
    server: RunningServer, name: str, client_of: Both
) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(JSON)
            alone = {"batch_bytes_max": 1, "linger_ms": 0}
            async with stream.producer("p", **alone) as first:
                for number in range(2):
                    await first.append_json(number)
            second = stream.producer("p", in_flight_max=5, **alone)
            with pytest.raises(ProducerEpochUsed):
                for number in range(100, 110):
                    await second.append_json(number)
                await second.flush()
            with pytest.raises(ProducerEpochUsed):
                await second.aclose()
            assert await stream.read_json() == [0, 1]

    run(check())


def test_other_bytes_under_a_used_number_are_refused(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(JSON)
            await stream.append_once("1", producer_id="p", epoch=0, seq=0)
            with pytest.raises(ProducerEpochUsed, match="higher epoch") as caught:
                await stream.append_once("2", producer_id="p", epoch=0, seq=0)
            assert caught.value.code == "producer_payload_mismatch"
            accepting = stream.producer("p", on_duplicate="accept")
            await accepting.append_json(2)
            with pytest.raises(ProducerEpochUsed):
                await accepting.aclose()
            async with stream.producer("p", auto_claim=True) as claiming:
                await claiming.append_json(2)
            assert claiming.epoch == 1
            assert await stream.read_json() == [1, 2]

    run(check())


def test_a_program_that_repeats_its_messages_continues_its_epoch(
    server: RunningServer, name: str, client_of: Both
) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(JSON)
            for messages in ([1, 2], [1, 2, 3]):
                once = {"batch_messages_max": 1, "linger_ms": 0}
                async with stream.producer("p", on_duplicate="accept", **once) as producer:
                    futures = [await producer.append_json(message) for message in messages]
                    await producer.flush()
            assert [future.result().duplicate for future in futures] == [True, True, False]
            assert await stream.read_json() == [1, 2, 3]

    run(check())


def test_a_stream_that_is_not_there_is_an_error_for_all(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            producer = client.stream(name).producer("p")
            futures = [await producer.append_json(number) for number in range(3)]
            with pytest.raises(NotFound):
                await producer.flush()
            assert all(isinstance(future.exception(), NotFound) for future in futures)
            with pytest.raises(NotFound):
                await producer.append_json(4)
            with pytest.raises(NotFound):
                await producer.aclose()

    run(check())


def test_a_stream_that_was_created_again_is_not_written_to(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(JSON)
            producer = stream.producer("p")
            await producer.append_json(1)
            await producer.flush()
            await stream.delete()
            await stream.create(JSON)
            await producer.append_json(2)
            with pytest.raises(IncarnationChanged):
                await producer.flush()
            with pytest.raises(IncarnationChanged):
                await producer.aclose()
            assert await stream.read_json() == []

    run(check())


def test_a_producer_gives_up_on_a_server_that_stays_offline(client_of: Both) -> None:
    async def check() -> None:
        # Nothing listens on port 1.
        async with client_of("http://127.0.0.1:1") as client:
            producer = client.stream("s", content_type=JSON).producer("p")
            await producer.append_json(1)
            with pytest.raises(TransportFailed) as caught:
                await producer.flush()
            assert not caught.value.sent
            with pytest.raises(TransportFailed):
                await producer.aclose()

    run(check())


def test_too_much_at_once_waits_for_room(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create("text/plain")
            async with stream.producer("p", pending_bytes_max=50, batch_bytes_max=40) as producer:
                for _ in range(100):
                    await producer.append("0123456789")
            assert await stream.read() == b"0123456789" * 100

    run(check())


def test_an_error_in_the_block_is_not_hidden_by_one_of_the_producer(server: RunningServer, name: str) -> None:
    with Client(flat(server)) as client, pytest.raises(KeyError), client.stream(name).producer("p") as producer:
        producer.append_json(1)
        raise KeyError


def test_a_function_for_a_header_may_fail_for_a_while(server: RunningServer, name: str, client_of: Both) -> None:
    calls: list[int] = []

    def token() -> str:
        calls.append(len(calls))
        if len(calls) < 3:
            raise RuntimeError("There is no token yet.")
        return "Bearer x"

    async def check() -> None:
        async with client_of(flat(server)) as plain:
            await plain.stream(name).create(JSON)
        async with client_of(flat(server), headers={"Authorization": token}) as client:
            async with client.stream(name).producer("p") as producer:
                await producer.append_json(1)
            assert await client.stream(name).read_json() == [1]

    run(check())


def test_values_are_not_written_to_a_stream_of_bytes(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create("text/plain")
            with pytest.raises(Conflict):
                await stream.append_json(1)
            async with stream.producer("p") as producer:
                await producer.append("x")
                with pytest.raises(ValueError, match="not JSON values"):
                    await producer.append_json(1)
            assert await stream.read() == b"x"

    run(check())


def test_a_numbered_append_can_be_repeated(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(JSON)
            first = await stream.append_once("[1,2]", producer_id="job", epoch=7, seq=0)
            again = await stream.append_once("[1,2]", producer_id="job", epoch=7, seq=0)
            assert not first.duplicate and again.duplicate
            with pytest.raises(SequenceConflict) as caught:
                await stream.append_once("3", producer_id="job", epoch=7, seq=2)
            assert caught.value.expected_seq == 1
            with pytest.raises(ProducerFenced):
                await stream.append_once("3", producer_id="job", epoch=6, seq=0)
            await stream.append_once("3", producer_id="job", epoch=7, seq=1, closed=True)
            assert await stream.read_json() == [1, 2, 3]

    run(check())


def test_a_cancelled_producer_settles_every_future(name: str) -> None:
    async def check() -> None:
        silent = socket.create_server(("127.0.0.1", 0))
        with silent:
            await cancel(f"http://127.0.0.1:{silent.getsockname()[1]}")

    async def cancel(url: str) -> None:
        async with AsyncClient(url) as client:
            producer = client.stream(name, content_type=JSON).producer("p", linger_ms=0)
            future = await producer.append_json(1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await producer.aclose()
            assert isinstance(future.exception(), OutcomeUnknown)

    run(check())


def test_a_close_is_never_taken_for_a_duplicate(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(JSON)
            await stream.append_once("1", producer_id="p", epoch=0, seq=0)
            with pytest.raises(Conflict, match="higher epoch"):
                await stream.producer("p").close_stream()
            assert not (await stream.head()).closed
            async with stream.producer("p", auto_claim=True) as producer:
                await producer.close_stream()
            assert (await stream.head()).closed

    run(check())


def test_threads_may_share_a_producer(server: RunningServer, name: str) -> None:
    with Client(flat(server), follow_retry=QUICK) as client:
        stream = client.stream(name)
        stream.create(JSON)
        with stream.producer("p", linger_ms=1) as producer:

            def write(thread: int) -> None:
                for number in range(50):
                    producer.append_json([thread, number])

            threads = [threading.Thread(target=write, args=(thread,)) for thread in range(4)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
        written = stream.read_json()
        for thread in range(4):
            assert [number for writer, number in written if writer == thread] == list(range(50))


def test_tasks_may_share_a_producer(server: RunningServer, name: str) -> None:
    async def check() -> None:
        async with AsyncClient(flat(server)) as client:
            stream = client.stream(name)
            await stream.create(JSON)
            async with stream.producer("p") as producer:
                await asyncio.gather(*(producer.append_json(number) for number in range(200)))
            assert await stream.read_json() == list(range(200))

    run(check())
