"""Limits on scans and bulk appends in progress, which each of them releases however it ends."""

import json
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Event

import pytest

from headwater.http.server import Server
from headwater.node.scans import scans

from ...doubles.faulty_store import Fault
from ...node.lake.lakes import Bench
from ..processes import eventually
from ..sockets import Ended, Response, Wire, refused, request
from .bulk.requests import ARROW, PATH, decode, encode, row, statuses, table_of
from .inside import against, wire_to
from .scans.requests import Range, ask, whole

JSON = {"Content-Type": "application/json"}
EXPECT = {"Expect": "100-continue"}
LARGE_BYTES = 256 * 1024


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


def test_bulk_appends_beyond_the_most_wait_and_beyond_that_are_asked_to_come_again_and_change_nothing() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        line = server.context.bulk_appends
        line.inside_max, line.waiting_max = 2, 1
        with ExitStack() as wires:
            first, second, third, fourth = (wires.enter_context(wire_to(url)) for _ in range(4))
            with held_up(node):
                first.send(body("bulk/first"))
                second.send(body("bulk/second"))
                assert eventually(lambda: line.inside == 2)
                third.send(body("bulk/third"))
                assert eventually(lambda: line.waiting == 1)
                overloaded(fourth.ask_raw(body("bulk/fourth")))
            for wire in (first, second, third):
                assert statuses(decode(wire.receive().body)) == [200]
            assert fourth.ask("HEAD", "/v1/stream/bulk/fourth").status == 404
            assert statuses(decode(fourth.ask_raw(body("bulk/fourth")).body)) == [200]

    against(work)


def large(stream: str, number: int = 0) -> bytes:
    return encode(table_of([row(stream, bytes([number]) * LARGE_BYTES, create=True)]))


def test_a_large_bulk_append_is_only_read_when_its_turn_comes() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        line = server.context.bulk_appends
        line.inside_max = 1
        with wire_to(url) as first, wire_to(url) as second, wire_to(url) as third:
            with held_up(node):
                first.send(body("bulk/first"))
                assert eventually(lambda: line.inside == 1)
                data = large("bulk/second")
                second.send(request("POST", PATH, ARROW | {"Content-Length": str(len(data)), **EXPECT}))
                third.send(request("POST", PATH, ARROW | {"Content-Length": str(len(data)), **EXPECT}))
                assert eventually(lambda: line.waiting == 2)
                assert second.silent_for(0.2)
            assert second.receive().status == 100
            second.send(data)
            assert statuses(decode(second.receive().body)) == [200]
            assert third.receive().status == 100
            third.send(data)
            assert statuses(decode(third.receive().body)) == [200]

    against(work)


def test_a_large_bulk_append_that_finds_the_line_full_is_refused_before_its_body() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        line = server.context.bulk_appends
        line.inside_max, line.waiting_max = 1, 0
        line.inside = 1
        with wire_to(url) as wire:
            data = large("bulk/never")
            overloaded(wire.ask_raw(request("POST", PATH, ARROW | {"Content-Length": str(len(data))})))
            assert wire.ended()
        line.inside = 0

    against(work)


def test_a_bulk_append_that_waits_too_long_is_refused_and_leaves_the_line() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        line = server.context.bulk_appends
        line.inside_max, line.wait_seconds = 0, 0.1
        with wire_to(url) as small, wire_to(url) as wire:
            overloaded(small.ask_raw(body("bulk/small")))
            assert small.ask("GET", "/healthz").status == 200
            data = large("bulk/large")
            overloaded(wire.ask_raw(request("POST", PATH, ARROW | {"Content-Length": str(len(data))})))
            assert wire.ended()

    against(work)


def test_a_bulk_append_leaves_the_line_when_its_client_is_gone() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        line = server.context.bulk_appends
        line.inside_max = 0
        with wire_to(url) as small, wire_to(url) as wire:
            small.send(body("bulk/small"))
            small.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wire.send(request("POST", PATH, ARROW | {"Content-Length": str(LARGE_BYTES)}))
            assert eventually(lambda: line.waiting == 2)
        assert eventually(lambda: line.waiting == 1)
        # A client that is not being read is found to be gone when its turn comes.
        line.inside_max = 1
        with wire_to(url) as next_one:
            assert statuses(decode(next_one.ask_raw(body("bulk/next")).body)) == [200]

    against(work)


def test_a_bulk_append_gives_its_place_back_when_its_client_is_gone_or_it_is_refused() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        line = server.context.bulk_appends
        line.inside_max = 1
        with wire_to(url) as wire:
            with held_up(node), wire_to(url) as gone:
                gone.send(body("bulk/gone"))
                assert eventually(lambda: line.inside == 1)
            assert eventually(lambda: not line.inside)
            with wire_to(url) as unfinished:
                unfinished.send(request("POST", PATH, ARROW | {"Content-Length": str(LARGE_BYTES)}))
                assert eventually(lambda: line.inside == 1)
                assert server.context.receiving.used == LARGE_BYTES
            assert eventually(lambda: not line.inside)
            for _ in range(2):
                refused(wire.ask("POST", PATH, ARROW, b"nonsense"), 400, "bad_request")
            assert statuses(decode(wire.ask_raw(body("bulk/kept")).body)) == [200]

    against(work)


def test_two_hundred_writers_of_large_bulk_appends_all_get_through() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        def write(number: int) -> list[int]:
            with wire_to(url) as wire:
                response = wire.ask("POST", PATH, ARROW, large(f"bulk/{number}", number))
                assert response.status == 200, response.body
                return statuses(decode(response.body))

        with ThreadPoolExecutor(200) as writers:
            assert list(writers.map(write, range(200))) == [[200]] * 200

    against(work)
