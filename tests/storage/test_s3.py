"""The parts of a store in S3 that only S3 has: time-outs, refusals and retries, and the settings of other libraries."""

import socket
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.message import Message
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pyarrow as pa
import pytest

from headwater.storage.s3 import ENDPOINTS, REGIONS, RequestLimits, S3Store, delta_options, iceberg_options
from headwater.storage.store import Store, StoreFailed

KEY = "segments/shard=0/00000000000000000001-00000000000000000009-1f.x.parquet"


def every_call(store: Store) -> list[Callable[[], object]]:
    return [
        lambda: store.create(KEY, b"data"),
        lambda: store.read(KEY),
        lambda: store.read(KEY, 1, 2),
        lambda: store.delete(KEY),
        lambda: list(store.items("")),
    ]


QUICK = RequestLimits(request_seconds_max=0.2, retry_seconds_max=1.0, backoff_seconds=0.01)
"""Limits short enough for a test."""
QUICK_SECONDS_MAX = 20 * (QUICK.request_seconds_max + QUICK.retry_seconds_max)
"""How long to wait for them on a busy machine."""


def quick_store() -> S3Store:
    """A store at the endpoint of the environment."""
    return S3Store("s3://bucket/prefix", limits=QUICK)


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


@contextmanager
def dead_endpoint(monkeypatch: pytest.MonkeyPatch, listening: bool) -> Iterator[None]:
    """An endpoint, set in the environment, that refuses every connection or accepts it and never answers."""
    with socket.socket() as endpoint:
        endpoint.bind(("127.0.0.1", 0))
        if listening:
            endpoint.listen()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{endpoint.getsockname()[1]}")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        yield


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize("listening", [False, True], ids=["closed", "silent"])
def test_a_dead_endpoint_fails_in_time(listening: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with dead_endpoint(monkeypatch, listening), ThreadPoolExecutor(1) as pool:
        for call in every_call(quick_store()):
            with pytest.raises(StoreFailed, match=r"^The store s3://bucket/prefix did not [^\n]*$"):
                pool.submit(call).result(timeout=QUICK_SECONDS_MAX)


def test_a_wrong_secret_fails(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    S3Store(s3_url).create(KEY, b"data")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    for call in every_call(S3Store(s3_url)):
        with pytest.raises(StoreFailed, match=r"403 Forbidden \(SignatureDoesNotMatch\)\.$"):
            call()


def test_a_missing_bucket_does_not_prove_that_an_object_is_missing(s3_url: str) -> None:
    store = S3Store("s3://no-such-bucket/prefix")
    for call in every_call(store)[1:]:
        with pytest.raises(StoreFailed, match="NoSuchBucket"):
            call()


class Answer:
    """What a scripted S3 answers to one request."""

    def __init__(self, method: str, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.method, self.status, self.body, self.headers = method, status, body, headers or {}


@contextmanager
def scripted_s3(*answers: Answer) -> Iterator[list[Message]]:
    """An endpoint, set in the environment, that gives these answers in turn; yields the headers of each request."""
    left, seen = list(answers), list[Message]()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.append(self.headers)
            answer = left.pop(0) if left and left[0].method == self.command else Answer(self.command, 400)
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)

        do_PUT = do_GET = do_DELETE = answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
                yield seen
        finally:
            server.shutdown()
            thread.join()
    assert left == []


ETAG = {"ETag": '"1"', "Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT"}


@pytest.mark.usefixtures("credentials")
def test_an_upload_has_a_condition_and_a_checksum() -> None:
    with scripted_s3(Answer("PUT", 200, headers=ETAG)) as seen:
        quick_store().create(KEY, b"data")
    assert seen[0]["If-None-Match"] == "*"
    assert seen[0]["x-amz-checksum-sha256"] == b64encode(sha256(b"data").digest()).decode()


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize("status", [409, 412])
def test_a_retry_of_the_library_that_meets_its_own_first_attempt_succeeds(status: int) -> None:
    with scripted_s3(Answer("PUT", 500), Answer("PUT", status), Answer("GET", 200, b"data", ETAG)):
        quick_store().create(KEY, b"data")


@pytest.mark.usefixtures("credentials")
def test_a_conflict_over_a_missing_object_can_be_retried() -> None:
    with scripted_s3(Answer("PUT", 409), Answer("GET", 404), Answer("PUT", 200, headers=ETAG)):
        store = quick_store()
        with pytest.raises(StoreFailed, match="try again"):
            store.create(KEY, b"data")
        store.create(KEY, b"data")


@pytest.mark.usefixtures("credentials")
def test_a_range_that_comes_back_short_fails() -> None:
    short = Answer("GET", 206, b"234", {**ETAG, "Content-Range": "bytes 2-4/5"})
    with scripted_s3(short), pytest.raises(StoreFailed, match=r"returned 3 of 8 bytes of the object"):
        quick_store().read(KEY, 2, 8)


@pytest.mark.usefixtures("credentials")
def test_an_object_that_breaks_off_fails() -> None:
    half = Answer("GET", 200, b"01234", {**ETAG, "Content-Length": "10"})
    with scripted_s3(half), pytest.raises(StoreFailed, match=KEY):
        quick_store().read(KEY)


# -- Other libraries -------------------------------------------------------------------------------------------------


def test_other_libraries_are_given_the_endpoint_and_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*ENDPOINTS, *REGIONS):
        monkeypatch.delenv(name, raising=False)
    assert "AWS_ENDPOINT_URL" not in delta_options()
    assert not {"s3.endpoint", "s3.region"} & iceberg_options().keys()
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    delta, iceberg = delta_options(), iceberg_options()
    assert (delta["AWS_ENDPOINT_URL"], delta["AWS_ALLOW_HTTP"]) == ("http://127.0.0.1:1", "true")
    assert (iceberg["s3.endpoint"], iceberg["s3.region"]) == ("http://127.0.0.1:1", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://127.0.0.1:1")
    assert delta_options()["AWS_ALLOW_HTTP"] == "false"


def test_deltalake_and_pyiceberg_reach_the_same_bucket(s3_url: str) -> None:
    deltalake = pytest.importorskip("deltalake")
    pyiceberg = pytest.importorskip("pyiceberg.io.pyarrow")
    rows = pa.table({"row": [1, 2]})
    deltalake.write_deltalake(f"{s3_url}/delta", rows, storage_options=delta_options())
    assert any(item.key.startswith("delta/_delta_log/") for item in S3Store(s3_url).items(""))
    file = pyiceberg.PyArrowFileIO(iceberg_options()).new_output(f"{s3_url}/object")
    with file.create() as sink:
        sink.write(b"data")
    assert S3Store(s3_url).read("object") == b"data"


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize("listening", [False, True], ids=["closed", "silent"])
def test_deltalake_gives_up_on_a_dead_endpoint_in_time(listening: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    deltalake = pytest.importorskip("deltalake")
    with dead_endpoint(monkeypatch, listening), ThreadPoolExecutor(1) as pool:
        opened = pool.submit(deltalake.DeltaTable, "s3://bucket/table", storage_options=delta_options(QUICK))
        with pytest.raises(OSError, match="error sending request"):
            opened.result(timeout=QUICK_SECONDS_MAX)
