"""Which request a reader sends next, given the last response."""

from dataclasses import replace
from typing import Any

import pytest

from headwater.client.errors import (
    IncarnationChanged,
    NotFound,
    OffsetTrimmed,
    ProtocolViolation,
    ServerUnavailable,
    TransportFailed,
)
from headwater.client.reading import Reader, ReadOptions
from headwater.client.retrying import RetryPolicy
from headwater.client.values import Live
from headwater.client.wire import Response

from .script import LOST, UNREACHABLE, Line, Script

URL = "http://h/s"
POLICY = RetryPolicy(attempts_max=4, first_delay_seconds=1.0, dice=lambda: 0.0)
GONE = Response(410, {"stream-earliest-offset": "5"}, b'{"code":"offset_trimmed"}')


def page(
    data: bytes, offset: str, *, up_to_date: bool = True, closed: bool = False, status: int = 200, **more: str
) -> Response:
    headers = {"stream-next-offset": offset, "content-type": "text/plain"}
    headers |= {name.replace("_", "-"): value for name, value in more.items()}
    if up_to_date:
        headers["stream-up-to-date"] = "true"
    if closed:
        headers["stream-closed"] = "true"
    return Response(status, headers, data)


def events(*pieces: Any, **headers: str) -> tuple[Response, list[Any]]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(200, {"content-type": "text/event-stream", **named}), list(pieces)


def data(text: str, offset: str, more: str = "") -> bytes:
    return f'event: data\ndata:{text}\n\nevent: control\ndata:{{"streamNextOffset":"{offset}"{more}}}\n\n'.encode()


def read(*answers: Line, live: Live | None = None, **options: Any) -> tuple[Script, list[tuple[bytes, str]]]:
    script = Script(answers)
    reader = Reader(URL, POLICY, replace(ReadOptions(live), **options))
    chunks = script.run(reader.run())
    return script, [(chunk.data, chunk.next_offset) for chunk in chunks]


# -- Catching up -------------------------------------------------------------------------------------------------------


def test_pages_are_read_until_one_is_up_to_date() -> None:
    script, chunks = read(page(b"a", "1", up_to_date=False), page(b"b", "2", up_to_date=False), page(b"c", "3"))
    assert chunks == [(b"a", "1"), (b"b", "2"), (b"c", "3")]
    assert [params["offset"] for params in script.params] == ["-1", "1", "2"]
    assert not any("live" in params for params in script.params)


def test_an_empty_stream_is_one_empty_chunk() -> None:
    assert read(page(b"", "0"))[1] == [(b"", "0")]


def test_a_server_that_never_says_up_to_date_is_not_asked_endlessly() -> None:
    script, chunks = read(page(b"a", "1", up_to_date=False), page(b"", "1", up_to_date=False))
    assert chunks == [(b"a", "1"), (b"", "1")]
    assert len(script.requests) == 2


def test_a_lost_page_is_asked_for_again_after_growing_pauses() -> None:
    script, chunks = read(LOST, UNREACHABLE, Response(503), page(b"a", "1"))
    assert chunks == [(b"a", "1")]
    assert script.pauses == [0.5, 1.0, 2.0]


def test_progress_resets_the_count_of_failures() -> None:
    more = page(b"a", "1", up_to_date=False)
    _, chunks = read(LOST, LOST, LOST, more, LOST, LOST, LOST, page(b"b", "2"))
    assert len(chunks) == 2


def test_failures_come_to_an_end() -> None:
    with pytest.raises(TransportFailed):
        read(LOST, LOST, LOST, LOST)
    with pytest.raises(ServerUnavailable):
        read(*[Response(500)] * 4)


def test_retry_after_is_waited_for() -> None:
    script, _ = read(Response(429, {"retry-after": "7"}), page(b"", "0"))
    assert script.pauses == [7.0]


def test_a_missing_stream_is_not_asked_for_again() -> None:
    with pytest.raises(NotFound):
        read(Response(404))


def test_a_page_without_an_offset_violates_the_protocol() -> None:
    with pytest.raises(ProtocolViolation):
        read(Response(200, {"content-type": "text/plain"}, b"a"))


def test_the_incarnation_goes_with_every_later_request() -> None:
    script, _ = read(page(b"a", "1", up_to_date=False, stream_incarnation="x-1"), page(b"b", "2"))
    assert [request.headers.get("Stream-Incarnation") for request in script.requests] == [None, "x-1"]


def test_another_incarnation_is_never_read_as_more_of_this_one() -> None:
    first = page(b"a", "1", up_to_date=False, stream_incarnation="x-1")
    with pytest.raises(IncarnationChanged):
        read(first, page(b"b", "2", stream_incarnation="x-2"))
    with pytest.raises(IncarnationChanged):
        read(first, Response(410, {}, b'{"code":"incarnation_changed"}'))


# -- Trimmed data ------------------------------------------------------------------------------------------------------

BOOTSTRAP = Response(
    200,
    {
        "content-type": "multipart/mixed; boundary=b",
        "stream-snapshot-offset": "5",
        "stream-next-offset": "7",
        "stream-up-to-date": "true",
    },
    b"--b\r\nContent-Type: text/x\r\n\r\nso far\r\n--b\r\nContent-Type: text/plain\r\n\r\nmore\r\n--b--\r\n",
)


def test_trimmed_history_is_an_error_that_says_where_history_begins() -> None:
    with pytest.raises(OffsetTrimmed) as caught:
        read(GONE)
    assert caught.value.earliest_offset == "5"


def test_a_reader_may_resume_at_the_earliest_data() -> None:
    script, chunks = read(GONE, page(b"f", "6"), on_trimmed="earliest")
    assert chunks == [(b"f", "6")]
    assert script.params[1]["offset"] == "5"


def test_a_reader_may_start_over_with_the_snapshot() -> None:
    script = Script([GONE, LOST, GONE, BOOTSTRAP])
    reader = Reader(URL, POLICY, ReadOptions(on_trimmed="bootstrap"))
    (chunk,) = script.run(reader.run())
    assert [request.url for request in script.requests] == [URL, f"{URL}/bootstrap"] * 2
    assert chunk.snapshot is not None and chunk.snapshot.data == b"so far" and chunk.snapshot.offset == "5"
    assert (chunk.data, chunk.next_offset) == (b"more", "7")


@pytest.mark.parametrize("on_trimmed", ["earliest", "bootstrap"])
def test_a_server_that_trims_everything_is_not_asked_endlessly(on_trimmed: str) -> None:
    with pytest.raises(OffsetTrimmed):
        read(*[GONE] * 9, on_trimmed=on_trimmed)


# -- SSE ---------------------------------------------------------------------------------------------------------------


def test_following_goes_from_pages_to_events_and_ends_where_the_stream_is_closed() -> None:
    script, chunks = read(page(b"a", "1"), events(data("b", "2"), data("c", "3", ',"streamClosed":true')), live="auto")
    assert chunks == [(b"a", "1"), (b"b", "2"), (b"c", "3")]
    assert script.params[1] == {"offset": "1", "live": "sse"}
    assert script.shut == 1


def test_data_without_its_control_event_comes_again() -> None:
    half = b"event: data\ndata:c\n\nevent: contr"
    script, chunks = read(
        page(b"", "1"),
        events(data("b", "2", ',"streamCursor":"9"'), 2.0, half, LOST),
        events(data("c", "3", ',"streamClosed":true')),
        live="auto",
    )
    assert chunks == [(b"", "1"), (b"b", "2"), (b"c", "3")]
    assert script.params[2] == {"offset": "2", "live": "sse", "cursor": "9"}
    assert script.pauses == []


def test_several_data_events_before_one_control_event_are_one_chunk() -> None:
    first = page(b"[]", "0", content_type="application/json")
    control = b'event: control\ndata: {"streamNextOffset":"3","streamClosed":true}\n\n'
    _, chunks = read(first, events(b"event: data\ndata:[1]\n\nevent: data\ndata:[2,3]\n\n" + control), live="sse")
    assert chunks[-1] == (b"[1,2,3]", "3")


def test_base64_is_taken_off_event_by_event() -> None:
    two = b"event: data\ndata:AP\ndata:8=\n\nevent: data\ndata:AQ==\n\n"
    control = b'event: control\ndata: {"streamNextOffset":"3","streamClosed":true}\n\n'
    _, chunks = read(page(b"", "0"), events(two + control, stream_sse_data_encoding="base64"), live="sse")
    assert chunks[-1] == (b"\x00\xff\x01", "3")


@pytest.mark.parametrize("control", ["{broken", "", "[]", '{"upToDate":true}', '{"streamNextOffset":5}'])
def test_a_control_event_that_makes_no_sense_is_an_error(control: str) -> None:
    with pytest.raises(ProtocolViolation):
        read(page(b"", "0"), events(f"event: control\ndata:{control}\n\n".encode()), live="auto")


def test_data_that_is_not_base64_is_an_error() -> None:
    broken = events(b"event: data\ndata:*\n\n", stream_sse_data_encoding="base64")
    with pytest.raises(ProtocolViolation):
        read(page(b"", "0"), broken, live="auto")


def test_a_connection_that_the_server_turns_over_is_opened_again_at_once() -> None:
    script, _ = read(page(b"", "0"), *[events(data("x", str(at)), 60.0) for at in range(1, 8)], live="auto")
    assert script.pauses == []
    assert {params["live"] for params in script.params[1:]} == {"sse"}


def test_after_three_connections_that_did_not_last_events_are_given_up_for_long_poll() -> None:
    script, _ = read(page(b"", "0"), *[events(data("x", "1"))] * 3, page(b"", "1", closed=True), live="auto")
    assert [params.get("live") for params in script.params] == [None, "sse", "sse", "sse", "long-poll"]
    assert script.pauses == [0.5, 1.0, 2.0]


def test_a_connection_that_lasts_is_forgiven() -> None:
    short, lasting = events(data("x", "1")), events(data("x", "1"), 5.0)
    script, _ = read(page(b"", "0"), short, short, lasting, short, short, live="auto")
    assert {params["live"] for params in script.params[1:]} == {"sse"}


def test_live_sse_never_falls_back_to_long_poll() -> None:
    script, _ = read(page(b"", "0"), *[events(data("x", "1"))] * 9, live="sse")
    assert {params["live"] for params in script.params[1:]} == {"sse"}


def test_live_sse_gives_up_on_connections_without_events() -> None:
    with pytest.raises(TransportFailed, match="do not last"):
        read(page(b"", "0"), *[events(b": hello\n\n")] * 9, live="sse")


def test_data_that_never_gets_its_control_event_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.client.reading.EVENT_BYTES_MAX", 100)
    with pytest.raises(ProtocolViolation, match="without a control event"):
        read(page(b"", "0"), events(*[b"event: data\ndata:0123456789\n\n"] * 20), live="sse")


@pytest.mark.parametrize("answer", [Response(400), Response(406), Response(501), Response(200, {}, b"")])
def test_a_server_without_events_is_asked_by_long_poll(answer: Response) -> None:
    script, _ = read(page(b"", "0"), (answer, [b"no"]), page(b"", "0", closed=True), live="auto")
    assert [params.get("live") for params in script.params] == [None, "sse", "long-poll"]


def test_live_sse_fails_if_the_server_has_no_events() -> None:
    with pytest.raises(ProtocolViolation):
        read(page(b"", "0"), (Response(200, {"content-type": "text/plain"}), []), live="sse")


def test_an_offline_server_is_waited_for_but_not_endlessly() -> None:
    with pytest.raises(TransportFailed):
        read(page(b"", "0"), UNREACHABLE, UNREACHABLE, (Response(503), []), UNREACHABLE, live="auto")


def test_an_idle_stream_says_once_that_it_is_up_to_date() -> None:
    control = b'event: control\ndata: {"streamNextOffset":"1","upToDate":true}\n\n'
    _, chunks = read(page(b"a", "1"), events(control, 60.0), events(control, control, 60.0), live="auto")
    assert chunks == [(b"a", "1")]


def test_text_of_several_lines_is_read_by_long_poll_for_its_line_ends_are_lost_in_events() -> None:
    lines = b'event: data\ndata:a\ndata:b\n\nevent: control\ndata: {"streamNextOffset":"3"}\n\n'
    script, chunks = read(page(b"", "0"), events(lines), page(b"a\rb", "3", closed=True), live="auto")
    assert chunks == [(b"", "0"), (b"a\rb", "3")]
    assert [params.get("live") for params in script.params] == [None, "sse", "long-poll"]
    assert script.shut == 1 and script.pauses == []


def test_live_sse_accepts_changed_line_ends() -> None:
    lines = b'event: data\ndata:a\ndata:b\n\nevent: control\ndata: {"streamNextOffset":"3","streamClosed":true}\n\n'
    assert read(page(b"", "0"), events(lines), live="sse")[1][-1] == (b"a\nb", "3")


# -- Long-poll ---------------------------------------------------------------------------------------------------------


def test_long_poll_continues_with_the_cursor_and_emits_nothing_while_nothing_arrives() -> None:
    idle = page(b"", "1", status=204, stream_cursor="7")
    script, chunks = read(
        page(b"a", "1"), idle, idle, page(b"b", "2"), page(b"", "2", closed=True, status=204), live="long-poll"
    )
    assert chunks == [(b"a", "1"), (b"b", "2"), (b"", "2")]
    assert script.params[1] == {"offset": "1", "live": "long-poll"}
    assert script.params[2] == {"offset": "1", "live": "long-poll", "cursor": "7"}
    assert all(request.waits for request in script.requests[1:])


def test_a_long_poll_that_is_not_up_to_date_is_followed_by_plain_pages() -> None:
    script, _ = read(page(b"", "0"), page(b"a", "1", up_to_date=False), page(b"b", "2"), live="long-poll")
    assert [params.get("live") for params in script.params] == [None, "long-poll", None, "long-poll"]


def test_the_time_that_the_server_waits_can_be_requested() -> None:
    script, _ = read(page(b"", "0"), live="long-poll", poll_timeout_ms=50)
    assert script.params[1]["timeout_ms"] == "50"


def test_a_server_that_does_not_wait_is_asked_with_pauses() -> None:
    idle = page(b"", "0")
    script, _ = read(*[idle] * 6, page(b"a", "1"), *[idle] * 2, live="long-poll")
    assert script.pauses == [0.5, 1.0, 2.0, 4.0]
