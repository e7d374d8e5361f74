"""The administrative surface, with a real server and with broken answers."""

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from headwater.client import (
    Admin,
    AsyncAdmin,
    Client,
    Conflict,
    ProtocolViolation,
    RequestRefused,
    ResponseIncomplete,
    RetryPolicy,
    ScanRange,
    ServerUnavailable,
    TransportFailed,
)
from headwater.client import admin as programs
from headwater.client.operations import RequestTarget
from headwater.client.retrying import attempt
from headwater.client.wire import Request, Response
from headwater.testing import RunningServer, running_server

from .conftest import run
from .lifting import Lifted
from .script import LOST, UNREACHABLE, Line, Script

POLICY = RetryPolicy(attempts_max=3, first_delay_seconds=1.0, dice=lambda: 0.0)
TARGET = RequestTarget("http://h/__headwater", POLICY)
ONE = [ScanRange("bucket/s", 1, 0, 9)]


@pytest.fixture(scope="module")
def lake_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(data=tmp_path_factory.mktemp("admin") / "data") as server:
        yield server


@pytest.fixture(params=[Admin, AsyncAdmin])
def admin_of(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    """Makes an admin client with the methods of the asynchronous one."""
    return lambda url: Lifted(Admin(url)) if request.param is Admin else AsyncAdmin(url)


def test_buckets_and_streams_are_listed_through_all_pages(
    server: RunningServer, name: str, admin_of: Callable[[str], Any]
) -> None:
    with Client(server.url) as client:
        client.bucket(f"{name}-0").create()
        for number in (1, 2, 3):
            for stream in ("a", "b"):
                client.stream(f"{name}-{number}/{stream}").create("text/plain", body="abc")

    async def check() -> None:
        async with admin_of(server.url) as admin:
            found = [each async for each in admin.buckets(prefix=f"{name}-", page_buckets_max=3)]
            counts = [(f"{name}-{number}", 2 if number else 0) for number in range(4)]
            assert [(each.name, each.streams) for each in found] == counts
            streams = [each async for each in admin.streams(prefix=f"{name}-", page_streams_max=4)]
            assert [each.name for each in streams] == [
                f"{name}-{number}/{stream}" for number in (1, 2, 3) for stream in ("a", "b")
            ]
            assert {each.tail_offset for each in streams} == {3}

    run(check())


def table(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.BufferReader(data)).read_all()


def arrow(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def test_the_server_says_what_it_is(lake_server: RunningServer, admin_of: Callable[[str], Any]) -> None:
    async def check() -> None:
        async with admin_of(lake_server.url + "/") as admin:
            status = await admin.status()
            assert status["log_id"]
            assert set(await admin.flush()) == {"0"}

    run(check())


def test_a_consumer_is_registered_and_forgotten(
    lake_server: RunningServer, admin_of: Callable[[str], Any], name: str
) -> None:
    async def check() -> None:
        async with admin_of(lake_server.url) as admin:
            positions = await admin.flush()
            await admin.register_consumer(f"{name}.x", positions)
            found = await admin.consumer(f"{name}.x")
            assert found in await admin.consumers()
            assert (found.name, found.positions) == (f"{name}.x", positions)
            assert found.committed_at_ms > 1_700_000_000_000
            assert (found.lapsed, found.lease) == (False, False)
            assert found.silence_seconds == 7 * 86_400
            await admin.register_consumer(f"{name}.x", positions, renew=True, silence_seconds=60)
            assert (await admin.consumer(f"{name}.x")).silence_seconds == 60
            await admin.forget_consumer(f"{name}.x")
            assert await admin.consumer(f"{name}.x") is None
            with pytest.raises(RequestRefused) as refused:
                await admin.register_consumer(f"{name}.x", positions, renew=True)
            assert refused.value.code == "consumer_lapsed"

    run(check())


def test_a_lease_is_taken_renewed_and_given_back(
    lake_server: RunningServer, admin_of: Callable[[str], Any], name: str
) -> None:
    async def check() -> None:
        async with admin_of(lake_server.url) as admin:
            await admin.lease(name, 60)
            await admin.lease(name, 60, renew=True)
            assert (await admin.consumer(name)).lease
            await admin.forget_consumer(name)
            with pytest.raises(RequestRefused) as refused:
                await admin.lease(name, 60, renew=True)
            assert refused.value.code == "consumer_lapsed"

    run(check())


def test_many_streams_are_appended_described_located_and_scanned(
    lake_server: RunningServer, admin_of: Callable[[str], Any], name: str
) -> None:
    with Client(lake_server.url) as client:
        client.bucket(name).create()
    streams = [f"{name}/a", f"{name}/b"]
    rows = {
        "stream": streams,
        "messages": [[b"one", b"three"], [b"two"]],
        "content_type": ["text/plain"] * 2,
        "create": [True] * 2,
        "close": [False] * 2,
        "producer_id": ["p"] * 2,
        "producer_epoch": [0] * 2,
        "producer_seq": [0] * 2,
    }

    async def check() -> None:
        async with admin_of(lake_server.url) as admin:
            assert set(table(await admin.append(arrow(pa.table(rows))))["status"].to_pylist()) == {200}
            described = table(await admin.describe([*streams, f"{name}/none"]))
            assert described["stream"].to_pylist() == streams
            page = table(await admin.describe_prefix(f"{name}/", after=streams[0], page_streams_max=5))
            assert page["stream"].to_pylist() == streams[1:]
            incarnation = described["incarnation"][0].as_py()
            assert await admin.locate([(streams[0], incarnation, record) for record in range(3)]) == [0, 3, 8]
            async with admin.scan([ScanRange(streams[0], incarnation, 0, 99)], columns=["payload"]) as pieces:
                data = b"".join([piece async for piece in pieces])
            assert table(data)["payload"].to_pylist() == [b"one", b"three"]
            async with admin.scan([ScanRange(streams[0], incarnation + 1, 0, 99)]) as pieces:
                with pytest.raises(Conflict) as caught:
                    await anext(aiter(pieces))
            assert caught.value.problem["problems"][0]["index"] == 0

    run(check())


# -- Without a network -------------------------------------------------------------------------------------------------


def test_a_refused_scan_lists_every_range_that_cannot_be_read(lake_server: RunningServer) -> None:
    ranges = [ScanRange(f"bucket/none-{number}", 1, 0, 9) for number in range(20_000)]
    with Admin(lake_server.url) as admin, pytest.raises(Conflict) as caught, admin.scan(ranges) as pieces:
        next(pieces)
    assert caught.value.code == "ranges_unavailable"
    assert [problem["index"] for problem in caught.value.problem["problems"]] == list(range(20_000))


def test_a_scan_is_asked_for_again_until_it_is_being_read() -> None:
    script = Script([LOST, Response(503), (Response(200), [b"a", b"b"])])
    assert script.run(programs.scan(TARGET, ONE, None, None, None)) == [b"a", b"b"]
    broken = Script([(Response(200), [b"a", LOST])])
    with pytest.raises(ResponseIncomplete, match="cut short"):
        broken.run(programs.scan(TARGET, ONE, None, None, None))
    assert len(broken.requests) == 1


def test_an_answer_of_another_server_is_named() -> None:
    for body in (b"[]", b"<html>"):
        with pytest.raises(ProtocolViolation, match="http://h/__headwater/status"):
            Script([Response(200, {}, body)]).run(programs.members_of(TARGET, "GET", "/status"))


def test_a_busy_server_is_waited_for_without_counting() -> None:
    patient = RetryPolicy(attempts_max=2, first_delay_seconds=1.0, busy_seconds=5.0, dice=lambda: 0.0)
    script = Script([Response(503)] * 20)
    with pytest.raises(ServerUnavailable):
        script.run(attempt(Request("GET", "http://h"), patient, repeatable=True))
    assert 5.0 <= script.clock < 7.0 and len(script.requests) > 5


def test_a_server_that_was_never_reached_is_given_up_early() -> None:
    policy = RetryPolicy(attempts_max=8, connect_attempts_max=3)
    never: list[Line] = [UNREACHABLE] * 8
    for answers, sent in ((never, 3), ([Response(503), *never], 8)):
        script = Script(answers)
        with pytest.raises(TransportFailed):
            script.run(attempt(Request("GET", "http://h"), policy, repeatable=True))
        assert len(script.requests) == sent


def test_errors_travel_between_processes() -> None:
    refused = RequestRefused(Request("GET", "http://h"), Response(409, {"a": "b"}, b'{"code": "x", "n": [1]}'))
    again = pickle.loads(pickle.dumps(refused))
    assert (str(again), again.status, again.headers) == (str(refused), 409, {"a": "b"})
    assert (again.code, again.problem) == ("x", {"code": "x", "n": [1]})
    lost = pickle.loads(pickle.dumps(UNREACHABLE))
    assert (str(lost), lost.sent) == (str(UNREACHABLE), False)
