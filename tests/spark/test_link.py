"""The link to a server: its requests, its retries, and how it reports failures."""

import json
import pickle
import shutil
import ssl
import subprocess
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.client import Admin, ScanRange
from headwater.lake.format import SCHEMA
from headwater.spark import link as module
from headwater.spark.failures import LinkFailed, LinkRefused, ScanBroken
from headwater.spark.jobs.load import LoadConfig
from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.replay import ReplayConfig
from headwater.spark.link import Link, LinkSettings, parse_link
from headwater.spark.options.source import parse_source
from headwater.testing import RunningServer

from .cut_proxy import cut_proxy
from .streams import Streams


class Answers(ThreadingHTTPServer):
    """A server that gives planned answers, and records the requests."""

    def __init__(self, *answers: tuple[int, dict[str, str], bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.answers, self.requests = list(answers), list[dict[str, str]]()

    @property
    def settings(self) -> LinkSettings:
        return LinkSettings(f"http://127.0.0.1:{self.server_address[1]}", retry_interval_seconds=0.0)


class _Answer(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        assert isinstance(self.server, Answers)
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.requests.append({"method": self.command, "path": self.path, **dict(self.headers)})
        status, headers, body = self.server.answers.pop(0)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_DELETE = _answer

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def answering(
    *answers: tuple[int, dict[str, str], bytes], tls: ssl.SSLContext | None = None, kind: type[Answers] = Answers
) -> Iterator[Answers]:
    with kind(*answers) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


STATUS: tuple[int, dict[str, str], bytes] = (200, {}, b"{}")
BUSY = (
    503,
    {"Retry-After": "0", "Content-Type": "application/problem+json"},
    b'{"code": "overloaded", "detail": "Later."}',
)


# -- Retries and errors ------------------------------------------------------------------------------------------------


def test_a_request_to_a_busy_server_is_retried() -> None:
    with answering(BUSY, BUSY, STATUS) as server, Link(server.settings) as link:
        assert link.status() == {}
        assert len(server.requests) == 3


def test_a_server_may_be_busy_more_often_than_it_may_fail() -> None:
    failing: tuple[int, dict[str, str], bytes] = (500, {}, b"")
    answers = (BUSY, failing, BUSY, BUSY, STATUS, failing, BUSY, failing)
    with answering(*answers) as server, Link(server.settings._replace(retries=1)) as link:
        assert link.status() == {}
        with pytest.raises(LinkRefused, match="was answered with 500"):
            link.status()
        assert len(server.requests) == len(answers)


def test_retries_are_limited() -> None:
    with answering(*[BUSY] * 1_000) as server, Link(server.settings._replace(retries=2, timeout_seconds=0.2)) as link:
        with pytest.raises(LinkRefused, match=r"was answered with 503: Later\.") as caught:
            link.status()
        assert (caught.value.status, caught.value.code) == (503, "overloaded")


def test_the_error_for_an_unreachable_server_names_its_url() -> None:
    with answering() as server:
        settings = server.settings._replace(retries=1)
    with (
        Link(settings) as link,
        pytest.raises(LinkFailed, match=f"GET {settings.url}/__headwater/status got no answer"),
    ):
        link.status()


def test_other_refusals_are_raised_at_once_and_completely() -> None:
    problem = b'{"code": "ranges_unavailable", "detail": "No.", "problems": [{"index": 0}]}'
    with answering((409, {}, problem)) as server, Link(server.settings) as link:
        with pytest.raises(LinkRefused) as caught, link.scan([ScanRange("b/x", 1, 0, 1)]):
            pass
        assert caught.value.problem["problems"] == [{"index": 0}]
        again = pickle.loads(pickle.dumps(caught.value))
        assert (str(again), again.status, again.problem) == (str(caught.value), 409, caught.value.problem)


@pytest.mark.parametrize(
    "headers, offset",
    [({"Stream-Next-Offset": "00000000000000000042"}, 42), ({"Stream-Next-Offset": "later"}, None), ({}, None)],
)
def test_a_refusal_says_where_the_stream_ends_if_the_server_does(headers: dict[str, str], offset: int | None) -> None:
    with answering((409, headers, b"{}")) as server, Link(server.settings) as link:
        with pytest.raises(LinkRefused) as caught:
            link.publish_snapshot("bucket/x", 43, b"1", "text/plain")
        assert caught.value.next_offset == offset
        assert pickle.loads(pickle.dumps(caught.value)).next_offset == offset


def test_an_answer_from_another_server_is_named() -> None:
    with answering((200, {}, b"[]"), (404, {}, b"<html>nothing</html>")) as server, Link(server.settings) as link:
        with pytest.raises(LinkFailed, match="not answered by a Headwater server"):
            link.status()
        with pytest.raises(LinkRefused, match="nothing"):
            link.status()


def test_tokens_and_headers_are_sent(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    with answering(STATUS, STATUS, STATUS) as server:
        with Link(server.settings._replace(token="secret", headers=(("x-team", "blue"),))) as link:
            link.status()
        with Link(server.settings._replace(token_file=str(file))) as link:
            link.status()
            file.write_text("second")
            link.status()
        assert [request["Authorization"] for request in server.requests] == [
            "Bearer secret",
            "Bearer first",
            "Bearer second",
        ]
        assert server.requests[0]["x-team"] == "blue"


def test_neither_tokens_nor_passwords_are_shown() -> None:
    given = {"token": "secret", "header.X-Key": "secret"}
    link = parse_link({"url": "http://ada:secret@127.0.0.1:1", **given, "retries": "0"})
    assert dict(link.headers) == {"Authorization": "Basic YWRhOnNlY3JldA==", "x-key": "secret"}
    assert (link.client_headers, link.credential) == ({"x-key": "secret"}, "secret")
    assert "secret" not in repr(LinkSettings("http://ada:secret@h"))
    origin = Origin("http://h", bucket="b", options=given)
    replay = ReplayConfig(origin, to="http://h", name="n", checkpoint="/c", options=given)
    load = LoadConfig("http://h", ["/f"], "json", "n", options=given)
    shown = [link, origin, replay, load, parse_source({"url": "http://h", "bucket": "b", **given})]
    assert "secret" not in repr(shown)
    with Link(link) as opened, pytest.raises(LinkFailed) as caught:
        opened.status()
    trace = "".join(traceback.format_exception(caught.value))
    assert "http://127.0.0.1:1" in trace and "secret" not in trace and "YWRh" not in trace


def test_a_token_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    settings = LinkSettings("http://127.0.0.1:1", token_file=str(tmp_path / "none"))
    with Link(settings) as link, pytest.raises(LinkFailed, match="tokenFile names a file that does not exist"):
        link.status()
    (tmp_path / "none").write_text("not one secret word")
    with Link(settings) as link, pytest.raises(LinkFailed, match="not one word of printable ASCII") as caught:
        link.status()
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def refusal(status: int, code: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    problem = {"status": status, "code": code, "detail": "As planned."}
    return status, {"Content-Type": "application/problem+json", **headers}, json.dumps(problem).encode()


def test_a_token_file_that_was_renewed_meanwhile_repeats_the_request(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")

    class Renewing(Answers):
        """Renews the file when a request arrives."""

        def process_request(self, request: Any, client_address: Any) -> None:
            file.write_text("second")
            super().process_request(request, client_address)

    with answering(refusal(401, "token_expired"), STATUS, kind=Renewing) as server:
        with Link(server.settings._replace(token_file=str(file))) as link:
            file.write_text("first")
            assert link.status() == {}
        assert [request["Authorization"] for request in server.requests] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (401, "unauthorized", "give the option tokenFile (or token) with a valid token."),
        (401, "token_expired", "give the option tokenFile (or token) with a valid token."),
        (401, "producer_forbidden", "ask for the right, or give the option tokenFile (or token) with a token that has"),
        (403, "forbidden", "ask for the right, or give the option tokenFile (or token) with a token that has it."),
        (507, "quota_exceeded", "As planned."),
    ],
)
def test_a_refusal_of_access_is_final_and_names_the_option(status: int, code: str, advice: str) -> None:
    with answering(refusal(status, code)) as server, Link(server.settings._replace(token="secret")) as link:
        with pytest.raises(LinkRefused) as caught:
            link.status()
        assert advice in str(caught.value) and (caught.value.status, caught.value.code) == (status, code)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        assert len(server.requests) == 1 and "secret" not in str(caught.value)


def test_a_rate_limit_is_waited_for_and_not_counted() -> None:
    limited = refusal(429, "rate_limited", **{"Retry-After": "0"})
    with answering(*[limited] * 5, STATUS) as server, Link(server.settings._replace(retries=1)) as link:
        assert link.status() == {}
        assert len(server.requests) == 6


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate for this machine, and its key, in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    path = tmp_path / "certificate.pem"
    kind = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "keyUsage=critical,digitalSignature,keyCertSign"]
    subprocess.run([openssl, *kind.split(), *names, "-keyout", path, "-out", path], check=True, capture_output=True)
    return path


def test_client_and_server_prove_their_identity_with_certificates(certificate: Path, tmp_path: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate))
    context.load_cert_chain(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    with answering(STATUS, tls=context) as server:
        settings = server.settings._replace(url=server.settings.url.replace("http:", "https:"), retries=0)
        both = settings._replace(tls_ca=str(certificate), tls_cert=str(certificate))
        with Link(both) as link:
            assert link.status() == {}
        for one in (both._replace(tls_ca=None), both._replace(tls_cert=None)):
            with Link(one) as link, pytest.raises(LinkFailed):
                link.status()
    with pytest.raises(LinkFailed, match=r"The certificates \(.*none.pem\) cannot be read"):
        Link(settings._replace(tls_ca=str(tmp_path / "none.pem")))


def test_settings_can_be_pickled() -> None:
    settings = LinkSettings("http://127.0.0.1:1", headers=(("a", "b"),))
    assert pickle.loads(pickle.dumps(settings)) == settings


# -- Requests ----------------------------------------------------------------------------------------------------------


def test_a_consumer_is_registered_and_forgotten(link: Link, bucket: str) -> None:
    position = link.flush()["0"]
    link.register(bucket, {"0": position})
    assert link.consumers()[bucket] == {"0": position}
    assert link.renew(bucket, {"0": position})
    link.forget(bucket)
    assert bucket not in link.consumers()
    assert not link.renew(bucket, {"0": position})
    assert bucket not in link.consumers()


def test_a_consumer_says_how_long_it_may_be_silent(link: Link, bucket: str) -> None:
    position = link.flush()["0"]
    with Admin(link.settings.url) as admin:
        for seconds in (60, 120):
            link.register(bucket, {"0": position}, seconds)
            assert getattr(admin.consumer(bucket), "silence_seconds", None) == seconds
            assert link.renew(bucket, {"0": position}, 2 * seconds)
            assert getattr(admin.consumer(bucket), "silence_seconds", None) == 2 * seconds
    link.forget(bucket)


def test_a_lease_is_renewed_until_it_is_forgotten_and_is_no_consumer_of_rows(link: Link, bucket: str) -> None:
    link.lease(bucket, 60)
    assert link.renew_lease(bucket, 60)
    assert bucket not in link.consumers()
    assert not link.renew(bucket, {"0": 0})
    link.forget(bucket)
    assert not link.renew_lease(bucket, 60)


def test_streams_are_described_by_name_and_by_prefix(
    link: Link, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        streams.make(f"s{number}", b"x" * (number + 1))
    name = streams.bucket
    wanted = [f"{name}/s1", f"{name}/none", f"{name}/s3"]
    monkeypatch.setattr(module, "PAGE_STREAMS", 2)
    found = link.describe(wanted)
    assert found["stream"].to_pylist() == [f"{name}/s1", f"{name}/s3"]
    assert found["tail"].to_pylist() == [2, 4]
    assert link.describe([]).num_rows == 0
    pages = list(link.describe_all(f"{name}/"))
    assert [stream for page in pages for stream in page["stream"].to_pylist()] == [f"{name}/s{n}" for n in range(5)]
    assert [len(page) for page in pages] == [2, 2, 1]


def test_records_are_located(link: Link, streams: Streams) -> None:
    streams.make("s", b"one", b"three")
    name = f"{streams.bucket}/s"
    incarnation = link.describe([name])["incarnation"][0].as_py()
    wanted = [(name, incarnation, record) for record in range(4)]
    assert link.locate(wanted) == [0, 3, 8, None]


def test_the_latest_snapshot_is_returned_if_there_is_one(link: Link, streams: Streams) -> None:
    streams.make("s", b"one", b"three")
    assert link.snapshot(f"{streams.bucket}/s") is None
    assert link.snapshot(f"{streams.bucket}/none") is None
    assert link.snapshot(f"{streams.bucket}/a/b") is None
    link.publish_snapshot(f"{streams.bucket}/s", 3, b"so far", "text/plain")
    assert link.snapshot(f"{streams.bucket}/s") == (3, b"so far", "text/plain")


def test_a_scan_returns_rows_as_they_arrive(link: Link, streams: Streams) -> None:
    streams.make("s", b"one", b"three")
    name = f"{streams.bucket}/s"
    incarnation = link.describe([name])["incarnation"][0].as_py()
    with link.scan([ScanRange(name, incarnation, 0, 99)]) as batches:
        found = pa.Table.from_batches(batches)
    assert found["payload"].to_pylist() == [b"one", b"three"]
    assert found.schema.names == SCHEMA.names
    with link.scan([ScanRange(name, incarnation, 1, 99)], ["offset", "stream"]) as batches:
        assert pa.Table.from_batches(batches).to_pylist() == [{"stream": "s", "offset": 3}]


def test_a_scan_that_breaks_off_is_noticed_wherever_it_is_cut(lake_server: RunningServer, streams: Streams) -> None:
    streams.make("s", *(b"%d" % number * 40 for number in range(20)))
    name = f"{streams.bucket}/s"
    with cut_proxy(lake_server.url) as proxy, Link(LinkSettings(proxy.url)) as link:
        incarnation = link.describe([name])["incarnation"][0].as_py()
    ranges = [ScanRange(name, incarnation, 0, 10_000)]
    with Admin(lake_server.url) as admin, admin.scan(ranges) as pieces:
        size = sum(map(len, pieces))
    for left in (size // 3, size - 1, size + 100):
        with cut_proxy(lake_server.url) as proxy:
            # The head of the response takes part of it, so the body is cut at several places.
            proxy.plan = [left]
            with Link(LinkSettings(proxy.url, retry_interval_seconds=0.0)) as link:
                with pytest.raises(ScanBroken, match="cut short"), link.scan(ranges) as batches:
                    list(batches)
                assert proxy.cuts == 1
