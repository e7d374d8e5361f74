"""HTTP/1.1 itself: framing, order, limits, time-outs, and the headers of every response."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import pytest

from headwater.testing import RunningServer, running_server

from ..processes import eventually, open_files, resident_bytes
from ..sockets import Ended, Response, Wire, chunked, refused, request, unchanged

TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
MIB = 1024 * 1024


def post(path: str, body: bytes, **headers: str) -> bytes:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return request("POST", path, {**TEXT, **named}, body)


def post_chunked(path: str, body: bytes, extra: bytes = b"") -> bytes:
    """An append whose body is already chunked."""
    head = request("POST", path, {**TEXT, "Transfer-Encoding": "chunked"})
    return head[:-2] + extra + b"\r\n" + body


# -- Keep-alive and pipelining -----------------------------------------------------------------------------------------


def test_one_connection_carries_many_requests(wire: Wire, text: str) -> None:
    for number in range(50):
        assert wire.ask("POST", text, TEXT, b"%02d" % number).status == 204
    assert wire.ask("GET", text).body == b"".join(b"%02d" % number for number in range(50))


def test_pipelined_responses_come_in_the_order_of_their_requests(wire: Wire, text: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    wire.send(
        request("GET", text)
        + request("GET", f"{text}-missing")
        + request("HEAD", text)
        + request("OPTIONS", text)
        + request("PATCH", text)
        + request("GET", f"{text}?offset=bad")
        + request("GET", f"{text}?offset=now")
    )
    assert wire.receive().body == b"abc"
    assert wire.receive().status == 404
    assert wire.receive(bodiless=True).status == 200
    assert wire.receive().status == 204
    assert wire.receive().status == 405
    assert wire.receive().status == 400
    assert wire.receive().status == 200


def test_pipelined_writes_are_applied_in_order_and_a_read_behind_them_sees_them(wire: Wire, text: str) -> None:
    count = 300
    wire.send(b"".join(post(text, b"%03d " % number) for number in range(count)) + request("GET", text))
    offsets = [wire.receive().next_offset for _ in range(count)]
    assert offsets == sorted(set(offsets))
    assert wire.receive().body == b"".join(b"%03d " % number for number in range(count))


def test_every_read_between_pipelined_writes_sees_exactly_those_before_it(wire: Wire, text: str) -> None:
    wire.send(b"".join(post(text, b"%d" % n) + request("GET", text) + request("HEAD", text) for n in range(10)))
    for number in range(10):
        written = wire.receive()
        read = wire.receive()
        assert read.body == b"0123456789"[: number + 1]
        assert written.next_offset == read.next_offset == wire.receive(bodiless=True).next_offset


def test_a_whole_life_fits_into_one_pipeline(wire: Wire, path: str) -> None:
    wire.send(
        request("PUT", path, TEXT)
        + post(path, b"abc")
        + request("GET", path)
        + request("DELETE", path)
        + request("GET", path)
        + post(path, b"lost")
        + request("PUT", path, TEXT, b"new")
        + post(path, b"er", Stream_Closed="true")
        + post(path, b"too late")
        + request("GET", path)
    )
    statuses = [wire.receive() for _ in range(10)]
    assert [response.status for response in statuses] == [201, 204, 200, 204, 404, 404, 201, 204, 409, 200]
    assert (statuses[2].body, statuses[9].body) == (b"abc", b"newer")


def test_a_stream_that_is_deleted_right_behind_its_creation_answers_both(wire: Wire, path: str) -> None:
    wire.send((request("PUT", path, {**TEXT, "Stream-TTL": "9"}) + request("DELETE", path)) * 5)
    assert [wire.receive().status for _ in range(10)] == [201, 204] * 5


def test_a_fork_that_is_deleted_right_behind_its_creation_answers_both(wire: Wire, text: str) -> None:
    fork = request("PUT", f"{text}-fork", {"Stream-Forked-From": text, "Stream-TTL": "9"})
    wire.send((fork + request("DELETE", f"{text}-fork")) * 5)
    assert [wire.receive().status for _ in range(10)] == [201, 204] * 5


def test_a_fork_at_an_offset_that_the_append_before_it_makes_is_made(wire: Wire, text: str) -> None:
    point = {"Stream-Forked-From": text, "Stream-Fork-Offset": "0000000000000000_0000000000000030"}
    wire.send(post(text, b"abc") + request("PUT", f"{text}-fork", point, b"def") + request("GET", f"{text}-fork"))
    assert [wire.receive().status, wire.receive().status] == [204, 201]
    assert wire.receive().body == b"abcdef"


def test_clients_that_create_and_delete_the_same_stream_all_get_answers(server: RunningServer, path: str) -> None:
    def come_and_go(_: int) -> set[int]:
        with Wire(server.url) as wire:
            wire.send((request("PUT", path, TEXT) + request("DELETE", path)) * 50)
            return {wire.receive().status for _ in range(100)}

    with ThreadPoolExecutor(8) as pool:
        assert set().union(*pool.map(come_and_go, range(8))) <= {200, 201, 204, 404}


def test_a_refused_body_behind_a_create_is_judged_after_it(wire: Wire, path: str) -> None:
    wire.send(request("PUT", path, JSON) + request("POST", path, JSON, b"{") + request("POST", f"{path}x", JSON, b"{"))
    assert wire.receive().status == 201
    refused(wire.receive(), 400, "invalid_json")
    refused(wire.receive(), 404, "stream_not_found")


def test_an_append_and_a_read_behind_a_fork_on_one_connection_work(wire: Wire, path: str) -> None:
    wire.send(
        request("PUT", path, TEXT, b"abc")
        + request("PUT", f"{path}-fork", {"Stream-Forked-From": path})
        + post(f"{path}-fork", b"def")
        + request("GET", f"{path}-fork")
        + post(path, b"x")
        + request("PUT", f"{path}-second", {"Stream-Forked-From": f"{path}-fork"}, b"ghi")
        + request("GET", f"{path}-second")
        + request("GET", path)
    )
    responses = [wire.receive() for _ in range(8)]
    assert [response.status for response in responses] == [201, 201, 204, 200, 204, 201, 200, 200]
    assert [responses[index].body for index in (3, 6, 7)] == [b"abcdef", b"abcdefghi", b"abcx"]


def test_a_write_behind_a_waiting_long_poll_is_done_at_once_and_answered_after_it(wire: Wire, text: str) -> None:
    wire.send(request("GET", f"{text}?offset=now&live=long-poll") + post(text, b"abc") + request("GET", text))
    polled = wire.receive()
    assert (polled.status, polled.body) == (200, b"abc")
    assert wire.receive().status == 204
    assert wire.receive().body == b"abc"


def test_a_live_read_behind_other_requests_begins_when_they_are_answered(wire: Wire, text: str) -> None:
    wire.ask("PUT", f"{text}-a", TEXT, b"from a")
    wire.ask("PUT", f"{text}-b", TEXT, b"from b")
    wire.send(
        request("GET", f"{text}?offset=now&live=long-poll&timeout_ms=300")
        + request("GET", f"{text}-a?offset=-1&live=sse")
        + request("GET", f"{text}-b?offset=-1&live=sse")
    )
    assert wire.receive().status == 204
    assert wire.receive_sse().event().data == "from a"


def test_a_live_read_that_ends_at_once_ends_its_connection_whatever_follows_it(wire: Wire, text: str) -> None:
    wire.send(
        request("POST", text, {**TEXT, "Stream-Closed": "true"}, b"the end")
        + request("GET", f"{text}?offset=-1&live=sse")
        + request("GET", text)
        + request("HEAD", text)
    )
    assert wire.receive().status == 204
    assert [event.kind for event in wire.receive_sse().rest()] == ["data", "control"]


def test_nothing_behind_a_live_read_on_its_connection_is_done(server: RunningServer, wire: Wire, text: str) -> None:
    """Its response says that the connection closes with it, so a later request on it must not be processed."""
    with unchanged(server.url, text):
        wire.send(request("GET", f"{text}?offset=-1&live=sse") + post(text, b"lost"))
        events = wire.receive_sse()
        assert events.headers["connection"] == "close"
        assert events.event().kind == "control"
        wire.send(post(text, b"lost too"))
        time.sleep(0.2)


def test_a_request_may_come_byte_by_byte(wire: Wire, text: str) -> None:
    data = post_chunked(text, chunked(b"ab", b"c")) + post(text, b"def") + request("GET", text)
    for position in range(len(data)):
        wire.send(data[position : position + 1])
    assert (wire.receive().status, wire.receive().status, wire.receive().body) == (204, 204, b"abcdef")


def test_a_request_may_be_split_anywhere(wire: Wire, text: str) -> None:
    data = post_chunked(text, chunked(b"ab", b"c")) + request("GET", f"{text}?offset=-1")
    for position in range(1, len(data), 7):
        wire.send(data[:position])
        time.sleep(0.001)
        wire.send(data[position:])
        assert wire.receive().status == 204
        assert wire.receive().status == 200


def test_good_requests_before_a_bad_one_are_answered_first(wire: Wire, text: str) -> None:
    wire.send(post(text, b"abc") + request("GET", text) + b"garbage\r\n\r\n" + post(text, b"lost"))
    assert wire.receive().status == 204
    assert wire.receive().body == b"abc"
    refused(wire.receive(), 400, "bad_request")
    assert wire.ended()


def test_a_client_that_has_said_all_still_gets_its_answers(wire: Wire, text: str) -> None:
    wire.send(post(text, b"abc") + request("GET", text))
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.receive().status == 204
    assert wire.receive().body == b"abc"


def test_a_client_that_has_said_all_and_something_bad_gets_all_answers(wire: Wire, text: str) -> None:
    wire.send(post(text, b"abc") + b"garbage\r\n\r\n")
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.receive().status == 204
    refused(wire.receive(), 400, "bad_request")
    assert wire.ended()


# -- Closing -----------------------------------------------------------------------------------------------------------


def test_a_connection_is_closed_when_the_client_asks_for_it(wire: Wire, text: str) -> None:
    response = wire.ask("GET", text, {"Connection": "close"})
    assert response.headers["connection"] == "close"
    assert wire.ended()


def test_nothing_behind_a_request_that_closes_is_done(server: RunningServer, wire: Wire, text: str) -> None:
    wire.send(post(text, b"abc", Connection="close") + post(text, b"lost"))
    assert wire.receive().headers["connection"] == "close"
    assert wire.ended()
    with Wire(server.url) as another:
        assert another.ask("GET", text).body == b"abc"


def test_http_1_0_is_answered_and_closed(wire: Wire, text: str) -> None:
    wire.send(b"POST %b HTTP/1.0\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nabc" % text.encode())
    assert wire.receive().status == 204
    assert wire.ended()


def test_http_1_0_needs_no_host_and_its_location_is_absolute_all_the_same(wire: Wire, path: str) -> None:
    response = wire.ask_raw(b"PUT %b HTTP/1.0\r\n\r\n" % path.encode())
    location = urlsplit(response.headers["location"])
    assert (location.scheme, bool(location.netloc), location.path) == ("http", True, path)


def test_a_live_read_in_http_1_0_is_not_chunked(wire: Wire, text: str) -> None:
    wire.ask("POST", text, {**TEXT, "Stream-Closed": "true"}, b"abc")
    events = wire.open_sse(f"{text}?offset=-1&live=sse", version="1.0")
    assert "transfer-encoding" not in events.headers
    assert [event.kind for event in events.rest()] == ["data", "control"]


def test_a_chunked_body_in_http_1_0_is_the_last_thing_on_its_connection(wire: Wire, text: str) -> None:
    data = post_chunked(text, chunked(b"abc")).replace(b"HTTP/1.1", b"HTTP/1.0")
    data = data.replace(b"Content-Type", b"Connection: keep-alive\r\nContent-Type")
    wire.send(data + request("DELETE", text))
    assert wire.receive().status in (204, 400)
    assert wire.ended()


# -- Framing -----------------------------------------------------------------------------------------------------------


def test_a_chunked_body_is_put_together(wire: Wire, text: str) -> None:
    assert wire.ask_raw(post_chunked(text, chunked(b"a", b"bc" * 1000, b"d"))).status == 204
    assert wire.ask("GET", text).body == b"a" + b"bc" * 1000 + b"d"


def test_chunk_extensions_and_upper_case_sizes_are_understood(wire: Wire, text: str) -> None:
    assert wire.ask_raw(post_chunked(text, b'0A;name=value;other="quoted"\r\n0123456789\r\n0\r\n\r\n')).status == 204
    assert wire.ask("GET", text).body == b"0123456789"


def test_a_chunked_body_of_nothing_is_an_empty_body(wire: Wire, text: str) -> None:
    refused(wire.ask_raw(post_chunked(text, chunked())), 400, "empty_body")
    assert wire.ask_raw(post_chunked(text, chunked(), b"Stream-Closed: true\r\n")).status == 204


@pytest.mark.parametrize(
    "trailer",
    [
        b"Producer-Id: p\r\n",
        b"Host: elsewhere.test\r\n",
        b"Stream-Closed: true\r\n",
        b"Content-Type: text/html\r\n",
        b"Stream-Seq: 0\r\n",
        b"Stream-Incarnation: other\r\n",
        b"X-Anything: at all\r\n",
        b"Stream-Closed: true\r\nProducer-Id: p\r\nHost: elsewhere.test\r\nX-Last: y\r\n",
    ],
)
def test_trailers_are_ignored(wire: Wire, text: str, trailer: bytes) -> None:
    wire.ask("POST", text, {**TEXT, "Stream-Seq": "1"}, b"abc")
    response = wire.ask_raw(post_chunked(text, chunked(b"def", trailers=trailer)))
    assert response.status == 204
    read = wire.ask("GET", text)
    assert (read.body, "stream-closed" in read.headers) == (b"abcdef", False)
    created = wire.ask_raw(
        request("PUT", f"{text}-new", {**TEXT, "Transfer-Encoding": "chunked"}) + chunked(trailers=trailer)
    )
    assert created.headers["location"] == f"http://localhost{text}-new"
    assert created.headers["content-type"] == "text/plain"
    assert "stream-closed" not in created.headers
    assert wire.ask("POST", text, TEXT, b"ghi").status == 204


@pytest.mark.parametrize(
    "trailer", [b"Content-Length: 100\r\n", b"Transfer-Encoding: gzip\r\n", b"Connection: close\r\n"]
)
def test_trailers_that_speak_of_framing_are_ignored_or_refused(
    server: RunningServer, wire: Wire, text: str, trailer: bytes
) -> None:
    wire.send(post_chunked(text, chunked(b"abc", trailers=trailer)))
    response = wire.receive()
    assert response.status in (204, 400)
    if response.headers.get("connection") == "close":
        assert wire.ended()
    else:
        assert wire.ask("GET", text).body == b"abc"


def test_a_body_on_a_read_is_passed_over(wire: Wire, text: str) -> None:
    smuggled = request("DELETE", text)
    wire.send(request("GET", text, {}, smuggled) + request("HEAD", text, {}, smuggled) + request("GET", text))
    assert wire.receive().status == 200
    assert wire.receive(bodiless=True).status == 200
    assert wire.receive().status == 200


def test_an_empty_line_before_a_request_is_passed_over(wire: Wire, text: str) -> None:
    assert wire.ask_raw(b"\r\n" + request("GET", text)).status == 200


BAD_FRAMING: dict[str, bytes] = {
    "both a length and chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "chunks and a length": b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    "gzip and chunks": b"Transfer-Encoding: gzip, chunked\r\n",
    "gzip and chunks in two lines": b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
    "chunks, then something else": b"Transfer-Encoding: chunked, identity\r\n",
    "chunks twice": b"Transfer-Encoding: chunked, chunked\r\n",
    "chunks in two lines": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    "an unknown encoding": b"Transfer-Encoding: xchunked\r\n",
    "the identity encoding": b"Transfer-Encoding: identity\r\n",
    "an empty encoding": b"Transfer-Encoding:\r\n",
    "a vertical tab before the encoding": b"Transfer-Encoding: \x0bchunked\r\n",
    "a space before the colon": b"Transfer-Encoding : chunked\r\n",
    "two different lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n",
    "two lengths in one line": b"Content-Length: 5, 6\r\n",
    "a negative length": b"Content-Length: -5\r\n",
    "a length with a plus": b"Content-Length: +5\r\n",
    "a length in hexadecimal": b"Content-Length: 0x5\r\n",
    "a length with an underscore": b"Content-Length: 1_0\r\n",
    "a length with a space inside": b"Content-Length: 1 0\r\n",
    "an empty length": b"Content-Length:\r\n",
    "a folded header": b"Content-Length: 5\r\nX-Folded: a\r\n b\r\n",
    "a NUL in a header": b"X-Nul: a\0b\r\nContent-Length: 5\r\n",
    "a bare CR in a header": b"X-Cr: a\rb\r\nContent-Length: 5\r\n",
    "a bare LF between headers": b"X-Lf: a\nContent-Length: 5\r\n",
    "a header without a name": b": a\r\nContent-Length: 5\r\n",
    "a header without a colon": b"Content-Length 5\r\n",
    "a space in a header's name": b"X Y: a\r\nContent-Length: 5\r\n",
}


@pytest.mark.parametrize("lines", BAD_FRAMING.values(), ids=BAD_FRAMING)
def test_framing_that_is_in_doubt_is_refused_and_nothing_behind_it_is_done(
    server: RunningServer, wire: Wire, text: str, lines: bytes
) -> None:
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n" % text.encode()
    with unchanged(server.url, text):
        wire.send(head + lines + b"\r\n" + b"5\r\nhello\r\n0\r\n\r\n" + request("DELETE", text))
        response = wire.receive()
        # An unknown encoding may also be answered with 501.
        assert response.status in ((400, 501) if b"Transfer-Encoding" in lines else (400,)), response.body
        refused(response, response.status, "bad_request" if response.status == 400 else "not_implemented")
        assert wire.ended()


BAD_CHUNKS: dict[str, bytes] = {
    "no number": b"xyz\r\nhello\r\n0\r\n\r\n",
    "a negative number": b"-5\r\nhello\r\n0\r\n\r\n",
    "a number with 0x": b"0x5\r\nhello\r\n0\r\n\r\n",
    "a number beyond 64 bits": b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "no size": b"\r\nhello\r\n0\r\n\r\n",
    "a chunk longer than its size": b"3\r\nhello\r\n0\r\n\r\n",
    "a bare LF after the size": b"5\nhello\r\n0\r\n\r\n",
    "a bare LF after the chunk": b"5\r\nhello\n0\r\n\r\n",
    "a space before the size": b" 5\r\nhello\r\n0\r\n\r\n",
    "a bare CR after the size": b"5\r\rhello\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("body", BAD_CHUNKS.values(), ids=BAD_CHUNKS)
def test_a_chunk_that_is_in_doubt_is_refused_and_nothing_behind_it_is_done(
    server: RunningServer, wire: Wire, text: str, body: bytes
) -> None:
    with unchanged(server.url, text):
        wire.send(post_chunked(text, body) + request("DELETE", text))
        refused(wire.receive(), 400, "bad_request")
        assert wire.ended()


BAD_REQUESTS: dict[str, bytes] = {
    "nothing like HTTP": b"hello?\r\n\r\n",
    "a greeting of TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
    "a preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": b"GET /v1/stream/x\r\n\r\n",
    "HTTP/2.0": b"GET /v1/stream/x HTTP/2.0\r\nHost: localhost\r\n\r\n",
    "HTTP/3.7": b"GET /v1/stream/x HTTP/3.7\r\nHost: localhost\r\n\r\n",
    "a method in lower case": b"get /v1/stream/x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an unknown method": b"FROBNICATE /v1/stream/x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no target": b"GET HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a target without a slash": b"GET v1/stream/x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a space in the target": b"GET /v1/stream/x y HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a NUL in the target": b"GET /v1/stream/x\0y HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no Host": b"GET /v1/stream/x HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET /v1/stream/x HTTP/1.1\r\nHost: localhost\r\nHost: b\r\n\r\n",
    "the same Host twice": b"GET /v1/stream/x HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    "an empty Host": b"GET /v1/stream/x HTTP/1.1\r\nHost:\r\n\r\n",
    "a space in the Host": b"GET /v1/stream/x HTTP/1.1\r\nHost: a b\r\n\r\n",
    "a path in the Host": b"GET /v1/stream/x HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "a user in the Host": b"GET /v1/stream/x HTTP/1.1\r\nHost: user@a\r\n\r\n",
    "a port that is not a number": b"GET /v1/stream/x HTTP/1.1\r\nHost: a:b\r\n\r\n",
}


@pytest.mark.parametrize("data", BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_what_is_not_http_is_refused_and_the_connection_ends(wire: Wire, data: bytes) -> None:
    response = wire.ask_raw(data)
    assert response.status in (400, 405, 501, 505), response.body
    refused(response, response.status, str(response.problem["code"]))
    if response.status == 400:
        assert response.headers["connection"] == "close"
        assert wire.ended()


@pytest.mark.parametrize("where", ["path", "query"])
def test_bytes_beyond_ascii_in_a_target_are_refused_or_taken_as_they_are(wire: Wire, text: str, where: str) -> None:
    target = text.encode() + (b"/caf\xc3\xa9" if where == "path" else b"?x=\xff\xfe")
    response = wire.ask_raw(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % target)
    assert response.status in (400, 404 if where == "path" else 200)


def test_connect_opens_no_tunnel(server: RunningServer, wire: Wire, text: str) -> None:
    with unchanged(server.url, text):
        wire.send(b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n" + request("DELETE", text))
        assert wire.receive().status in (400, 404, 405, 501)
        time.sleep(0.1)


# -- Upgrades ----------------------------------------------------------------------------------------------------------

UPGRADES = {
    "h2c": {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQAAP__"},
    "websocket": {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"},
    "nonsense": {"Connection": "keep-alive, upgrade", "Upgrade": "x"},
}


@pytest.mark.parametrize("upgrade", UPGRADES.values(), ids=UPGRADES)
def test_an_offer_to_upgrade_is_passed_over(wire: Wire, text: str, upgrade: dict[str, str]) -> None:
    """Some client libraries offer HTTP/2 in every first request; a server that ignores it must answer in HTTP/1.1."""
    assert wire.ask("POST", text, {**TEXT, **upgrade}, b"abc").status == 204
    assert wire.ask("GET", text, upgrade).body == b"abc"
    assert wire.ask("GET", text).body == b"abc"


@pytest.mark.parametrize("framing", ["length", "chunks"])
@pytest.mark.parametrize("upgrade", UPGRADES.values(), ids=UPGRADES)
def test_an_offer_to_upgrade_smuggles_no_body(
    server: RunningServer, wire: Wire, text: str, upgrade: dict[str, str], framing: str
) -> None:
    smuggled = request("DELETE", text) + request("PUT", f"{text}-smuggled", TEXT)
    if framing == "length":
        data = request("POST", text, {**TEXT, **upgrade}, smuggled)
    else:
        data = request("POST", text, {**TEXT, **upgrade, "Transfer-Encoding": "chunked"}) + chunked(smuggled)
    wire.send(data)
    assert wire.receive().status in (204, 400)
    with Wire(server.url) as another:
        assert another.ask("HEAD", f"{text}-smuggled").status == 404
        assert another.ask("GET", text).body in (b"", smuggled)


# -- Expect ------------------------------------------------------------------------------------------------------------


def test_a_client_that_expects_100_continue_gets_it_before_it_sends_its_body(wire: Wire, text: str) -> None:
    wire.send(request("POST", text, {**TEXT, "Expect": "100-continue", "Content-Length": "3"}))
    assert wire.receive().status == 100
    assert wire.ask_raw(b"abc").status == 204
    assert wire.ask("GET", text).body == b"abc"


def test_100_continue_waits_for_the_answers_before_it(wire: Wire, text: str) -> None:
    wire.send(
        request("GET", f"{text}?offset=now&live=long-poll&timeout_ms=200")
        + request("POST", text, {**TEXT, "Expect": "100-continue", "Content-Length": "3"})
    )
    assert wire.receive().status == 204
    assert wire.receive().status == 100
    assert wire.ask_raw(b"abc").status == 204


def test_a_body_that_comes_with_its_expectation_needs_no_100_continue(wire: Wire, text: str) -> None:
    wire.send(request("POST", text, {**TEXT, "Expect": "100-Continue"}, b"abc"))
    response = wire.receive()
    if response.status == 100:
        response = wire.receive()
    assert response.status == 204


def test_a_body_that_will_be_too_large_is_refused_before_it_is_sent(wire: Wire, text: str) -> None:
    headers = {**TEXT, "Expect": "100-continue", "Content-Length": str(17 * MIB)}
    refused(wire.ask_raw(request("POST", text, headers)), 413, "too_large")


def test_http_1_0_gets_no_100_continue(wire: Wire, text: str) -> None:
    wire.send(request("POST", text, {**TEXT, "Expect": "100-continue"}, b"abc", version="1.0"))
    assert wire.receive().status == 204


# -- HEAD, OPTIONS, targets --------------------------------------------------------------------------------------------


def test_head_has_no_body_whatever_it_says(wire: Wire, text: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    wire.send(
        request("HEAD", text)
        + request("HEAD", f"{text}-missing")
        + request("HEAD", "/v1/stream/")
        + request("HEAD", "/")
        + request("GET", text)
    )
    assert [wire.receive(bodiless=True).status for _ in range(4)] == [200, 404, 400, 200]
    assert wire.receive().body == b"abc"


def test_options_is_answered_everywhere(wire: Wire, text: str) -> None:
    for target in (text, f"{text}-missing", "/", "/v1/stream/", "/v1/stream/__ds/x", "*"):
        response = wire.ask("OPTIONS", target)
        assert response.status in (200, 204)
        assert "access-control-allow-methods" in response.headers


def test_a_target_may_be_in_absolute_form(wire: Wire, path: str) -> None:
    created = wire.ask("PUT", f"http://other.localhost:81{path}?x=y", TEXT)
    assert (created.status, created.headers["location"]) == (201, f"http://other.localhost:81{path}")
    assert wire.ask("POST", f"HTTP://other.localhost{path}", TEXT, b"abc").status == 204
    assert wire.ask("GET", f"http://other.localhost{path}?offset=-1").body == b"abc"
    refused(wire.ask("GET", "http://other.localhost"), 404, "not_found")


@pytest.mark.parametrize("host", ["localhost", "localhost:4437", "127.0.0.1", "[::1]:80", "LOCALHOST"])
def test_location_is_the_url_that_the_client_used(wire: Wire, path: str, host: str) -> None:
    response = wire.ask("PUT", f"{path}/caf%C3%A9?x=y", {**TEXT, "Host": host})
    assert response.headers["location"] == f"http://{host}{path}/caf%C3%A9"


# -- Limits ------------------------------------------------------------------------------------------------------------


def test_a_target_of_8_kib_is_the_longest(wire: Wire, text: str) -> None:
    wire.ask("POST", text, TEXT, b"abc")
    room = 8192 - len(f"{text}?x=")
    assert wire.ask("GET", f"{text}?x={'y' * room}").body == b"abc"
    refused(wire.ask("GET", f"{text}?x={'y' * (room + 1)}"), 414, "uri_too_long")
    assert wire.ended()


def test_headers_of_32_kib_are_the_largest(server: RunningServer, text: str) -> None:
    with Wire(server.url) as wire:
        assert wire.ask("GET", text, {f"X-{n}": "y" * 1000 for n in range(31)}).status == 200
        refused(wire.ask("GET", text, {f"X-{n}": "y" * 1000 for n in range(34)}), 431, "headers_too_large")
        assert wire.ended()


def test_100_headers_are_the_most(wire: Wire, text: str) -> None:
    assert wire.ask("GET", text, {f"X-{n}": "y" for n in range(99)}).status == 200
    refused(wire.ask("GET", text, {f"X-{n}": "y" for n in range(100)}), 431, "headers_too_large")
    assert wire.ended()


ENDLESS: dict[str, tuple[bytes, set[int]]] = {
    "an endless target": (b"GET /v1/stream/", {414}),
    "an endless header": (b"GET /v1/stream/x HTTP/1.1\r\nHost: localhost\r\nX-Endless: ", {431}),
    "an endless name of a header": (b"GET /v1/stream/x HTTP/1.1\r\nHost: localhost\r\nX", {431}),
    "an endless method": (b"", {400}),
    "an endless chunk size": (post_chunked("/v1/stream/x", b""), {400}),
    "an endless extension of a chunk": (post_chunked("/v1/stream/x", b"3;"), {400, 413, 431}),
    "an endless trailer": (post_chunked("/v1/stream/x", chunked(b"abc")[:-2] + b"X-Endless: "), {400, 413, 431}),
}


@pytest.mark.parametrize(("beginning", "statuses"), ENDLESS.values(), ids=ENDLESS)
def test_what_never_ends_is_refused_while_it_still_comes(
    server: RunningServer, wire: Wire, beginning: bytes, statuses: set[int]
) -> None:
    """The client can read the answer although it has sent much more, and the server has used little memory."""
    before = resident_bytes(server.pid)
    wire.send(beginning + b"x" * (40 * MIB))
    response = wire.receive()
    assert response.status in statuses, response.body
    assert response.headers["connection"] == "close"
    assert resident_bytes(server.pid) - before < 64 * MIB
    assert wire.ended()


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_body_over_16_mib_is_refused_and_the_answer_can_be_read(
    server: RunningServer, wire: Wire, text: str, framing: str
) -> None:
    body = b"x" * (24 * MIB)
    with unchanged(server.url, text):
        if framing == "length":
            wire.send(post(text, body))
        else:
            wire.send(post_chunked(text, chunked(*(body[at : at + MIB] for at in range(0, len(body), MIB)))))
        response = wire.receive()
        refused(response, 413, "too_large")
        # Either the body was drained and the connection stays open, or it is closed cleanly.
        if response.headers.get("connection") == "close":
            assert wire.ended()
        else:
            assert wire.ask("GET", text).status == 200


def test_a_body_of_16_mib_is_taken_and_read_in_pages_of_one(wire: Wire, path: str) -> None:
    body = bytes(range(256)) * (16 * MIB // 256)
    assert wire.ask("PUT", path, {}, body).status == 201
    offset = "-1"
    for at in range(0, 16 * MIB, MIB):
        page = wire.ask("GET", f"{path}?offset={offset}")
        assert page.body == body[at : at + MIB]
        offset = page.next_offset
    assert page.headers["stream-up-to-date"] == "true"
    assert wire.ask("DELETE", path).status == 204


def test_a_message_of_16_mib_is_never_cut(wire: Wire, path: str) -> None:
    body = b'"%b"' % (b"x" * (16 * MIB - 2))
    assert wire.ask("PUT", path, JSON, body).status == 201
    assert wire.ask("GET", path).body == b"[%b]" % body
    assert wire.ask("DELETE", path).status == 204


def test_a_client_that_pipelines_reads_and_reads_no_answers_costs_little_memory(
    server: RunningServer, path: str
) -> None:
    with Wire(server.url) as wire, Wire(server.url, receive_buffer_bytes=4096) as lazy:
        wire.ask("PUT", path, {}, bytes(MIB))
        before = resident_bytes(server.pid)
        lazy.socket.setblocking(False)
        pipeline = b"".join(request("GET", f"{path}?offset={number:020}") for number in range(4000))
        try:
            while pipeline:
                pipeline = pipeline[lazy.socket.send(pipeline) :]
        except BlockingIOError:
            pass
        time.sleep(0.5)
        assert resident_bytes(server.pid) - before < 100 * MIB
        assert wire.ask("DELETE", path).status == 204


def test_more_connections_than_allowed_are_turned_away_with_an_answer() -> None:
    with running_server("--connections-max", "5") as server, ExitStack() as stack:
        wires = [stack.enter_context(Wire(server.url)) for _ in range(5)]
        assert [wire.ask("GET", "/v1/stream/x").status for wire in wires] == [404] * 5
        with Wire(server.url) as one_more:
            # A client that sends its request before it reads anything must be able to read the answer, too.
            one_more.send(request("PUT", "/v1/stream/x", TEXT, bytes(100_000)))
            response = one_more.receive()
            refused(response, 503, "overloaded")
            assert int(response.headers["retry-after"]) >= 1
            assert one_more.ended()
        assert wires[0].ask("HEAD", "/v1/stream/x").status == 404
        wires.pop().close()

        def welcome() -> bool:
            with Wire(server.url) as another:
                return another.ask("GET", "/v1/stream/x").status == 404

        assert eventually(welcome)


# -- Patience ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def impatient() -> Iterator[RunningServer]:
    limits = {"header": "1", "body": "1", "idle": "1", "slow-reader": "1.5"}
    flags = [text for name, seconds in limits.items() for text in (f"--{name}-seconds", seconds)]
    with running_server(*flags) as server:
        yield server


def drip(wire: Wire, data: bytes, every_seconds: float) -> Response:
    """Send byte by byte, slowly, until an answer comes."""
    for position in range(len(data)):
        wire.send(data[position : position + 1])
        if not wire.silent_for(every_seconds):
            break
    return wire.receive()


def test_headers_that_come_too_slowly_time_out(impatient: RunningServer) -> None:
    with Wire(impatient.url) as silent, Wire(impatient.url) as slow:
        silent.send(b"GET /v1/stream/x HTTP/1.1\r\nHost:")
        refused(drip(slow, request("GET", "/v1/stream/" + "x" * 500), 0.2), 408, "request_timeout")
        refused(silent.receive(), 408, "request_timeout")
        assert silent.ended()
        assert slow.ended()


def test_a_body_that_stops_times_out(impatient: RunningServer) -> None:
    with Wire(impatient.url) as stopped, Wire(impatient.url) as never_begun, Wire(impatient.url) as chunks:
        stopped.send(request("PUT", "/v1/stream/body", {"Content-Length": "100"}) + b"abc")
        never_begun.send(request("PUT", "/v1/stream/body", {"Content-Length": "100"}))
        chunks.send(request("PUT", "/v1/stream/body", {"Transfer-Encoding": "chunked"}) + b"5\r\nab")
        for wire in (stopped, never_begun, chunks):
            refused(wire.receive(), 408, "request_timeout")
            assert wire.ended()
    with Wire(impatient.url) as wire:
        assert wire.ask("HEAD", "/v1/stream/body").status == 404


def test_a_body_that_comes_slowly_but_steadily_is_taken(impatient: RunningServer) -> None:
    with Wire(impatient.url) as wire:
        wire.send(request("PUT", "/v1/stream/steady", {"Content-Length": "8"}))
        for byte in b"abcdefg":
            wire.send(bytes([byte]))
            time.sleep(0.25)
        assert wire.ask_raw(b"h").status == 201


def test_an_idle_connection_is_closed_without_a_word(impatient: RunningServer) -> None:
    with Wire(impatient.url) as used, Wire(impatient.url) as unused:
        assert used.ask("GET", "/v1/stream/x").status == 404
        assert used.ended()
        assert unused.ended()


def test_a_connection_with_a_request_in_progress_is_not_idle(impatient: RunningServer) -> None:
    with Wire(impatient.url) as wire:
        wire.ask("PUT", "/v1/stream/waiting", TEXT)
        response = wire.ask("GET", "/v1/stream/waiting?offset=-1&live=long-poll&timeout_ms=2000")
        assert response.status == 204
        events = wire.open_sse("/v1/stream/waiting?offset=-1&live=sse")
        assert events.event().kind == "control"
        time.sleep(1.7)
        with Wire(impatient.url) as writer:
            writer.ask("POST", "/v1/stream/waiting", TEXT, b"abc")
        assert events.event().data == "abc"


def test_a_live_reader_that_does_not_read_is_dropped_and_costs_no_memory(impatient: RunningServer) -> None:
    path = "/v1/stream/much"
    with Wire(impatient.url) as wire, ExitStack() as stack:
        wire.ask("PUT", path, TEXT)
        for _ in range(30):
            assert wire.ask("POST", path, TEXT, b"x" * MIB).status == 204
        files, memory = open_files(impatient.pid), resident_bytes(impatient.pid)
        lazy = [stack.enter_context(Wire(impatient.url, receive_buffer_bytes=4096)) for _ in range(20)]
        for reader in lazy:
            reader.send(request("GET", f"{path}?offset=-1&live=sse"))
        for reader in lazy:
            assert reader.take(8) == b"HTTP/1.1"
        # Unbounded it would be 600 MiB; a few pages for each reader are expected.
        assert resident_bytes(impatient.pid) - memory < 150 * MIB
        # The writer, which is idle now, is dropped as well.
        assert eventually(lambda: open_files(impatient.pid) < files)
        assert resident_bytes(impatient.pid) - memory < 150 * MIB
    with Wire(impatient.url) as wire:
        assert wire.ask("DELETE", path).status == 204


def test_a_reader_that_does_not_read_its_page_is_dropped(impatient: RunningServer) -> None:
    path = "/v1/stream/pages"
    with Wire(impatient.url) as wire, Wire(impatient.url, receive_buffer_bytes=4096) as lazy:
        assert wire.ask("PUT", path, JSON, b'"%b"' % (b"x" * 8 * MIB)).status == 201
        files = open_files(impatient.pid)
        lazy.send(request("GET", path))
        assert eventually(lambda: open_files(impatient.pid) <= files - 2)
        with pytest.raises(ConnectionError):
            lazy.receive()


# -- What every response carries ---------------------------------------------------------------------------------------

EVERYWHERE = {"x-content-type-options": "nosniff"}
WITH_A_BODY = {
    "cross-origin-resource-policy": "same-site",
    "content-security-policy": "sandbox; default-src 'none'",
    "referrer-policy": "no-referrer",
}
KINDS: dict[str, bytes] = {
    "create": request("PUT", "{path}-new", TEXT),
    "create again": request("PUT", "{path}", TEXT),
    "append": request("POST", "{path}", TEXT, b"abc"),
    "read": request("GET", "{path}"),
    "read now": request("GET", "{path}?offset=now"),
    "not modified": request("GET", "{path}", {"If-None-Match": "*"}),
    "long-poll with data": request("GET", "{path}?offset=-1&live=long-poll"),
    "long-poll without data": request("GET", "{path}?offset=now&live=long-poll&timeout_ms=1"),
    "live read": request("GET", "{path}?offset=-1&live=sse"),
    "delete": request("DELETE", "{path}"),
    "options": request("OPTIONS", "{path}"),
    "bad offset": request("GET", "{path}?offset=x"),
    "missing": request("GET", "{path}-missing"),
    "elsewhere": request("GET", "/"),
    "conflict": request("PUT", "{path}", {"Content-Type": "text/html"}),
    "method": request("PATCH", "{path}"),
    "reserved": request("GET", "/v1/stream/__ds/x"),
    "malformed": b"garbage\r\n\r\n",
    "without Host": b"GET {path} HTTP/1.1\r\n\r\n",
    "long target": request("GET", "{path}?" + "x" * 9000),
    "large headers": request("GET", "{path}", {"X": "y" * 40_000}),
    "large body": request("POST", "{path}", {**TEXT, "Content-Length": "100000000"}),
}


@pytest.mark.parametrize("data", KINDS.values(), ids=KINDS)
def test_every_response_carries_what_browsers_need(wire: Wire, text: str, data: bytes) -> None:
    wire.ask("POST", text, TEXT, b"some text")
    wire.send(data.replace(b"{path}", text.encode()))
    status, headers, _ = wire.receive_head()
    assert status != 500
    assert EVERYWHERE.items() <= headers.items()
    if status in (204, 304):
        assert WITH_A_BODY.keys().isdisjoint(headers)
    else:
        assert WITH_A_BODY.items() <= headers.items()
    assert {"access-control-allow-origin", "access-control-expose-headers"}.isdisjoint(headers)
    assert headers["server"].startswith("headwater/")
    assert headers["date"].endswith(" GMT")


def test_a_head_response_carries_what_browsers_need_too(wire: Wire, text: str) -> None:
    for target in (text, f"{text}-missing"):
        assert (EVERYWHERE | WITH_A_BODY).items() <= wire.ask("HEAD", target).headers.items()


def test_a_preflight_allows_every_method_and_header_of_the_protocol(wire: Wire, text: str) -> None:
    asked = {
        "Origin": "http://localhost:3000",
        "Access-Control-Request-Method": "PUT",
        "Access-Control-Request-Headers": "content-type, stream-ttl, producer-id",
    }
    response = wire.ask("OPTIONS", text, asked)
    assert response.status in (200, 204)
    assert response.headers["access-control-allow-origin"] == "http://localhost:3000"
    methods = {name.strip() for name in response.headers["access-control-allow-methods"].split(",")}
    assert methods >= {"GET", "HEAD", "PUT", "POST", "DELETE"}
    allowed = {name.strip().lower() for name in response.headers["access-control-allow-headers"].split(",")}
    assert allowed >= {
        "content-type",
        "authorization",
        "if-none-match",
        "if-match",
        "last-event-id",
        "stream-ttl",
        "stream-expires-at",
        "stream-seq",
        "stream-closed",
        "stream-incarnation",
        "stream-forked-from",
        "stream-fork-offset",
        "stream-fork-sub-offset",
        "producer-id",
        "producer-epoch",
        "producer-seq",
    }
    assert int(response.headers["access-control-max-age"]) > 0


def test_a_connection_that_ends_in_the_middle_of_a_request_changes_nothing(server: RunningServer, text: str) -> None:
    with unchanged(server.url, text):
        for data in (post(text, b"abcdef")[:-1], post_chunked(text, b"3\r\nabc\r\n0\r\n")):
            with Wire(server.url) as wire:
                wire.send(data)
                wire.socket.shutdown(socket.SHUT_WR)
                with suppress(Ended):
                    assert wire.receive().status == 400
