"""JSON bodies so large that they are split in a thread: everything stays in the order of the requests."""

import json

import pytest

from headwater.http.api.streams import SPLIT_ON_LOOP_BYTES_MAX
from headwater.protocol.limits import MESSAGES_PER_APPEND_MAX
from headwater.testing import RunningServer

from ..sockets import Response, Wire, refused, request

JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain"}
CLOSE = {**JSON, "Stream-Closed": "true"}


def large(label: str) -> str:
    """A message that is larger than what is split on the loop."""
    return label + "x" * SPLIT_ON_LOOP_BYTES_MAX


def body(*messages: object) -> bytes:
    return json.dumps(messages).encode()


def frames(*bodies: bytes) -> bytes:
    return b"".join(len(one).to_bytes(4, "big") + one for one in bodies)


@pytest.fixture
def documents(wire: Wire, path: str) -> str:
    assert wire.ask("PUT", path, JSON).status == 201
    return path


@pytest.fixture
def bucketed(wire: Wire) -> str:
    """A JSON stream below a bucket, where batches are."""
    wire.ask("PUT", "/large")
    path = "/large/documents"
    wire.ask("DELETE", path)
    assert wire.ask("PUT", path, JSON).status == 201
    return path


def contents(wire: Wire, path: str) -> list[object]:
    offset, found = "-1", list[object]()
    while True:
        page = wire.ask("GET", f"{path}?offset={offset}")
        found += json.loads(page.body)
        if "stream-up-to-date" in page.headers:
            return found
        offset = page.next_offset


def test_pipelined_appends_are_appended_in_the_order_of_their_requests(wire: Wire, documents: str) -> None:
    sent: list[object] = [large("0"), 1, 2, large("3"), large("4"), 5, large("6"), 7]
    wire.send(b"".join(request("POST", documents, JSON, body(message)) for message in sent))
    assert [wire.receive().status for _ in sent] == [204] * len(sent)
    assert contents(wire, documents) == sent


def test_a_read_sees_the_large_append_before_it_and_not_the_one_after_it(wire: Wire, documents: str) -> None:
    first, second = request("POST", documents, JSON, body(large("a"))), request("POST", documents, JSON, body(2))
    wire.send(first + request("GET", f"{documents}?offset=-1") + second)
    assert wire.receive().status == 204
    assert json.loads(wire.receive().body) == [large("a")]
    assert wire.receive().status == 204


def test_an_append_follows_the_large_create_before_it(wire: Wire, path: str) -> None:
    wire.send(request("PUT", path, JSON, body(large("a"), 1)) + request("POST", path, JSON, body(2)))
    assert [wire.receive().status, wire.receive().status] == [201, 204]
    assert contents(wire, path) == [large("a"), 1, 2]


def test_what_follows_a_large_body_that_is_not_json_is_answered(wire: Wire, documents: str) -> None:
    bad = body(large("a"))[:-1]
    wire.send(request("POST", documents, JSON, bad) + request("POST", documents, JSON, body(1)))
    refused(wire.receive(), 400, "invalid_json")
    assert wire.receive().status == 204
    refused(wire.ask("PUT", f"{documents}-2", JSON, bad), 400, "invalid_json")
    refused(wire.ask("POST", documents, JSON, b"[" + b" " * SPLIT_ON_LOOP_BYTES_MAX + b"]"), 400, "empty_body")
    assert contents(wire, documents) == [1]


def test_the_state_of_the_stream_matters_before_a_large_body_does(server: RunningServer, wire: Wire, path: str) -> None:
    def append_badly() -> Response:
        # A refusal that needs only the head of the request closes its connection.
        with Wire(server.url) as other:
            return other.ask("POST", path, JSON, body(large("a"))[:-1])

    refused(append_badly(), 404, "stream_not_found")
    assert wire.ask("PUT", path, TEXT).status == 201
    refused(append_badly(), 409, "content_type_mismatch")
    assert wire.ask("DELETE", path).status == 204
    assert wire.ask("PUT", path, CLOSE).status == 201
    refused(append_badly(), 409, "stream_closed")


def test_a_large_append_may_close_the_stream(wire: Wire, documents: str) -> None:
    wire.send(request("POST", documents, CLOSE, body(large("a"))) + request("POST", documents, JSON, body(1)))
    assert wire.receive().status == 204
    refused(wire.receive(), 409, "stream_closed")
    assert contents(wire, documents) == [large("a")]


def test_a_create_with_a_large_empty_array_makes_an_empty_stream(wire: Wire, path: str) -> None:
    assert wire.ask("PUT", path, JSON, b"[" + b" " * SPLIT_ON_LOOP_BYTES_MAX + b"]").status == 201
    assert contents(wire, path) == []


# -- Batches -----------------------------------------------------------------------------------------------------------


def test_a_large_batch_keeps_its_place_among_other_writes(wire: Wire, bucketed: str) -> None:
    batch = frames(body(large("a")), body(1, 2), b"3")
    wire.send(
        request("POST", bucketed, JSON, body(0))
        + request("POST", f"{bucketed}/append-batch", JSON, batch)
        + request("POST", bucketed, JSON, body(4))
    )
    assert [wire.receive().status for _ in range(3)] == [204, 200, 204]
    assert contents(wire, bucketed) == [0, large("a"), 1, 2, 3, 4]


def test_a_large_batch_for_a_stream_that_does_not_exist_is_refused(wire: Wire, bucketed: str) -> None:
    batch = frames(body(large("a"))[:-1])
    refused(wire.ask("POST", f"{bucketed}-none/append-batch", JSON, batch), 404, "stream_not_found")


@pytest.mark.parametrize("producer", [{}, {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}])
def test_all_frames_of_a_batch_together_have_as_many_messages_as_one_append_may(
    wire: Wire, bucketed: str, producer: dict[str, str]
) -> None:
    half = b"[" + b",".join([b"1"] * (MESSAGES_PER_APPEND_MAX // 2)) + b"]"
    url, headers = f"{bucketed}/append-batch", {**JSON, **producer}
    refused(wire.ask("POST", url, headers, frames(half, b"1", half)), 413, "too_large")
    assert wire.ask("HEAD", bucketed).headers["stream-record-next"] == "0"
    assert wire.ask("POST", url, headers, frames(half, half)).status == 200
    assert wire.ask("HEAD", bucketed).headers["stream-record-next"] == str(MESSAGES_PER_APPEND_MAX)


def test_a_large_retry_is_recognised_after_the_stream_was_closed(wire: Wire, documents: str) -> None:
    first = {**JSON, "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    assert wire.ask("POST", documents, first, body(large("a"), 1)).status == 200
    assert wire.ask("POST", documents, {"Stream-Closed": "true"}).status == 204
    assert wire.ask("POST", documents, first, body(large("a"), 1)).status == 204
    refused(wire.ask("POST", documents, first, body(large("b"), 1)), 409, "producer_payload_mismatch")


def test_a_fork_with_a_large_body_begins_with_its_source_and_keeps_its_place(wire: Wire, path: str) -> None:
    source, fork = f"{path}-source", f"{path}-fork"
    assert wire.ask("PUT", source, JSON, b"[1]").status == 201
    forked = {"Stream-Forked-From": source}
    wire.send(request("PUT", fork, forked, body(large("a"), 2)) + request("POST", fork, JSON, b"[3]"))
    assert [wire.receive().status for _ in range(2)] == [201, 204]
    assert json.loads(wire.ask("GET", f"{fork}?offset=-1").body) == [1, large("a"), 2, 3]
    refused(wire.ask("PUT", f"{fork}-2", forked, b"[" * (SPLIT_ON_LOOP_BYTES_MAX + 1)), 400, "invalid_json")
    assert wire.ask("HEAD", f"{fork}-2").status == 404


def test_a_large_body_of_a_fork_of_text_is_not_read_as_json(wire: Wire, path: str) -> None:
    source, fork = f"{path}-source", f"{path}-fork"
    assert wire.ask("PUT", source, TEXT, b"a").status == 201
    rest = b"[" * (SPLIT_ON_LOOP_BYTES_MAX + 1)
    assert wire.ask("PUT", fork, {"Stream-Forked-From": source}, rest).status == 201
    assert wire.ask("GET", f"{fork}?offset=-1").body == b"a" + rest
