"""How a delivery handles each of the server's answers."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.spark.link import Link, LinkSettings
from headwater.spark.sink.chunks import CHUNKS
from headwater.spark.sink.delivery import DONE, REQUEST_BYTES, Delivery, Producer, WriteFailed, packed
from headwater.testing import RunningServer, running_server

SETTINGS = LinkSettings("http://127.0.0.1:1", retries=3, retry_interval_seconds=0.0)
ANSWER = {"code": None, "detail": None, "producer_epoch": None, "producer_seq": None, "expected_seq": None}


def chunk(stream: str, seq: int = 0, *, last: bool = True, content_type: str | None = None) -> dict[str, Any]:
    message = f"{stream} {seq}".encode()
    row = {"stream": stream, "messages": [message], "content_type": content_type}
    return {**row, "close": False, "seq": seq, "last": last}


def table(*chunks: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(chunks), CHUNKS)


class Scripted:
    """A server that gives scripted answers, append by append, and records what it was sent."""

    settings = SETTINGS

    def __init__(self, script: Callable[[int, dict[str, Any]], tuple[int, str | None]]) -> None:
        self._script = script
        self.requests: list[list[dict[str, Any]]] = []

    def append(self, rows: pa.Table) -> pa.Table:
        self.requests.append(rows.to_pylist())
        answers: list[dict[str, Any]] = []
        refused: dict[str, tuple[int, str | None]] = {}
        for row in self.requests[-1]:
            status, code = refused.get(row["stream"]) or self._script(len(self.requests), row)
            if status not in DONE:
                refused[row["stream"]] = status, code
            answers.append({**ANSWER, "status": status, "code": code, "detail": f"{status} {code}."})
        return pa.Table.from_pylist(answers)

    def sent(self) -> list[list[tuple[str, int]]]:
        return [[(row["stream"], row["producer_seq"]) for row in request] for request in self.requests]


def deliver(server: Scripted, *requests: pa.Table, create: bool = True) -> Delivery:
    found = Delivery(server, Producer("job", 7), create=create, content_type="application/json")
    found.send_all(requests)
    return found


def test_appends_and_duplicates_are_counted() -> None:
    server = Scripted(lambda _, row: (204 if row["stream"] == "b/x" else 200, None))
    done = deliver(server, table(chunk("b/x"), chunk("b/y"), chunk("b/z")), table(chunk("c/x")))
    assert (done.appends, done.duplicates) == (3, 1)
    assert server.sent() == [[("b/x", 0), ("b/y", 0), ("b/z", 0)], [("c/x", 0)]]


def test_an_append_names_its_producer_and_the_type_of_a_new_stream() -> None:
    server = Scripted(lambda _, row: (200, None))
    deliver(server, table(chunk("b/x", 4), chunk("b/y", content_type="text/plain")))
    (first, second) = server.requests[0]
    assert first == {
        "stream": "b/x",
        "messages": [b"b/x 4"],
        "content_type": "application/json",
        "create": True,
        "close": False,
        "producer_id": "job",
        "producer_epoch": 7,
        "producer_seq": 4,
    }
    assert second["content_type"] == "text/plain"


def test_without_creation_a_type_is_sent_only_where_a_row_names_it() -> None:
    server = Scripted(lambda _, row: (200, None))
    deliver(server, table(chunk("b/x"), chunk("b/y", content_type="text/plain")), create=False)
    assert [(row["content_type"], row["create"]) for row in server.requests[0]] == [
        (None, False),
        ("text/plain", False),
    ]


def test_only_appends_refused_by_a_busy_server_are_sent_again_in_order() -> None:
    def script(request: int, row: dict[str, Any]) -> tuple[int, str | None]:
        return (503, "overloaded") if request < 3 and row["stream"] == "b/y" else (200, None)

    server = Scripted(script)
    deliver(server, table(chunk("b/x"), chunk("b/y", 0, last=False), chunk("b/y", 1), chunk("b/z")))
    assert server.sent()[1:] == [[("b/y", 0), ("b/y", 1)]] * 2


def test_retries_are_limited() -> None:
    server = Scripted(lambda _, row: (503, "overloaded"))
    with pytest.raises(
        WriteFailed, match=r"^The server refused 2 appends 4 times in a row, the first to the stream 'b/x'; .*: 503"
    ):
        deliver(server, table(chunk("b/x"), chunk("b/y")))
    assert len(server.requests) == SETTINGS.retries + 1


def test_retries_are_counted_again_whenever_something_was_appended() -> None:
    server = Scripted(lambda request, row: (200, None) if row["producer_seq"] * 3 < request else (503, "overloaded"))
    deliver(server, table(*(chunk(f"b/{number}", number) for number in range(6))))
    assert len(server.requests) > 2 * SETTINGS.retries


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, "producer_forbidden", "may not write to the stream 'a' (401 producer_forbidden); ask for the right"),
        (403, "forbidden", "may not write to the stream 'a' (403 forbidden); ask for the right"),
        (507, "quota_exceeded", "its bucket is full (507 quota_exceeded); delete or trim streams"),
    ],
)
def test_a_missing_right_and_a_full_bucket_are_final(status: int, code: str, words: str) -> None:
    server = Scripted(lambda request, row: (status, code))
    with pytest.raises(WriteFailed) as caught:
        deliver(server, table(chunk("a")))
    assert words in str(caught.value) and len(server.requests) == 1


def test_a_rate_limit_is_waited_for() -> None:
    server = Scripted(lambda request, row: (429, "rate_limited") if request < 3 else (200, None))
    assert deliver(server, table(chunk("a"))).appends == 1


def test_a_stream_keeps_its_own_type_unless_a_row_names_one() -> None:
    def script(_: int, row: dict[str, Any]) -> tuple[int, str | None]:
        return (200, None) if row["content_type"] is None else (409, "content_type_mismatch")

    server = Scripted(script)
    deliver(server, table(chunk("b/x", 0, last=False), chunk("b/x", 1)))
    assert [(row["producer_seq"], row["content_type"], row["create"]) for row in server.requests[1]] == [
        (0, None, False),
        (1, None, False),
    ]
    with pytest.raises(
        WriteFailed, match=r"^The stream 'b/x' refused an append with 409: 409 content_type_mismatch\.$"
    ):
        deliver(Scripted(script), table(chunk("b/x", content_type="text/plain")))


# -- A stream that is found closed -----------------------------------------------------------------------------------


def closed_after(applied: bool) -> Callable[[int, dict[str, Any]], tuple[int, str | None]]:
    """A server that checks for closed streams before it checks for duplicates, except for the closing append."""

    def script(_: int, row: dict[str, Any]) -> tuple[int, str | None]:
        if row["stream"] != "b/x":
            return 200, None
        return (204, None) if applied and row["producer_seq"] == 3 else (409, "stream_closed")

    return script


CLOSED_IN_ONE = (table(chunk("a/a"), *(chunk("b/x", seq, last=seq == 3) for seq in range(4)), chunk("b/y")),)
CLOSED_IN_TWO = (
    table(chunk("a/a"), *(chunk("b/x", seq, last=False) for seq in range(2))),
    table(*(chunk("b/x", seq, last=seq == 3) for seq in range(2, 4)), chunk("b/y")),
)
CLOSED_IN_THREE = (
    table(chunk("a/a"), chunk("b/x", 0, last=False)),
    table(chunk("b/x", 1, last=False), chunk("b/x", 2, last=False)),
    table(chunk("b/x", 3), chunk("b/y")),
)


@pytest.mark.parametrize("requests", [CLOSED_IN_ONE, CLOSED_IN_TWO, CLOSED_IN_THREE], ids=["1", "2", "3"])
def test_the_closing_append_proves_that_the_batch_was_applied(requests: tuple[pa.Table, ...]) -> None:
    server = Scripted(closed_after(applied=True))
    done = deliver(server, *requests)
    assert (done.appends, done.duplicates) == (2, 1)


@pytest.mark.parametrize("requests", [CLOSED_IN_ONE, CLOSED_IN_TWO, CLOSED_IN_THREE], ids=["1", "2", "3"])
def test_a_stream_that_another_producer_closed_fails_the_task(requests: tuple[pa.Table, ...]) -> None:
    with pytest.raises(WriteFailed, match=r"^The stream 'b/x' was closed before the whole batch was written to it"):
        deliver(Scripted(closed_after(applied=False)), *requests)


# -- A real server ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as found:
        yield found


def send(server: RunningServer, epoch: int, *chunks: dict[str, Any], create: bool = True) -> Delivery:
    with Link(LinkSettings(server.url)) as link:
        found = Delivery(link, Producer("job", epoch), create=create, content_type="application/octet-stream")
        found.send(table(*chunks))
        return found


def test_the_error_for_an_older_epoch_names_the_newer_one(server: RunningServer) -> None:
    send(server, 5, chunk("fenced/x"))
    with pytest.raises(
        WriteFailed, match=r"^The stream 'fenced/x' is at epoch 5 of the producer 'job' and refuses epoch 4: "
    ):
        send(server, 4, chunk("fenced/x"))


def test_the_error_for_a_gap_says_that_the_stream_lost_data(server: RunningServer) -> None:
    send(server, 1, chunk("gap/x"))
    with pytest.raises(WriteFailed, match=r"^The stream 'gap/x' has lost what the producer 'job' wrote to it"):
        send(server, 1, chunk("gap/x", 2))
    with pytest.raises(WriteFailed, match=r"^The stream 'gap/x' has lost what the producer 'job' wrote to it"):
        send(server, 2, chunk("gap/x", 1))


def test_other_rows_in_the_place_of_a_repeated_append_fail_the_task() -> None:
    server = Scripted(lambda _, row: (409, "producer_payload_mismatch") if row["stream"] == "b/x" else (200, None))
    with pytest.raises(
        WriteFailed,
        match=r"^The stream 'b/x' has other rows in epoch 7 of the producer 'job' than were sent now: .*orderColumn",
    ):
        deliver(server, table(chunk("a/a"), chunk("b/x"), chunk("b/y")))


def test_fewer_appends_than_the_stream_has_of_the_batch_fail_the_task(server: RunningServer) -> None:
    whole = [chunk("fewer/x", seq, last=seq == 2) for seq in range(3)]
    assert send(server, 1, *whole).appends == 3
    again = send(server, 1, *whole)
    assert (again.appends, again.duplicates, again.rows_repeated) == (0, 3, 3)
    with pytest.raises(WriteFailed, match=r"^The stream 'fewer/x' has other rows in epoch 1 of the producer 'job'"):
        send(server, 1, whole[0], {**whole[1], "last": True})


def test_a_missing_stream_is_named_without_creation(server: RunningServer) -> None:
    with pytest.raises(
        WriteFailed, match=r"^There is no stream 'missing/x'; create it, or set the option createStreams"
    ):
        send(server, 1, chunk("missing/x"), create=False)


def test_the_error_for_invalid_json_names_the_option_for_other_types(server: RunningServer) -> None:
    with pytest.raises(WriteFailed, match=r"^The stream 'json/x' holds JSON, but a value is not valid JSON; "):
        send(server, 1, chunk("json/x", content_type="application/json"))


def test_a_stream_that_exists_keeps_its_type(server: RunningServer) -> None:
    send(server, 1, chunk("typed/x", content_type="text/plain"))
    done = send(server, 1, chunk("typed/x", 1, last=False), chunk("typed/x", 2), chunk("typed/y"))
    assert done.appends == 3


def test_a_bad_name_is_refused_by_the_server(server: RunningServer) -> None:
    with pytest.raises(WriteFailed, match=r"^The stream 'bad/\.\./x' refused an append with 400: "):
        send(server, 1, chunk("bad/../x"))


# -- Requests --------------------------------------------------------------------------------------------------------

BATCHES = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=12), max_size=8)


@settings(deadline=None)
@given(BATCHES)
def test_requests_hold_all_chunks_in_order_and_are_of_a_good_size(sizes: list[list[int]]) -> None:
    chunks = [[{**chunk("b/x", at), "messages": [b"x" * size]} for at, size in enumerate(some)] for some in sizes]
    batches = [pa.RecordBatch.from_pylist(some, CHUNKS) for some in chunks]
    requests = list(packed(batches, request_bytes=60, request_appends=5, append_bytes=1))
    assert [row for request in requests for row in request.to_pylist()] == [row for some in chunks for row in some]
    for request in requests:
        weights = [1 + len(messages[0]) for messages in request["messages"].to_pylist()]
        assert 0 < len(weights) <= 5
        assert sum(weights) <= 60


def test_a_chunk_larger_than_a_request_is_sent_alone() -> None:
    large = {**chunk("b/x"), "messages": [b"x" * REQUEST_BYTES]}
    batch = pa.RecordBatch.from_pylist([chunk("a/a"), large, chunk("b/y")], CHUNKS)
    assert [request["stream"].to_pylist() for request in packed([batch])] == [["a/a"], ["b/x"], ["b/y"]]
