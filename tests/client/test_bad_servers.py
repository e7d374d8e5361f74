"""Servers and proxies that misbehave."""

import gzip
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headwater.client import (
    Client,
    OutcomeUnknown,
    ProtocolViolation,
    RequestRefused,
    ServerUnavailable,
    TransportFailed,
)

from .conftest import QUICK

LONG_SECONDS = 10.0
SHORT_SECONDS = 0.5
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nStream-Next-Offset: 1\r\n"
TAIL = HEAD + b"Stream-Up-To-Date: true\r\n"
PAGE = TAIL + b"Connection: close\r\nContent-Length: 1\r\n\r\na"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
CLOSED = b'event: data\ndata:b\n\nevent: control\ndata: {"streamNextOffset":"2","streamClosed":true}\n\n'
WAIT = b"wait"
"""In place of the rest of an answer: silence, until the client gives up."""


class BadServer:
    """Answers each connection with the next of the given bytes, ignoring the request."""

    def __init__(self, answers: list[bytes]) -> None:
        self._answers = answers
        self.asked: list[str] = []

    def serve(self, listening: socket.socket) -> None:
        for answer in self._answers:
            connection, _ = listening.accept()
            with connection:
                connection.settimeout(5)
                self.asked.append(connection.recv(65536).split(b"\r\n")[0].decode())
                connection.sendall(answer.removesuffix(WAIT))
                if answer.endswith(WAIT):
                    connection.recv(1)


@contextmanager
def serving(*answers: bytes) -> Iterator[tuple[Client, BadServer]]:
    server = BadServer(list(answers))
    seconds = SHORT_SECONDS if any(answer.endswith(WAIT) for answer in answers) else LONG_SECONDS
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(5)
        thread = threading.Thread(target=server.serve, args=(listening,))
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with Client(
            url, retry=QUICK, follow_retry=QUICK, timeout_seconds=seconds, wait_timeout_seconds=seconds
        ) as client:
            yield client, server
        thread.join(10)
    assert not thread.is_alive()


def test_a_silent_server_is_asked_again_up_to_the_limit() -> None:
    with serving(WAIT, WAIT, PAGE) as (client, server):
        assert client.stream("s").read() == b"a"
        assert len(server.asked) == 3
    with serving(*[WAIT] * 5) as (client, _), pytest.raises(TransportFailed):
        client.stream("s").read()


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"HTTP/1.1 200",
        b"nonsense\r\n\r\n",
        TAIL + b"Content-Length: 5\r\n\r\nab",
        TAIL + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
        TAIL + b"Content-Length: 2\r\nContent-Encoding: gzip\r\n\r\nab",
    ],
)
def test_a_broken_answer_counts_as_no_answer(broken: bytes) -> None:
    with serving(broken, PAGE) as (client, _):
        assert client.stream("s").read() == b"a"


def test_a_write_without_an_answer_is_in_doubt_and_sent_once() -> None:
    with serving(b"") as (client, server):
        with pytest.raises(OutcomeUnknown, match=r"[^.]\. The write may"):
            client.stream("s", content_type="text/plain").append("x")
        assert len(server.asked) == 1


def test_events_that_stop_coming_are_asked_for_again() -> None:
    quiet = EVENTS + b": hello\n\n" + WAIT
    with serving(PAGE, quiet, EVENTS + CLOSED) as (client, server):
        with client.stream("s").follow() as follower:
            assert [chunk.data for chunk in follower] == [b"a", b"b"]
        assert ["sse" in line for line in server.asked] == [False, True, True]


def test_events_that_something_holds_back_are_given_up_for_long_poll() -> None:
    closed = TAIL + b"Stream-Closed: true\r\nContent-Length: 1\r\n\r\nb"
    with serving(PAGE, WAIT, WAIT, WAIT, closed) as (client, server):
        with client.stream("s").follow() as follower:
            assert [chunk.data for chunk in follower] == [b"a", b"b"]
        assert "long-poll" in server.asked[-1]


def test_a_page_may_be_compressed() -> None:
    body = gzip.compress(b"a long page")
    head = TAIL + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    with serving(head + body) as (client, _):
        assert client.stream("s").read() == b"a long page"


def test_redirects_are_followed_for_reads_but_not_for_writes() -> None:
    away = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with serving(away, PAGE) as (client, server):
        assert client.stream("s").read() == b"a"
        assert server.asked[1].startswith("GET /elsewhere")
    with serving(away) as (client, _), pytest.raises(RequestRefused) as caught:
        client.stream("s", content_type="text/plain").append("x")
    assert caught.value.status == 307


def test_an_answer_without_an_offset_violates_the_protocol() -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi"
    with serving(page) as (client, _), pytest.raises(ProtocolViolation, match="Stream-Next-Offset"):
        client.stream("s").read()


def test_an_error_needs_no_body() -> None:
    down = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with serving(*[down] * 5) as (client, _), pytest.raises(ServerUnavailable) as caught:
        client.stream("s").read()
    assert caught.value.status == 502 and caught.value.code is None


def test_an_invalid_url_is_reported_at_once() -> None:
    with pytest.raises(ValueError, match="ftp"):
        Client("ftp://127.0.0.1")


def test_an_answer_that_nothing_has_changed_without_the_question_is_a_violation() -> None:
    unasked = b"HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n"
    with serving(unasked, unasked) as (client, _):
        with pytest.raises(ProtocolViolation, match="was answered with 304"):
            client.stream("s").head()
        with pytest.raises(ProtocolViolation, match="was answered with 304"):
            client.stream("s").page("-1")
