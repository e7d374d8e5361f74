"""Appends, closes and idempotent producers, in the normal case."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater.testing import RunningServer

from ..sockets import Wire, refused, request

TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
MIB = 1024 * 1024


def producer(seq: int, *, epoch: int = 0, identity: str = "p") -> dict[str, str]:
    return {**TEXT, "Producer-Id": identity, "Producer-Epoch": str(epoch), "Producer-Seq": str(seq)}


def test_each_outcome_has_its_status(wire: Wire, path: str) -> None:
    assert wire.ask("PUT", path, TEXT).status == 201
    assert wire.ask("PUT", path, TEXT).status == 200
    assert wire.ask("POST", path, TEXT, b"a").status == 204
    accepted = wire.ask("POST", path, producer(0), b"b")
    assert (accepted.status, accepted.body) == (200, b"")
    assert (accepted.headers["producer-epoch"], accepted.headers["producer-seq"]) == ("0", "0")
    assert wire.ask("POST", path, producer(0), b"b").status == 204
    closed = wire.ask("POST", path, {**producer(1), "Stream-Closed": "true"}, b"c")
    assert (closed.status, closed.headers["stream-closed"], closed.headers["producer-seq"]) == (200, "true", "1")
    assert wire.ask("DELETE", path).status == 204


def test_a_close_alone_is_204_with_and_without_a_producer(wire: Wire, path: str) -> None:
    for headers in ({}, producer(0)):
        wire.ask("PUT", path, TEXT)
        for _ in range(2):
            response = wire.ask("POST", path, {**headers, "Stream-Closed": "true"})
            assert (response.status, response.headers["stream-closed"]) == (204, "true")
            assert ("producer-seq" in response.headers) == bool(headers)
        wire.ask("DELETE", path)


def test_a_retry_of_the_last_request_gets_the_offset_it_got_first(wire: Wire, text: str) -> None:
    wire.ask("POST", text, producer(0), b"one")
    first = wire.ask("POST", text, producer(1), b"two").next_offset
    tail = wire.ask("POST", text, TEXT, b"somebody else").next_offset
    assert wire.ask("POST", text, producer(1), b"two").next_offset == first
    assert wire.ask("POST", text, producer(0), b"one").next_offset == tail


def test_a_retry_that_was_pipelined_is_written_once(wire: Wire, text: str) -> None:
    wire.send(request("POST", text, producer(0), b"a") * 3 + request("POST", text, producer(1), b"b") * 3)
    assert [wire.receive().status for _ in range(6)] == [200, 204, 204, 200, 204, 204]
    assert wire.ask("GET", text).body == b"ab"


def test_a_new_epoch_takes_over_and_fences_the_old_one(wire: Wire, text: str) -> None:
    assert wire.ask("POST", text, producer(0), b"a").status == 200
    assert wire.ask("POST", text, producer(0, epoch=1), b"b").status == 200
    assert wire.ask("POST", text, producer(1), b"zombie").status == 403
    assert wire.ask("POST", text, producer(1, epoch=1), b"c").status == 200
    assert wire.ask("GET", text).body == b"abc"


def test_producers_do_not_know_of_each_other(wire: Wire, text: str) -> None:
    for identity in ("p", "P", "p\xe9", "p " + "x" * 200):
        assert wire.ask("POST", text, producer(0, identity=identity), b"x").status == 200
    assert wire.ask("GET", text).body == b"xxxx"


def test_writers_that_know_nothing_of_each_other_lose_nothing(server: RunningServer, wire: Wire, text: str) -> None:
    def write(writer: int) -> None:
        with Wire(server.url) as own:
            for number in range(20):
                assert own.ask("POST", text, TEXT, b"<%d.%d>" % (writer, number)).status == 204

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(write, range(10)))
    messages = wire.ask("GET", text).body.decode().strip("<>").split("><")
    assert sorted(messages) == sorted(f"{writer}.{number}" for writer in range(10) for number in range(20))
    for writer in range(10):
        assert [m for m in messages if m.startswith(f"{writer}.")] == [f"{writer}.{n}" for n in range(20)]


@pytest.mark.parametrize("messages", [262_145, 8 * MIB - 1])
def test_an_append_of_too_many_messages_is_refused(wire: Wire, documents: str, messages: int) -> None:
    refused(wire.ask("POST", documents, JSON, b"[" + b"1," * (messages - 1) + b"1]"), 413, "too_large")
    assert wire.ask("GET", documents).body == b"[]"


def test_an_append_of_many_messages_is_taken(wire: Wire, documents: str) -> None:
    assert wire.ask("POST", documents, JSON, b"[" + b"1," * 262_143 + b"1]").status == 204
