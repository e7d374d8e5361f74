"""The generator counts what a server answers, refuses, changes or leaves unanswered."""

import shutil
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pytest

from headwater.load import targets
from headwater.load.messages import LoadFailed
from headwater.load.sockets import Connection, Job, run, work
from headwater.load.sources import Page, Reads, Rotation, Source
from headwater.load.targets import Target

from .relays import certificate, relay

Answer = Callable[[str, int], bytes]


@contextmanager
def stub(answer: Answer) -> Iterator[Target]:
    """A server that answers the n-th request for a path with these bytes, and closes the connection after b""."""
    counts: dict[str, int] = {}

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            while line := self.rfile.readline():
                while self.rfile.readline() not in (b"\r\n", b""):
                    pass
                path = line.split()[1].decode()
                counts[path] = counts.get(path, 0) + 1
                response = answer(path, counts[path])
                self.wfile.write(response)
                if not response or b"Connection: close" in response:
                    return

    class Server(ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield Target("127.0.0.1", listening.server_address[1])
        finally:
            listening.shutdown()
            thread.join()


def response(body: bytes, status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body


def reads(target: Target, count: int, expected: bytes = b"") -> list[Source]:
    return [Reads(target.request("GET", "/a"), expected, left=count)]


def test_every_request_is_counted_once() -> None:
    with stub(lambda path, turn: response(b"ok")) as target:
        load = run([Job(target, reads(target, 30) * 3, 10.0) for _ in range(2)])
    assert (load.done, load.refused, load.broken, load.wrong) == (60, 0, 0, 0)
    assert load.latencies.counts.total() == 60
    assert 0 < load.latencies_us["p50"] <= load.latencies_us["max"]
    assert not load.problems()


def test_refusals_and_wrong_bodies_are_not_done() -> None:
    answers = {3: response(b"busy", "503 Unavailable"), 5: response(b"other")}
    with stub(lambda path, turn: answers.get(turn, response(b"ok"))) as target:
        tally = work(Job(target, reads(target, 10, b"ok"), 10.0))
    assert (tally.done, tally.refused, tally.wrong, tally.broken) == (8, 1, 1, 0)


def test_a_connection_that_breaks_is_counted_and_replaced() -> None:
    with stub(lambda path, turn: b"" if turn == 2 else response(b"ok")) as target:
        tally = work(Job(target, reads(target, 5), 10.0))
    assert (tally.done, tally.broken) == (4, 1)


def test_a_server_may_close_a_connection_after_an_answer() -> None:
    with stub(lambda path, turn: response(b"ok", more="Connection: close\r\n")) as target:
        assert work(Job(target, reads(target, 5), 10.0, fails_fast=True)).done == 5


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (response(b"Too busy. Try later.", "503 Unavailable"), "GET /a was answered with 503: Too busy; Try later"),
        (b"", "GET /a got no response .the server closed the connection."),
    ],
)
def test_a_job_that_fails_fast_names_the_request_that_failed(answer: bytes, reason: str) -> None:
    with stub(lambda path, turn: answer if turn == 3 else response(b"ok")) as target:
        job = Job(target, reads(target, 10), 60.0, fails_fast=True)
        with pytest.raises(LoadFailed, match=reason):
            work(job)
    with stub(lambda path, turn: answer) as target, pytest.raises(LoadFailed, match=reason):
        run([Job(target, reads(target, 10), 60.0, fails_fast=True)])


def test_a_server_that_never_answers_is_given_up() -> None:
    with stub(lambda path, turn: b"HTTP/1.1 200 OK\r\n" if turn == 2 else response(b"ok")) as target:
        tally = work(Job(target, reads(target, 5), 0.1, answer_seconds_max=0.2))
        assert (tally.done, tally.broken) == (1, 1)
    with stub(lambda path, turn: b"HTTP/1.1 200 OK\r\n") as target, pytest.raises(LoadFailed, match=r"within 0\.2 s"):
        work(Job(target, reads(target, 5), 60.0, fails_fast=True, answer_seconds_max=0.2))


def test_a_replay_is_done_with_its_last_page_and_is_completed_after_the_time() -> None:
    bodies = {"/1": b"one", "/2": b"two", "/3": b"three"}
    with stub(lambda path, turn: response(bodies[path])) as target:
        pages = [Page(target.request("GET", path), body) for path, body in bodies.items()]
        tally = work(Job(target, [Rotation(pages), Rotation(pages)], 0.0001))
        assert tally.wrong == 0
        assert tally.latencies.counts.total() == tally.done >= 2
        wrong = [*pages[:2], Page(pages[2].request, b"other")]
        tally = work(Job(target, [Rotation(wrong)], 0.0001))
        assert (tally.done, tally.wrong > 0) == (0, True)


def test_a_large_request_is_sent_completely() -> None:
    with stub(lambda path, turn: response(b"ok")) as target:
        request = target.request("POST", "/a").removesuffix(b"\r\n") + b"X: y\r\n" * 1_000_000 + b"\r\n"
        assert work(Job(target, [Reads(request, left=2)], 10.0, fails_fast=True)).done == 2


def test_the_rate_is_kept() -> None:
    with stub(lambda path, turn: response(b"ok")) as target:
        tally = work(Job(target, reads(target, -1), 0.5, rate=40))
    assert 15 <= tally.done <= 21


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is needed to make a certificate.")
def test_requests_go_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, context = certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=path)
    monkeypatch.setattr(targets, "_tls", lambda: trusting)
    body = b"x" * 300_000
    with (
        stub(lambda path, turn: response(body)) as behind,
        relay(f"http://127.0.0.1:{behind.port}", tls=context) as url,
    ):
        target = Target.of_url(url, {})
        tally = work(Job(target, reads(target, 10, body) * 2, 10.0, fails_fast=True))
        with closing(Connection(target, timeout_seconds=5.0)) as connection:
            assert connection.ask(target.request("GET", "/a")).endswith(body)
    assert (tally.done, tally.wrong) == (10, 0)
