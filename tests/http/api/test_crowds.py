"""Clients that do not read their responses: they hold a limited amount, and everybody else is served."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from headwater.http.exchange.crowding import SHORT_PAGE_BYTES
from headwater.http.server import Server

from ...node.lake.lakes import Bench
from ..processes import eventually
from ..sockets import Wire, refused, request
from .inside import against, wire_to

MIB = 1024 * 1024
TEXT, JSON = {"Content-Type": "text/plain"}, {"Content-Type": "application/json"}
BYTES, MESSAGES, LARGE = "/v1/stream/bytes", "/v1/stream/messages", "/v1/stream/large"


def prepare(url: str) -> None:
    with wire_to(url) as wire:
        assert wire.ask("PUT", BYTES, TEXT, b"x" * (4 * MIB)).status == 201
        assert wire.ask("PUT", MESSAGES, JSON, json.dumps(["short", "y" * MIB]).encode()).status == 201
        assert wire.ask("PUT", LARGE, JSON, json.dumps("z" * (8 * MIB)).encode()).status == 201


@contextmanager
def crowd(url: str, server: Server) -> Iterator[None]:
    """Clients that ask for a large message and do not read it, so many that no memory is left for more."""
    with ExitStack() as wires:
        for _ in range(5):
            lazy = wires.enter_context(wire_to(url, receive_buffer_bytes=4096))
            lazy.send(request("GET", f"{LARGE}?offset=-1"))
        assert eventually(lambda: server.context.sending.full)
        yield
    assert eventually(lambda: server.context.sending.used == 0)


def page(wire: Wire, target: str) -> bytes:
    response = wire.ask("GET", target)
    assert response.status == 200, response.body
    return response.body


def test_readers_get_short_pages_until_the_crowd_is_gone() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        prepare(url)
        with wire_to(url) as wire:
            assert len(page(wire, f"{BYTES}?offset=-1")) == MIB
            with crowd(url, server):
                assert len(page(wire, f"{BYTES}?offset=-1")) == SHORT_PAGE_BYTES
                assert len(page(wire, f"{BYTES}?offset=-1&max_bytes=1000")) == 1000
                assert len(page(wire, f"{BYTES}?offset=-1&live=long-poll")) == SHORT_PAGE_BYTES
            assert len(page(wire, f"{BYTES}?offset=-1")) == MIB

    against(work, sending_bytes_max=10 * MIB)


def test_a_message_that_cannot_be_short_has_to_wait() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        prepare(url)
        with wire_to(url) as wire:
            assert page(wire, f"{MESSAGES}?offset=-1&max_bytes=10") == b'["short"]'
            after = wire.ask("GET", f"{MESSAGES}?offset=-1&max_bytes=10").next_offset
            with crowd(url, server):
                assert page(wire, f"{MESSAGES}?offset=-1") == b'["short"]'
                response = wire.ask("GET", f"{MESSAGES}?offset={after}")
                assert "memory" in refused(response, 503, "overloaded")["detail"]
                assert response.headers["retry-after"] == "1"
            assert len(page(wire, f"{MESSAGES}?offset={after}")) > MIB

    against(work, sending_bytes_max=10 * MIB)


def test_a_live_reader_gets_a_large_message_when_the_crowd_is_gone() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        prepare(url)
        with wire_to(url) as wire, wire_to(url) as writer:
            events = wire.open_sse(f"{MESSAGES}?offset=now&live=sse")
            assert events.event().kind == "control"
            with crowd(url, server):
                assert writer.ask("POST", MESSAGES, JSON, b'"small"').status == 204
                assert events.event().data == '["small"]'
                assert events.event().kind == "control"
                assert writer.ask("POST", MESSAGES, JSON, b'"%b"' % (b"z" * MIB)).status == 204
                assert wire.silent_for(0.7)
            assert len(events.event().data) == MIB + 4

    against(work, sending_bytes_max=10 * MIB)
