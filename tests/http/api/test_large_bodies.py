"""Large bodies are judged by the heads of their requests, and take memory from a budget while they are held."""

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from headwater.http.server import Server
from headwater.http.wire.intakes import SMALL_BODY_BYTES

from ...node.lake.lakes import Bench
from ..processes import eventually
from ..sockets import Wire, chunked, refused, request
from .inside import against, wire_to

MIB = 1024 * 1024
PATH = "/v1/stream/large"
TEXT = {"Content-Type": "text/plain"}
EXPECT = {"Expect": "100-continue"}
LARGE = b"x" * (4 * SMALL_BODY_BYTES)


def announced(size: int, path: str = PATH, method: str = "POST", **more: str) -> bytes:
    """The head of a request whose body does not come."""
    return request(method, path, TEXT | {"Content-Length": str(size)} | more)


def made(wire: Wire, path: str = PATH) -> None:
    assert wire.ask("PUT", path, TEXT).status == 201


def no_memory(wire: Wire) -> None:
    response = wire.receive()
    assert "memory" in refused(response, 503, "overloaded")["detail"]
    assert response.headers["retry-after"] == "1"
    assert wire.ended()


# -- Judged by the head -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "problem"),
    [
        ("POST", "/v1/stream/missing", (404, "stream_not_found")),
        ("POST", "/healthz", (405, "method_not_allowed")),
        ("DELETE", "/bucket/stream/nothing", (404, "not_found")),
        ("PUT", "/bucket/missing/snapshot/0", (404, "stream_not_found")),
    ],
)
@pytest.mark.parametrize("more", [{}, EXPECT], ids=["sends", "waits"])
def test_a_large_body_that_cannot_be_used_is_refused_before_it_is_sent(
    wire: Wire, method: str, path: str, more: dict[str, str], problem: tuple[int, str]
) -> None:
    wire.send(announced(len(LARGE), path, method, **more))
    refused(wire.receive(), *problem)
    assert wire.ended()


def test_a_chunked_body_is_refused_once_it_is_large(wire: Wire) -> None:
    wire.send(request("POST", "/v1/stream/missing", TEXT | {"Transfer-Encoding": "chunked"}))
    wire.send(chunked(LARGE)[:-5])
    refused(wire.receive(), 404, "stream_not_found")
    assert wire.ended()


def test_a_small_body_that_cannot_be_used_costs_the_client_an_answer_and_not_its_connection(wire: Wire) -> None:
    refused(wire.ask("POST", "/v1/stream/missing", TEXT, b"x" * SMALL_BODY_BYTES), 404, "stream_not_found")
    assert wire.ask("GET", "/healthz").status == 200


def test_a_large_body_is_judged_after_the_requests_before_it(wire: Wire, path: str) -> None:
    wire.send(request("PUT", path, TEXT) + request("POST", path, TEXT, LARGE) + request("DELETE", path))
    assert [wire.receive().status for _ in range(3)] == [201, 204, 204]


@pytest.mark.parametrize("more", [{}, EXPECT], ids=["sends", "waits"])
@pytest.mark.parametrize(
    ("method", "below", "status"), [("PUT", "{text}/snapshot/1", 204), ("POST", "/__headwater/append", 400)]
)
def test_a_connection_is_read_on_after_a_body_that_came_at_once_behind_an_unanswered_request(
    wire: Wire, method: str, below: str, status: int, more: dict[str, str]
) -> None:
    assert wire.ask("PUT", "/behind").status in (201, 409)
    text = f"/behind/{method}{len(more)}"
    made(wire, text)
    body = b"x" * (1 if more else SMALL_BODY_BYTES + 1)
    wire.send(request("POST", text, TEXT, b"a") + request(method, below.format(text=text), TEXT | more, body))
    assert [wire.receive().status for _ in range(2)] == [204, status]
    assert wire.ask("GET", "/healthz").status == 200


def test_a_refusal_comes_after_the_answers_before_it(wire: Wire, text: str) -> None:
    wire.send(request("POST", text, TEXT, b"a") + announced(len(LARGE), "/bucket/missing/snapshot/0", "PUT"))
    assert wire.receive().status == 204
    refused(wire.receive(), 404, "stream_not_found")
    assert wire.ended()


def test_a_client_that_waits_to_send_a_good_body_is_told_to_go_on(wire: Wire, text: str) -> None:
    wire.send(announced(len(LARGE), text, **EXPECT))
    assert wire.receive().status == 100
    wire.send(LARGE)
    assert wire.receive().status == 204


def test_a_large_append_that_has_no_room_is_refused_before_its_body() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        with wire_to(url) as wire, wire_to(url) as other:
            made(wire)
            node.shard.hot_bytes_max = 0
            refused(wire.ask("POST", PATH, TEXT, b"small"), 503, "overloaded")
            other.send(announced(len(LARGE)))
            refused(other.receive(), 503, "overloaded")
            assert other.ended()

    against(work)


# -- Snapshots --------------------------------------------------------------------------------------------------------


def blobs(node: Bench) -> list[str]:
    return node.shard.blobs.names()


@pytest.mark.parametrize("size", [10, len(LARGE)])
def test_a_snapshot_that_is_refused_for_lack_of_room_leaves_nothing_behind(size: int) -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        with wire_to(url) as wire:
            assert wire.ask("PUT", "/bucket").status == 201
            made(wire, "/bucket/stream")
            tail = wire.ask("POST", "/bucket/stream", TEXT, b"abc").next_offset
        node.shard.hot_bytes_max = 0
        for _ in range(5):
            with wire_to(url) as wire:
                response = wire.ask("PUT", f"/bucket/stream/snapshot/{tail}", TEXT, b"x" * size)
                refused(response, 503, "overloaded")
                assert response.headers["retry-after"] == "1"
        assert eventually(lambda: not blobs(node))

    against(work)


@pytest.mark.parametrize(
    ("place", "status", "code"),
    [
        ("/bucket/missing/snapshot/0", 404, "stream_not_found"),
        ("/nowhere/stream/snapshot/0", 404, "stream_not_found"),
        ("/bucket/stream/snapshot/7", 409, "snapshot_conflict"),
        ("/bucket/stream/snapshot/nonsense", 400, "invalid_offset"),
        ("/bucket/stream/snapshot", 400, "bad_request"),
    ],
)
def test_a_snapshot_that_cannot_be_published_is_refused_before_anything_is_written(
    place: str, status: int, code: str
) -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        with wire_to(url) as wire:
            assert wire.ask("PUT", "/bucket").status == 201
            made(wire, "/bucket/stream")
            assert wire.ask("POST", "/bucket/stream", TEXT, b"abc").status == 204
            created = list[object]()
            node.shard.blobs.create = lambda _: created.append(1)  # type: ignore[method-assign,assignment,return-value]
            wire.send(announced(100 * MIB, place, "PUT"))
            refused(wire.receive(), status, code)
            assert not created
            assert wire.ended()

    against(work)


def test_an_upload_that_is_cut_short_leaves_nothing_behind() -> None:
    def work(url: str, node: Bench, server: Server) -> None:
        with wire_to(url) as wire:
            assert wire.ask("PUT", "/bucket").status == 201
            made(wire, "/bucket/stream")
            wire.send(announced(MIB, "/bucket/stream/snapshot/0", "PUT") + LARGE)
            assert eventually(lambda: server.context.blobs.used == 1)
        assert eventually(lambda: server.context.blobs.used == 0)
        assert not blobs(node)

    against(work)


# -- Memory -----------------------------------------------------------------------------------------------------------


def with_budget(work: Callable[[str, Server], None]) -> None:
    """Run a client against a server whose bodies may take 32 MiB, and which has the stream."""

    def prepared(url: str, node: Bench, server: Server) -> None:
        with wire_to(url) as wire:
            made(wire)
        work(url, server)
        assert eventually(lambda: server.context.receiving.used == 0)

    against(prepared, receiving_bytes_max=32 * MIB)


def test_unfinished_bodies_take_what_they_announced_and_further_ones_are_refused_until_they_end() -> None:
    def work(url: str, server: Server) -> None:
        with ExitStack() as unfinished:
            for _ in range(2):
                unfinished.enter_context(wire_to(url)).send(announced(16 * MIB))
            assert eventually(lambda: server.context.receiving.used == 32 * MIB)
            with wire_to(url) as wire:
                assert wire.ask("POST", PATH, TEXT, b"small").status == 204
                wire.send(announced(len(LARGE)))
                no_memory(wire)
        assert eventually(lambda: server.context.receiving.used == 0)
        with wire_to(url) as wire:
            assert wire.ask("POST", PATH, TEXT, LARGE).status == 204

    with_budget(work)


def test_a_body_of_unknown_length_takes_memory_as_it_grows() -> None:
    def work(url: str, server: Server) -> None:
        head = request("POST", PATH, TEXT | {"Transfer-Encoding": "chunked"})
        with wire_to(url) as first, wire_to(url) as second, wire_to(url) as third:
            for wire in (first, second):
                wire.send(head + b"1000000\r\n" + b"x" * (15 * MIB + 1))
            assert eventually(lambda: server.context.receiving.used == 32 * MIB)
            third.send(head + chunked(LARGE)[:-5])
            no_memory(third)
            first.send(b"x" * (MIB - 1) + b"\r\n0\r\n\r\n")
            assert first.receive().status == 204
            assert eventually(lambda: server.context.receiving.used == 16 * MIB)

    with_budget(work)


def test_a_body_keeps_its_memory_until_its_request_has_been_answered() -> None:
    def work(url: str, server: Server) -> None:
        with wire_to(url) as wire:
            wire.send(request("GET", f"{PATH}?offset=now&live=long-poll&timeout_ms=60000"))
            wire.send(request("POST", f"{PATH}-other", TEXT, LARGE))
            assert eventually(lambda: server.context.receiving.used == len(LARGE))
            with wire_to(url) as writer:
                assert writer.ask("POST", PATH, TEXT, b"wake").status == 204
            assert wire.receive().status == 200
            assert wire.receive().status == 404
            assert eventually(lambda: server.context.receiving.used == 0)

    with_budget(work)
