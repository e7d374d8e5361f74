"""The extensions of the base protocol, with a real server."""

import pytest

from headwater.client import (
    BadRequest,
    Conflict,
    NotFound,
    OffsetTrimmed,
    PreconditionFailed,
    RetryPolicy,
    TransportFailed,
    extensions,
)
from headwater.client.operations import RequestTarget
from headwater.client.wire import Response
from headwater.testing import RunningServer

from .conftest import Both, run
from .script import LOST, Script

JSON = "application/json"


def test_buckets_are_created_described_and_deleted(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(server.url) as client:
            bucket = client.bucket(name)
            assert await bucket.create()
            assert not await bucket.create(exist_ok=True)
            with pytest.raises(Conflict):
                await bucket.create()
            await bucket.stream("a").create(JSON)
            assert (await bucket.info()).streams == 1
            with pytest.raises(Conflict):
                await bucket.delete()
            await bucket.stream("a").delete()
            await bucket.delete()
            with pytest.raises(NotFound):
                await bucket.info()
            with pytest.raises(NotFound):
                await bucket.stream("a").create(JSON)

    run(check())


def test_a_listing_goes_through_all_pages(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(server.url) as client:
            bucket = client.bucket(name)
            await bucket.create()
            for number in range(7):
                await bucket.stream(f"s-{number} ü").create(JSON, body="[1]")
            await bucket.stream("other").create("text/plain", closed=True)
            found = [each async for each in bucket.streams(page_streams_max=2)]
            assert [each.name for each in found] == ["other", *(f"s-{number} ü" for number in range(7))]
            assert found[0].closed and found[0].content_type == "text/plain"
            assert not found[1].closed and found[1].tail_offset == 1
            assert len([each async for each in bucket.streams(prefix="s-", page_streams_max=3)]) == 7

    run(check())


def test_records_are_read_by_number_and_from_the_end(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(server.url) as client:
            await client.bucket(name).create()
            stream = client.bucket(name).stream("log")
            await stream.create(JSON)
            for number in range(9):
                await stream.append_json({"n": number})
            records = [record async for record in stream.records(2, page_records_max=2)]
            assert [(record.number, record.value["n"]) for record in records] == [(n, n) for n in range(2, 9)]
            assert [record.number async for record in stream.last_records(3, page_records_max=2)] == [6, 7, 8]
            assert [record async for record in stream.records(9)] == []
            with pytest.raises(BadRequest):
                [record async for record in stream.records(10)]

    run(check())


def test_snapshots_are_published_and_found(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(server.url) as client:
            await client.bucket(name).create()
            stream = client.bucket(name).stream("doc")
            await stream.create(JSON, body="[1,2,3]")
            with pytest.raises(NotFound):
                await stream.snapshot()
            assert (await stream.head()).snapshot_offset is None
            offset = await stream.publish_snapshot(b"one, two", record=2, content_type="text/x")
            latest = await stream.snapshot()
            assert (latest.data, latest.content_type, latest.offset) == (b"one, two", "text/x", offset)
            assert await stream.snapshot(offset) == latest
            assert (await stream.head()).snapshot_offset == offset
            tail = (await stream.head()).next_offset
            assert await stream.publish_snapshot(b"all", offset=tail) == tail
            for wrong in ({}, {"offset": tail, "record": 1}):
                with pytest.raises(ValueError, match="either"):
                    await stream.publish_snapshot(b"", **wrong)

    run(check())


def test_a_bootstrap_is_the_snapshot_and_what_came_after_it(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(server.url) as client:
            await client.bucket(name).create()
            stream = client.bucket(name).stream("doc")
            await stream.create(JSON, body='["--x","\\r\\n--"]')
            async with stream.bootstrap() as boot:
                assert boot.snapshot is None and [part async for part in boot] == [b'"--x"', b'"\\r\\n--"']
            await stream.publish_snapshot(b"\r\n--so far", record=1)
            async with stream.bootstrap() as boot:
                assert boot.snapshot is not None and boot.snapshot.data == b"\r\n--so far"
                assert boot.up_to_date and not boot.closed
                assert boot.next_offset == (await stream.head()).next_offset
                assert [part async for part in boot] == [b'"\\r\\n--"']
            with pytest.raises(NotFound):
                async with client.bucket(name).stream("nothing").bootstrap():
                    pass

    run(check())


def test_trimmed_data_is_gone_and_a_reader_may_start_over(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(server.url) as client:
            await client.bucket(name).create()
            stream = client.bucket(name).stream("doc")
            await stream.create(JSON, body="[1,2,3]")
            offset = await stream.publish_snapshot(b"one and two", record=2)
            await stream.retain_from(offset=offset)
            with pytest.raises(OffsetTrimmed) as caught:
                await stream.read()
            assert caught.value.earliest_offset == offset
            async with stream.chunks(on_trimmed="earliest") as chunks:
                assert [chunk.json() async for chunk in chunks] == [[3]]
            await stream.close_stream()
            async with stream.follow(on_trimmed="bootstrap") as follower:
                (chunk,) = [chunk async for chunk in follower]
            assert chunk.snapshot.data == b"one and two" and chunk.json() == [3] and chunk.closed

    run(check())


def test_attributes_are_replaced_as_a_whole(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(server.url) as client:
            await client.bucket(name).create()
            stream = client.bucket(name).stream("doc")
            await stream.create(JSON, attrs={"title": "ü", "metadata": {"a": 1}})
            assert await stream.attrs() == {"title": "ü", "metadata": {"a": 1}}
            await stream.set_attrs(title="other")
            assert await stream.attrs() == {"title": "other"}

    run(check())


def test_a_batch_is_acknowledged_message_by_message(server: RunningServer, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(server.url) as client:
            await client.bucket(name).create()
            stream = client.bucket(name).stream("doc")
            await stream.create(JSON)
            good, bad, last = await stream.append_batch([b"1", b"{", b"[2,3]"])
            assert good.ok and good.record_start == 0
            assert not bad.ok and bad.code == "invalid_json" and bad.error
            assert last.ok and (last.record_start, last.record_next) == (1, 3)
            with pytest.raises(PreconditionFailed) as caught:
                await stream.append_batch([b"4"], record_match=0)
            assert caught.value.code == "record_precondition_failed"
            assert await stream.read_json() == [1, 2, 3]

    run(check())


def test_a_bootstrap_is_retried_until_it_is_being_read() -> None:
    target = RequestTarget("http://h/s", RetryPolicy(attempts_max=4, first_delay_seconds=1.0, dice=lambda: 0.0))
    head = Response(200, {"content-type": "multipart/mixed; boundary=b", "stream-next-offset": "7"})
    part = b"--b\r\nContent-Type: text/x\r\n\r\nso far\r\n--b"
    script = Script([LOST, (Response(503), [b"busy"]), (head, [part, b"\r\n\r\none\r\n--b--"])])
    found = script.run(extensions.bootstrap(target))
    assert found[0].next_offset == "7" and found[1:] == [b"one"]
    assert script.pauses == [0.5, 1.0]
    with pytest.raises(TransportFailed, match="cut short"):
        Script([(head, [part])]).run(extensions.bootstrap(target))
    with pytest.raises(NotFound):
        Script([(Response(404), [b"no"])]).run(extensions.bootstrap(target))
    with pytest.raises(TransportFailed):
        Script([LOST] * 4).run(extensions.bootstrap(target))
