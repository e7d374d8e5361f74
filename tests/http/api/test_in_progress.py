"""Limits on scans and bulk appends in progress, which each of them releases however it ends."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event

import pytest

from headwater.http.api import bulk as bulk_routes
from headwater.http.server import Server
from headwater.node.scans import scans
from headwater.settings import Settings
from headwater.testing.faulty_store import Fault

from ...node.lake.lakes import Bench, bench
from ..processes import eventually
from ..sockets import Ended, Response, Wire, refused, request
from .bulk.requests import ARROW, PATH, PATIENCE_SECONDS, decode, encode, row, statuses, table_of
from .scans.requests import Range, ask, whole

JSON = {"Content-Type": "application/json"}


def against(work: Callable[[str, Bench, Server], None]) -> None:
    """Run a client against a server in this process; nothing may be in progress afterwards."""

    async def run() -> None:
        async with bench() as node:
            server = Server(Settings(port=0))
            url = await server.listen()
            server.serve(node.node)
            in_thread = asyncio.get_running_loop().run_in_executor
            try:
                await in_thread(None, work, url, node, server)
                assert await in_thread(None, eventually, lambda: not node.node.only.scans.in_progress)
                assert await in_thread(None, eventually, lambda: not server.context.bulk_appends)
                assert not +node.lake.reads.in_use
                assert not node.state.observers
            finally:
                await server.drain()

    asyncio.run(run())


@contextmanager
def wire_to(url: str, receive_buffer_bytes: int = 0) -> Iterator[Wire]:
    with Wire(url, timeout_seconds=PATIENCE_SECONDS, receive_buffer_bytes=receive_buffer_bytes) as wire:
        yield wire


def overloaded(response: Response) -> None:
    assert "in progress" in refused(response, 503, "overloaded")["detail"]
    assert response.headers["retry-after"] == "1"


# -- Scans -------------------------------------------------------------------------------------------------------------


def much(url: str) -> list[Range]:
    """More data in the lake than fits into the buffers of a client that does not read."""
    with wire_to(url) as wire:
        rows = [row(f"much/{number:02}", b"%02d" % number * 250_000, create=True) for number in range(20)]
        assert wire.ask("POST", PATH, ARROW, encode(table_of(rows))).status == 200
        assert wire.ask("POST", "/__headwater/flush").status == 200
        return whole(wire, *(one["stream"] for one in rows))


@contextmanager
def begun(url: str, ranges: list[Range], times: int = 1) -> Iterator[Wire]:
    """A client that has read the head of its answer and not much more; it may have sent the request more than once."""
    with wire_to(url, receive_buffer_bytes=4096) as reader:
        reader.send(request("POST", "/__headwater/scan", JSON, json.dumps({"ranges": ranges}).encode()) * times)
        assert reader.receive_head()[0] == 200
        yield reader


def test_a_scan_beyond_the_most_is_asked_to_come_again_until_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "SCANS_MAX", 2)

    def work(url: str, node: Bench, server: Server) -> None:
        ranges = much(url)
        with begun(url, ranges) as first, begun(url, ranges), wire_to(url) as wire:
            overloaded(ask(wire, "scan", ranges=ranges[:1]))
            assert whole(wire, "much/00") == ranges[:1], "other requests are not affected"
            assert len(b"".join(first.chunks())) > 10_000_000
            assert ask(wire, "scan", ranges=ranges[:1]).status == 200

    against(work)


def test_a_client_that_goes_away_gives_its_places_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "SCANS_MAX", 3)

    def work(url: str, node: Bench, server: Server) -> None:
        ranges = much(url)
        with wire_to(url) as wire:
            with begun(url, ranges, times=3):
                assert eventually(lambda: len(node.node.only.scans.in_progress) == 3)
                overloaded(ask(wire, "scan", ranges=ranges[:1]))
            assert eventually(lambda: not node.node.only.scans.in_progress)
            assert ask(wire, "scan", ranges=ranges[:1]).status == 200

    against(work)


def test_a_scan_that_is_refused_or_breaks_off_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "SCANS_MAX", 1)

    def work(url: str, node: Bench, server: Server) -> None:
        ranges = much(url)
        for _ in range(2):
            with wire_to(url) as wire:
                refused(ask(wire, "scan", ranges=[["much/none", 1, 0, 1]]), 409, "ranges_unavailable")
                refused(ask(wire, "scan", ranges=0), 400, "bad_request")
                node.store.plan["read"] = Fault.TRUNCATE
                with pytest.raises((Ended, ConnectionResetError)):
                    ask(wire, "scan", ranges=ranges)
                node.store.heal()
            assert eventually(lambda: not node.node.only.scans.in_progress)
        with wire_to(url) as wire:
            assert ask(wire, "scan", ranges=ranges[:1]).status == 200

    against(work)


def test_a_scan_behind_live_events_gives_its_place_back_when_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "SCANS_MAX", 1)

    def work(url: str, node: Bench, server: Server) -> None:
        ranges = much(url)
        with wire_to(url) as wire:
            assert wire.ask("POST", "/v1/stream/much/00", {"Stream-Closed": "true"}).status == 204
            # The events wait for the lake, so the scan after them is planned; but the connection ends with them.
            body = json.dumps({"ranges": ranges}).encode()
            live = request("GET", "/v1/stream/much/00?offset=-1&live=sse")
            wire.send(live + request("POST", "/__headwater/scan", JSON, body))
            wire.receive_sse().rest()
        with wire_to(url) as wire:
            assert eventually(lambda: not node.node.only.scans.in_progress)
            assert ask(wire, "scan", ranges=ranges[:1]).status == 200

    against(work)


# -- Bulk appends ------------------------------------------------------------------------------------------------------


@contextmanager
def held_up(node: Bench) -> Iterator[None]:
    """Block all of the node's threads while the block lasts."""
    go_on = Event()
    for _ in range(2):
        node.node.threads.submit(go_on.wait)
    try:
        yield
    finally:
        go_on.set()


def body(stream: str) -> bytes:
    return request("POST", PATH, ARROW, encode(table_of([row(stream, b"a", create=True)])))


def test_a_bulk_append_beyond_the_most_is_asked_to_come_again_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk_routes, "BULK_APPENDS_MAX", 2)

    def work(url: str, node: Bench, server: Server) -> None:
        with wire_to(url) as first, wire_to(url) as second, wire_to(url) as third:
            with held_up(node):
                first.send(body("bulk/first"))
                second.send(body("bulk/second"))
                assert eventually(lambda: server.context.bulk_appends == 2)
                overloaded(third.ask_raw(body("bulk/third")))
            for wire in (first, second):
                assert statuses(decode(wire.receive().body)) == [200]
            assert third.ask("HEAD", "/v1/stream/bulk/third").status == 404
            assert statuses(decode(third.ask_raw(body("bulk/third")).body)) == [200]

    against(work)


def test_a_bulk_append_gives_its_place_back_when_its_client_is_gone_or_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk_routes, "BULK_APPENDS_MAX", 1)

    def work(url: str, node: Bench, server: Server) -> None:
        with wire_to(url) as wire:
            with held_up(node), wire_to(url) as gone:
                gone.send(body("bulk/gone"))
                assert eventually(lambda: server.context.bulk_appends == 1)
            assert eventually(lambda: not server.context.bulk_appends)
            for _ in range(2):
                refused(wire.ask("POST", PATH, ARROW, b"nonsense"), 400, "bad_request")
            assert statuses(decode(wire.ask_raw(body("bulk/kept")).body)) == [200]

    against(work)
