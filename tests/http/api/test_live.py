"""Long-polls and server-sent events: exact bytes, waking, ending, resuming."""

import base64
import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from headwater.testing import RunningServer, running_server

from ..sockets import Event, Sse, Wire, refused, request

TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
BYTES = {"Content-Type": "application/octet-stream"}
ZERO = "0000000000000000_0000000000000000"
CURSOR_EPOCH = datetime(2024, 10, 9, tzinfo=UTC)


def interval() -> int:
    """The cursor of this moment: intervals of 20 seconds since the epoch of cursors."""
    return int((datetime.now(UTC) - CURSOR_EPOCH).total_seconds()) // 20


def poll(path: str, offset: str = "now", **parameters: object) -> bytes:
    more = "".join(f"&{name}={value}" for name, value in parameters.items())
    return request("GET", f"{path}?offset={offset}&live=long-poll{more}")


@pytest.fixture
def other(server: RunningServer) -> Iterator[Wire]:
    """A second connection, to listen on while the first one writes."""
    with Wire(server.url) as wire:
        yield wire


@pytest.fixture(scope="module")
def brief() -> Iterator[RunningServer]:
    """A server with short live reads."""
    flags = ("--long-poll-seconds", "0.7", "--sse-seconds", "2", "--heartbeat-seconds", "0.5", "--page-bytes", "1000")
    with running_server(*flags) as server:
        yield server


# -- Long-poll ---------------------------------------------------------------------------------------------------------


def test_a_long_poll_gives_what_is_there_at_once(wire: Wire, text: str) -> None:
    tail = wire.ask("POST", text, TEXT, b"abc").next_offset
    response = wire.ask_raw(poll(text, "-1"))
    assert (response.status, response.body, response.next_offset) == (200, b"abc", tail)
    assert response.headers["stream-up-to-date"] == "true"
    assert response.headers["content-type"] == "text/plain"
    assert int(response.headers["stream-cursor"]) in (interval() - 1, interval())


@pytest.mark.parametrize("offset", ["-1", "now", ZERO])
def test_a_long_poll_waits_for_what_comes(wire: Wire, other: Wire, text: str, offset: str) -> None:
    other.send(poll(text, offset))
    assert other.silent_for(0.1)
    tail = wire.ask("POST", text, TEXT, b"abc").next_offset
    response = other.receive()
    assert (response.status, response.body, response.next_offset) == (200, b"abc", tail)
    assert re.fullmatch("[0-9]+", response.headers["stream-cursor"])


def test_a_long_poll_that_waits_in_vain_ends_with_204(brief: RunningServer, path: str) -> None:
    with Wire(brief.url) as wire:
        tail = wire.ask("PUT", path, TEXT, b"abc").next_offset
        began = time.monotonic()
        response = wire.ask_raw(poll(path))
        assert 0.6 < time.monotonic() - began < 5
        assert (response.status, response.next_offset) == (204, tail)
        assert response.headers["stream-up-to-date"] == "true"
        assert int(response.headers["stream-cursor"]) in (interval() - 1, interval())
        assert "stream-closed" not in response.headers


def test_a_long_poll_may_say_how_long_it_waits(wire: Wire, text: str) -> None:
    began = time.monotonic()
    assert wire.ask_raw(poll(text, timeout_ms=200)).status == 204
    assert 0.15 < time.monotonic() - began < 5


def test_a_long_poll_may_wait_longer_than_the_server_would(brief: RunningServer, path: str) -> None:
    with Wire(brief.url) as wire, Wire(brief.url) as poller:
        wire.ask("PUT", path, TEXT)
        poller.send(poll(path, timeout_ms=60_000))
        assert poller.silent_for(1.2)
        wire.ask("POST", path, TEXT, b"abc")
        assert poller.receive().body == b"abc"


def test_a_long_poll_at_the_end_of_a_closed_stream_does_not_wait(wire: Wire, text: str) -> None:
    tail = wire.ask("POST", text, {**TEXT, "Stream-Closed": "true"}, b"abc").next_offset
    response = wire.ask_raw(poll(text, tail))
    assert (response.status, response.next_offset) == (204, tail)
    assert (response.headers["stream-closed"], response.headers["stream-up-to-date"]) == ("true", "true")
    data = wire.ask_raw(poll(text, "-1"))
    assert (data.status, data.body, data.headers["stream-closed"]) == (200, b"abc", "true")


def test_a_close_ends_a_waiting_long_poll(wire: Wire, other: Wire, text: str) -> None:
    other.send(poll(text))
    assert other.silent_for(0.1)
    wire.ask("POST", text, {"Stream-Closed": "true"})
    response = other.receive()
    assert (response.status, response.headers["stream-closed"]) == (204, "true")


def test_an_append_that_closes_gives_a_waiting_long_poll_both(wire: Wire, other: Wire, text: str) -> None:
    other.send(poll(text))
    assert other.silent_for(0.1)
    wire.ask("POST", text, {**TEXT, "Stream-Closed": "true"}, b"the end")
    response = other.receive()
    assert (response.status, response.body, response.headers["stream-closed"]) == (200, b"the end", "true")


def test_a_delete_ends_a_waiting_long_poll_with_404(wire: Wire, other: Wire, text: str) -> None:
    other.send(poll(text))
    assert other.silent_for(0.1)
    wire.ask("DELETE", text)
    refused(other.receive(), 404, "stream_not_found")


def test_a_long_poll_never_takes_a_new_life_for_the_old_one(wire: Wire, other: Wire, text: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    other.send(poll(text))
    assert other.silent_for(0.1)
    wire.send(request("DELETE", text) + request("PUT", text, TEXT, b"abcdefgh"))
    assert (wire.receive().status, wire.receive().status) == (204, 201)
    response = other.receive()
    assert response.status in (404, 410), response.body


def test_long_polls_on_one_connection_wait_one_after_the_other(wire: Wire, other: Wire, text: str) -> None:
    wire.ask("PUT", f"{text}-b", TEXT)
    other.send(poll(text, "-1") + poll(f"{text}-b", "-1") + poll(text, "-1"))
    assert other.silent_for(0.1)
    wire.ask("POST", f"{text}-b", TEXT, b"b")
    assert other.silent_for(0.1)
    wire.ask("POST", text, TEXT, b"a")
    assert [other.receive().body for _ in range(3)] == [b"a", b"b", b"a"]


def test_a_long_poll_gives_a_page_at_a_time(brief: RunningServer, path: str) -> None:
    with Wire(brief.url) as wire:
        wire.ask("PUT", path, TEXT)
        for _ in range(5):
            wire.ask("POST", path, TEXT, b"x" * 600)
        response = wire.ask_raw(poll(path, "-1"))
        assert len(response.body) == 600
        assert "stream-up-to-date" not in response.headers


@pytest.mark.parametrize("ahead", [0, 1, 1_000_000])
def test_a_cursor_that_is_not_behind_is_answered_with_a_higher_one(wire: Wire, text: str, ahead: int) -> None:
    cursor = interval() + ahead
    nothing = wire.ask_raw(poll(text, timeout_ms=1, cursor=cursor))
    wire.ask("POST", text, TEXT, b"abc")
    data = wire.ask_raw(poll(text, "-1", cursor=cursor))
    for response in (nothing, data):
        # At most an hour of intervals above it.
        assert cursor < int(response.headers["stream-cursor"]) <= cursor + 180 + 1


@pytest.mark.parametrize("cursor", ["0", "1", "abc", "", "-5", "1.5", "9" * 40])
def test_any_other_cursor_is_answered_with_the_current_one(wire: Wire, text: str, cursor: str) -> None:
    response = wire.ask_raw(poll(text, timeout_ms=1, cursor=cursor))
    assert int(response.headers["stream-cursor"]) in (interval() - 1, interval())


def test_a_client_that_goes_away_while_it_waits_does_no_harm(server: RunningServer, wire: Wire, text: str) -> None:
    for _ in range(20):
        with Wire(server.url) as gone:
            gone.send(poll(text) + poll(text))
        with Wire(server.url) as gone:
            gone.send(request("GET", f"{text}?offset=now&live=sse"))
    assert wire.ask("POST", text, TEXT, b"abc").status == 204


# -- Server-sent events: exact bytes -----------------------------------------------------------------------------------


def listen(wire: Wire, path: str, offset: str = "-1", **headers: str) -> Sse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return wire.open_sse(f"{path}?offset={offset}&live=sse", named)


def control_bytes(next_offset: str, life: str, *, up_to_date: bool = True, closed: bool = False) -> re.Pattern[bytes]:
    cursor = "" if closed else ',"streamCursor":"[0-9]+"'
    flags = (',"upToDate":true' if up_to_date else "") + (',"streamClosed":true' if closed else "")
    text = f'event: control\ndata:{{"streamNextOffset":"{next_offset}"{cursor}{flags}}}\nid: {next_offset}/{life}\n\n'
    return re.compile(text.encode())


def test_the_head_of_a_live_read(wire: Wire, other: Wire, text: str) -> None:
    events = listen(wire, text)
    assert events.headers["content-type"] == "text/event-stream"
    assert "no-cache" in events.headers["cache-control"]
    assert "content-length" not in events.headers
    assert events.headers["x-content-type-options"] == "nosniff"
    assert "stream-sse-data-encoding" not in events.headers
    other.ask("PUT", f"{text}-bytes", BYTES)
    assert listen(other, f"{text}-bytes").headers["stream-sse-data-encoding"] == "base64"


def test_an_empty_stream_begins_with_one_control_event(wire: Wire, text: str) -> None:
    head = wire.ask("HEAD", text)
    events = listen(wire, text)
    event = events.event()
    assert control_bytes(head.next_offset, head.headers["stream-incarnation"]).fullmatch(event.raw)
    assert wire.silent_for(0.2)


def test_one_message_is_one_data_event_and_one_control_event(wire: Wire, text: str) -> None:
    wire.ask("POST", text, TEXT, b"hello")
    head = wire.ask("HEAD", text)
    life = head.headers["stream-incarnation"]
    events = listen(wire, text)
    data, control = events.events(2)
    assert data.raw == f"event: data\ndata:hello\nid: {head.next_offset}/{life}\n\n".encode()
    assert control_bytes(head.next_offset, life).fullmatch(control.raw)
    assert int(control.control["streamCursor"]) in (interval() - 1, interval())
    assert wire.silent_for(0.2)


def test_now_begins_with_the_tail(wire: Wire, other: Wire, text: str) -> None:
    tail = wire.ask("POST", text, TEXT, b"old").next_offset
    events = listen(other, text, "now")
    control = events.event().control
    assert (control["streamNextOffset"], control["upToDate"]) == (tail, True)
    after = wire.ask("POST", text, TEXT, b"new").next_offset
    data, control_event = events.events(2)
    assert (data.data, control_event.control["streamNextOffset"]) == ("new", after)


def test_every_append_is_a_data_event_with_a_control_event_behind_it(wire: Wire, other: Wire, text: str) -> None:
    life = wire.ask("HEAD", text).headers["stream-incarnation"]
    events = listen(other, text)
    events.event()
    for number in range(10):
        offset = wire.ask("POST", text, TEXT, b"%d" % number).next_offset
        data, control = events.events(2)
        assert data.raw == f"event: data\ndata:{number}\nid: {offset}/{life}\n\n".encode()
        assert control_bytes(offset, life).fullmatch(control.raw)


INJECTIONS: dict[str, bytes] = {
    "LF": b"one\ntwo",
    "CRLF": b"one\r\ntwo",
    "CR": b"one\rtwo",
    "LF CR": b"one\n\rtwo",
    "an event of one's own": b'x\n\nevent: control\ndata:{"streamClosed":true}\n\n',
    "an event after CRs": b'x\r\revent: control\rdata:{"streamClosed":true}\r\r',
    "an event after CRLFs": b"x\r\n\r\nevent: control\r\ndata:{}\r\n\r\n",
    "an id": b"x\nid: 0000000000000000_0000000000000000/forged\n",
    "a retry": b"x\nretry: 1\n",
    "a comment": b": comment\n:",
    "only line ends": b"\n\r\n\r",
    "a chunk": b"x\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    "leading spaces": b" one\n  two\n   \n",
    "leading tabs and colons": b"\tone\n:two\n\t",
    "a line separator, which is none here": "one\u2028two\u0085three\x0bfour\x0c".encode(),
    "NUL": b"a\0b\n\0",
    "a byte order mark": b"\xef\xbb\xbfone",
}


@pytest.mark.parametrize("payload", INJECTIONS.values(), ids=INJECTIONS)
def test_no_payload_can_forge_an_event(wire: Wire, other: Wire, text: str, payload: bytes) -> None:
    """A browser gets the lines that were sent, each on its own; which line end it was cannot survive."""
    waiting = listen(other, text)
    waiting.event()
    tail = wire.ask("POST", text, TEXT, payload).next_offset
    wire.ask("POST", text, {"Stream-Closed": "true"})
    for events in ([*waiting.rest()], [*listen(wire, text).rest()]):
        data, *controls = events
        assert data.kind == "data"
        assert data.data == re.sub("\r\n|\r", "\n", payload.decode())
        assert all(event.kind == "control" for event in controls)
        assert controls[-1].control == {"streamNextOffset": tail, "upToDate": True, "streamClosed": True}


def test_json_goes_as_an_array_in_which_every_line_is_a_line(wire: Wire, other: Wire, documents: str) -> None:
    waiting = listen(other, documents)
    waiting.event()
    wire.ask("POST", documents, JSON, b'[{"a":1},\n{"b":\r\n [1,\n\n 2]}]')
    data, control = waiting.events(2)
    assert b"\r" not in data.raw
    assert json.loads(data.data) == [{"a": 1}, {"b": [1, 2]}]
    assert control.control["upToDate"] is True
    # Space between messages is not part of any.
    assert data.data.startswith('[{"a":1},{"b":')
    wire.ask("POST", documents, JSON, b'"a single one"')
    assert waiting.event().data == '["a single one"]'


@pytest.mark.parametrize("size", [1, 2, 3, 4, 100, 10_000])
def test_bytes_go_as_one_base64_string(wire: Wire, other: Wire, path: str, size: int) -> None:
    wire.ask("PUT", path, BYTES)
    payload = bytes(number * 7 % 256 for number in range(size))
    waiting = listen(other, path)
    waiting.event()
    wire.ask("POST", path, BYTES, payload)
    assert base64.b64decode(waiting.event().data, validate=True) == payload
    wire.ask("POST", path, BYTES, payload)
    events = listen(wire, path)
    data, control = events.events(2)
    assert base64.b64decode(data.data, validate=True) == payload * 2
    assert control.kind == "control"


@pytest.mark.parametrize(
    "content_type", ["image/png", "application/x-protobuf", "application/xml", "application/ndjson"]
)
def test_what_is_neither_text_nor_json_is_base64(wire: Wire, path: str, content_type: str) -> None:
    wire.ask("PUT", path, {"Content-Type": content_type}, b"\x00\xff")
    events = listen(wire, path)
    assert events.headers["stream-sse-data-encoding"] == "base64"
    assert base64.b64decode(events.event().data) == b"\x00\xff"


@pytest.mark.parametrize(
    "content_type", ["text/html", "TEXT/plain", "text/event-stream", "application/json; charset=x"]
)
def test_text_and_json_are_not(wire: Wire, path: str, content_type: str) -> None:
    wire.ask("PUT", path, {"Content-Type": content_type}, b"1")
    events = listen(wire, path)
    assert "stream-sse-data-encoding" not in events.headers
    assert events.event().data in ("1", "[1]")


def test_catch_up_comes_page_by_page_each_with_its_control_event(brief: RunningServer, path: str) -> None:
    with Wire(brief.url) as wire:
        life = wire.ask("PUT", path, TEXT).headers["stream-incarnation"]
        for number in range(7):
            wire.ask("POST", path, TEXT, b"%d" % number * 600)
        events = listen(wire, path)
        for number in range(7):
            data, control = events.events(2)
            assert data.data == str(number) * 600
            offset = f"0000000000000000_{(number + 1) * 600:015}0"
            assert control_bytes(offset, life, up_to_date=number == 6).fullmatch(control.raw)


def test_text_that_is_not_utf_8_does_not_break_the_connection(wire: Wire, text: str) -> None:
    wire.ask("POST", text, {**TEXT, "Stream-Closed": "true"}, b"caf\xe9 \xff\n\xc3")
    wire.send(request("GET", f"{text}?offset=-1&live=sse"))
    status, headers, _ = wire.receive_head()
    assert (status, headers["transfer-encoding"]) == (200, "chunked")
    body = b"".join(wire.chunks())
    assert body.startswith(b"event: data\ndata:caf")
    assert body.endswith(b"\n\n")
    assert wire.ended()


# -- Server-sent events: ends ------------------------------------------------------------------------------------------


def test_a_closed_stream_ends_its_live_reads_without_a_cursor(wire: Wire, text: str) -> None:
    closed = wire.ask("POST", text, {**TEXT, "Stream-Closed": "true"}, b"abc")
    life = closed.headers["stream-incarnation"]
    data, control = listen(wire, text).rest()
    assert data.data == "abc"
    assert control_bytes(closed.next_offset, life, closed=True).fullmatch(control.raw)


@pytest.mark.parametrize("offset", ["now", "tail"])
def test_a_live_read_at_the_end_of_a_closed_stream_is_one_control_event(wire: Wire, text: str, offset: str) -> None:
    tail = wire.ask("POST", text, {**TEXT, "Stream-Closed": "true"}, b"abc").next_offset
    (control,) = listen(wire, text, tail if offset == "tail" else offset).rest()
    assert control.control == {"streamNextOffset": tail, "upToDate": True, "streamClosed": True}


def test_a_close_ends_a_waiting_live_read(wire: Wire, other: Wire, text: str) -> None:
    events = listen(other, text)
    events.event()
    wire.ask("POST", text, {"Stream-Closed": "true"})
    (control,) = events.rest()
    assert control.control["streamClosed"] is True
    assert "streamCursor" not in control.control


@pytest.mark.parametrize("delay_ms", range(0, 60, 10))
def test_an_append_that_closes_reaches_a_live_reader_before_the_end(
    wire: Wire, other: Wire, text: str, delay_ms: int
) -> None:
    events = listen(other, text)
    time.sleep(delay_ms / 1000)
    tail = wire.ask("POST", text, {**TEXT, "Stream-Closed": "true"}, b"the end").next_offset
    *_, data, control = events.rest()
    assert data.data == "the end"
    assert control.control == {"streamNextOffset": tail, "upToDate": True, "streamClosed": True}


def test_appends_and_a_close_in_one_batch_all_reach_a_live_reader(wire: Wire, other: Wire, text: str) -> None:
    events = listen(other, text)
    events.event()
    appends = b"".join(request("POST", text, TEXT, b"%d" % number) for number in range(10))
    wire.send(appends + request("POST", text, {"Stream-Closed": "true"}))
    seen = events.rest()
    assert "".join(event.data for event in seen if event.kind == "data") == "0123456789"
    assert seen[-1].control["streamClosed"] is True


def test_a_delete_ends_a_live_read_at_once_and_cleanly(wire: Wire, other: Wire, text: str) -> None:
    events = listen(other, text)
    events.event()
    wire.ask("DELETE", text)
    assert all(event.kind == "control" for event in events.rest())


def test_a_live_read_never_goes_on_in_a_new_life(wire: Wire, other: Wire, text: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    events = listen(other, text, "now")
    events.event()
    wire.send(request("DELETE", text) + request("PUT", text, TEXT, b"abcdefgh"))
    assert (wire.receive().status, wire.receive().status) == (204, 201)
    assert not [event for event in events.rest() if event.kind == "data"]


def test_a_live_read_is_ended_after_a_while_at_a_boundary(brief: RunningServer, path: str) -> None:
    with Wire(brief.url) as wire, Wire(brief.url) as listener:
        wire.ask("PUT", path, TEXT)
        began = time.monotonic()
        events = listen(listener, path)
        seen: list[Event] = [events.event()]
        wire.ask("POST", path, TEXT, b"abc")
        seen += events.rest()
        assert 1.5 < time.monotonic() - began < 6
        assert [event.kind for event in seen] == ["control", "data", "control"]
        again = listen(wire, path, seen[-1].control["streamNextOffset"])
        assert again.event().control["upToDate"] is True


def test_a_quiet_live_read_carries_comments(brief: RunningServer, path: str) -> None:
    with Wire(brief.url) as wire:
        wire.ask("PUT", path, TEXT)
        events = listen(wire, path)
        assert events.event(comments=True).kind == "control"
        assert events.event(comments=True).kind == ":"
        assert events.event(comments=True).kind == ":"


# -- Server-sent events: resuming --------------------------------------------------------------------------------------


def test_the_id_of_any_event_resumes_after_it_whatever_the_offset_says(
    server: RunningServer, wire: Wire, other: Wire, text: str
) -> None:
    messages = ("one", "two", "three")
    events = listen(other, text)
    identities = [events.event().id]
    for message in messages:
        wire.ask("POST", text, TEXT, message.encode())
        data, control = events.events(2)
        assert data.id == control.id
        identities.append(data.id)
    for number, identity in enumerate(identities):
        assert identity is not None
        with Wire(server.url) as resuming:
            first = listen(resuming, text, "-1", Last_Event_ID=identity).event()
        assert (first.data if first.kind == "data" else "") == "".join(messages[number:])


def test_last_event_id_of_an_earlier_life_is_410(wire: Wire, other: Wire, text: str) -> None:
    wire.ask("POST", text, TEXT, b"old")
    identity = listen(other, text).event().id
    assert identity is not None
    wire.ask("DELETE", text)
    second = wire.ask("PUT", text, TEXT, b"new bytes").headers["stream-incarnation"]
    response = wire.ask("GET", f"{text}?offset=-1&live=sse", {"Last-Event-ID": identity})
    refused(response, 410, "incarnation_changed")
    assert response.headers["stream-incarnation"] == second


@pytest.mark.parametrize("identity", ["", "garbage", "5", "now", "/", "0/0", "a/b/c", "\xff"])
def test_a_last_event_id_that_is_none_of_ours_is_ignored(wire: Wire, text: str, identity: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    assert listen(wire, text, Last_Event_ID=identity).event().data == "abc"


def test_last_event_id_means_nothing_to_other_reads(wire: Wire, text: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    life = wire.ask("HEAD", text).headers["stream-incarnation"]
    headers = {"Last-Event-ID": f"0000000000000000_0000000000000030/{life}"}
    assert wire.ask("GET", f"{text}?offset=-1", headers).body == b"abc"


def test_last_event_id_replaces_a_missing_offset(wire: Wire, text: str) -> None:
    wire.ask("POST", text, TEXT, b"abcdef")
    life = wire.ask("HEAD", text).headers["stream-incarnation"]
    headers = {"Last-Event-ID": f"0000000000000000_0000000000000030/{life}"}
    assert wire.open_sse(f"{text}?live=sse", headers).event().data == "def"


# -- Server-sent events: many readers ----------------------------------------------------------------------------------


def test_all_readers_of_a_stream_get_identical_bytes(server: RunningServer, wire: Wire, text: str) -> None:
    readers = [Wire(server.url) for _ in range(20)]
    try:
        streams = [listen(reader, text) for reader in readers]
        for events in streams:
            events.event()
        for number in range(30):
            wire.ask("POST", text, TEXT, b"message %d\n" % number)
        wire.ask("POST", text, {**TEXT, "Stream-Closed": "true"}, b"the end")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda events: events.rest(), streams))
        texts = {"".join(re.findall("data:(message [0-9]+|the end)", events.raw.decode())) for events in streams}
        assert texts == {"".join(f"message {number}" for number in range(30)) + "the end"}
        # Batches are the same for all; only a cursor may differ, if its interval began between two first events.
        assert len({re.sub('"streamCursor":"[0-9]+"', "", events.raw.decode()) for events in streams}) == 1
    finally:
        for reader in readers:
            reader.close()


def test_readers_from_different_offsets_meet_at_the_tail(server: RunningServer, wire: Wire, text: str) -> None:
    offsets = ["-1"] + [wire.ask("POST", text, TEXT, b"%d" % number).next_offset for number in range(5)]
    readers = [Wire(server.url) for _ in offsets]
    try:
        streams = [listen(reader, text, offset) for reader, offset in zip(readers, offsets, strict=True)]
        wire.ask("POST", text, {**TEXT, "Stream-Closed": "true"}, b"!")
        seen = ["".join(event.data for event in events.rest() if event.kind == "data") for events in streams]
        assert seen == ["01234!", "1234!", "234!", "34!", "4!", "!"]
    finally:
        for reader in readers:
            reader.close()


def test_the_cursor_of_a_colliding_reader_never_goes_back_and_is_its_own(
    server: RunningServer, wire: Wire, text: str
) -> None:
    ahead = interval() + 1000
    with Wire(server.url) as plain, Wire(server.url) as colliding:
        ours = colliding.open_sse(f"{text}?offset=-1&live=sse&cursor={ahead}")
        theirs = plain.open_sse(f"{text}?offset=-1&live=sse&cursor=5")
        cursors = [int(ours.event().control["streamCursor"])]
        assert int(theirs.event().control["streamCursor"]) in (interval() - 1, interval())
        for number in range(20):
            wire.ask("POST", text, TEXT, b"%d" % number)
            cursors.append(int(ours.events(2)[1].control["streamCursor"]))
            assert int(theirs.events(2)[1].control["streamCursor"]) in (interval() - 1, interval())
        assert cursors[0] > ahead
        assert cursors == sorted(cursors)


def test_a_live_read_costs_a_stream_nothing_when_it_ends(server: RunningServer, wire: Wire, text: str) -> None:
    """Readers come and go during writes; those that stay miss nothing."""
    with Wire(server.url) as staying:
        events = listen(staying, text)
        events.event()
        for number in range(50):
            with Wire(server.url) as passing:
                passing.send(request("GET", f"{text}?offset=-1&live=sse"))
                wire.ask("POST", text, TEXT, b"%d;" % number)
        wire.ask("POST", text, {"Stream-Closed": "true"})
        seen = "".join(event.data for event in events.rest() if event.kind == "data")
        assert seen == "".join(f"{number};" for number in range(50))


@pytest.mark.parametrize("limits", [("", "&max_bytes=1"), ("&max_bytes=1", "")])
def test_readers_at_one_offset_get_events_of_the_size_that_each_asked_for(
    server: RunningServer, wire: Wire, documents: str, limits: tuple[str, str]
) -> None:
    expected = {"": ["[1,2,3,4]"], "&max_bytes=1": ["[1]", "[2]", "[3]", "[4]"]}
    with Wire(server.url) as first, Wire(server.url) as second:
        readers = [
            one.open_sse(f"{documents}?offset=-1&live=sse{limit}")
            for one, limit in zip((first, second), limits, strict=True)
        ]
        for reader in readers:
            assert reader.event().kind == "control"
        for _ in range(2):
            assert wire.ask("POST", documents, JSON, b"[1,2,3,4]").status == 204
            for reader, limit in zip(readers, limits, strict=True):
                events = reader.events(2 * len(expected[limit]))
                assert [event.data.replace("\n", "") for event in events if event.kind == "data"] == expected[limit]


MIXED = "a\r\nbé\r\n€\n\n😀😀 \r\n\r\nz" + "ñ" * 5


def heard(wire: Wire, path: str, more: str = "") -> str:
    """The text of a stream as an EventSource puts it together."""
    events = wire.open_sse(f"{path}?offset=-1&live=sse{more}").rest()
    return "".join(event.data for event in events if event.kind == "data")


@pytest.mark.parametrize("bytes_max", range(1, 9))
def test_an_event_of_text_ends_between_two_characters_however_short_a_page_is(
    server: RunningServer, wire: Wire, path: str, bytes_max: int
) -> None:
    expected = MIXED.replace("\r\n", "\n")
    assert wire.ask("PUT", path, {**TEXT, "Stream-Closed": "true"}, MIXED.encode()).status == 201
    with Wire(server.url) as reader:
        assert heard(reader, path, f"&max_bytes={bytes_max}") == expected
    with running_server("--memory", "--page-bytes", str(bytes_max)) as small, Wire(small.url) as reader:
        assert reader.ask("PUT", path, {**TEXT, "Stream-Closed": "true"}, MIXED.encode()).status == 201
        assert heard(reader, path) == expected
