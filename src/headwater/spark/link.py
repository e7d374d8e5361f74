"""The link to a server: what a driver and its executors ask of it, blocking, with bounded patience.

Settings travel to the executors as a value; each process makes its own link of them. A link is for one thread.
"""

import json
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import uniform
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx2
import pyarrow as pa

from headwater.protocol import offsets

ARROW = "application/vnd.apache.arrow.stream"
OWN = "/__headwater"
RETRIED = frozenset({408, 429, 500, 502, 503, 504})
BUSY = 503
"""Not counted among the tries while a request has time left: with many tasks at once each must wait for its turn."""
PAUSE_SECONDS_MAX = 10.0
"""However long a server asks us to wait: the number of tries is what is agreed on."""
PAGE_STREAMS = 50_000
"""Streams described at a time: a few megabytes of answer."""
DETAIL_CHARACTERS_MAX = 500
NEXT_OFFSET = "stream-next-offset"
SNAPSHOT_OFFSET = "stream-snapshot-offset"
SNAPSHOT_TRIES = 3
NO_SNAPSHOT = frozenset({"snapshot_not_found", "stream_not_found", "stream_gone", "invalid_name"})
"""Refusals that mean that a stream has no snapshot; to some names no URL leads, so none was ever published there."""


class LinkSettings(NamedTuple):
    """How to reach a server; small, and safe to send to executors."""

    url: str
    token: str | None = None
    token_file: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    retries: int = 8
    retry_interval_seconds: float = 0.5
    """Before the first retry; doubled for each further one."""
    timeout_seconds: float = 120.0


class LinkFailed(Exception):
    """The server gave no usable answer, however often it was asked."""


class LinkRefused(Exception):
    """The server said no: `status`, `code` and all that its answer says; where the stream ends, if it says that."""

    def __init__(self, what: str, status: int, problem: Mapping[str, Any], next_offset: int | None = None) -> None:
        self.status, self.problem, self.next_offset = status, problem, next_offset
        self.code: str | None = problem.get("code")
        self.detail: str = problem.get("detail") or problem.get("title") or "no reason given"
        super().__init__(f"{what} was answered with {status}: {self.detail}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark carries errors from one process to another.
        return _refused, (str(self), self.status, dict(self.problem), self.next_offset)


def _refused(message: str, status: int, problem: dict[str, Any], next_offset: int | None) -> LinkRefused:
    error = LinkRefused("", status, problem, next_offset)
    error.args = (message,)
    return error


class ScanBroken(LinkFailed):
    """An answer ended before it was whole; what has come of it is good."""


class Range(NamedTuple):
    """The messages of one life that begin in a range of bytes."""

    stream: str
    incarnation: int
    start: int
    end: int


class Snapshot(NamedTuple):
    """What a stream comes to up to an offset."""

    offset: int
    data: bytes
    content_type: str


class Link:
    """A connection to one server."""

    def __init__(self, settings: LinkSettings) -> None:
        self.settings = settings
        self._client = httpx2.Client(
            base_url=settings.url.rstrip("/"),
            headers=dict(settings.headers),
            timeout=settings.timeout_seconds,
            verify=tls_context(settings),
            follow_redirects=True,
        )

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- About the server and its lake ------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What the server is and how it does."""
        return self._json("GET", f"{OWN}/status")

    def flush(self) -> dict[str, int]:
        """Have everything that was acknowledged put into the lake: up to which position that is, by shard."""
        positions: dict[str, int] = self._json("POST", f"{OWN}/flush")["positions"]
        return positions

    def register(self, reader: str, positions: Mapping[str, int]) -> None:
        """Say how far a reader of the lake has come."""
        self._send("PUT", f"{OWN}/readers/{quote(reader, safe='')}", _body({"positions": dict(positions)}))

    def readers(self) -> dict[str, dict[str, int]]:
        """How far each registered reader has come."""
        return {one["reader"]: one["positions"] for one in self._json("GET", f"{OWN}/readers")["readers"]}

    def heard_of(self, reader: str) -> int | None:
        """When a reader last said how far it has come, in milliseconds since 1970; None if it is not registered."""
        try:
            at: int = self._json("GET", f"{OWN}/readers/{quote(reader, safe='')}")["committed_at_ms"]
        except LinkRefused as refused:
            if refused.code != "reader_not_found":
                raise
            return None
        return at

    def forget(self, reader: str) -> None:
        """Keep nothing for a reader any more."""
        self._send("DELETE", f"{OWN}/readers/{quote(reader, safe='')}")

    def swap(self, replaced: Sequence[int], keys: Sequence[str], dropped: int, deadline_us: int) -> None:
        """Hand in a rewrite: new objects for old segments."""
        asked = {
            "shard": 0,
            "replaced": list(replaced),
            "keys": list(keys),
            "dropped": dropped,
            "deadline": deadline_us,
        }
        self._send("POST", f"{OWN}/swap", _body(asked))

    # -- Many streams at once ---------------------------------------------------------------------------------------

    def describe(self, streams: Sequence[str]) -> pa.Table:
        """What these streams are; those that are missing are left out."""
        asked = (streams[at : at + PAGE_STREAMS] for at in range(0, max(len(streams), 1), PAGE_STREAMS))
        return pa.concat_tables([self._table(f"{OWN}/describe", _body({"streams": list(some)})) for some in asked])

    def describe_all(self, prefix: str) -> Iterator[pa.Table]:
        """What the streams with a prefix are, by name, a page at a time."""
        after: str | None = None
        while True:
            page = self._table(f"{OWN}/describe", _body({"prefix": prefix, "after": after, "limit": PAGE_STREAMS}))
            if len(page):
                yield page
            if len(page) < PAGE_STREAMS:
                return
            after = page["stream"][-1].as_py()

    def locate(self, records: Sequence[tuple[str, int, int]]) -> list[int | None]:
        """Where records begin, each named by stream, incarnation and ordinal."""
        found: list[int | None] = self._json("POST", f"{OWN}/locate", _body({"records": records}))["offsets"]
        return found

    @contextmanager
    def scan(
        self,
        ranges: Sequence[Range],
        columns: Sequence[str] | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> Iterator[Iterator[pa.RecordBatch]]:
        """The rows of ranges, as they arrive; ScanBroken where the answer ends too early."""
        asked = {"ranges": ranges, "columns": columns, "since": since, "until": until}
        with self._open("POST", f"{OWN}/scan", _body(asked)) as response:
            yield _batches(response)

    def append(self, rows: pa.Table) -> pa.Table:
        """Append to many streams: the outcome of each row. It may be sent twice, so every row needs a producer."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        return self._table(f"{OWN}/append", sink.getvalue().to_pybytes(), ARROW)

    def publish_snapshot(self, stream: str, offset: int, data: bytes, content_type: str) -> None:
        """Publish what a stream comes to up to an offset."""
        bucket, _, name = stream.partition("/")
        path = (
            f"/ds/{quote(bucket, safe='')}/{quote(name, safe='')}/snapshot/{offsets.render(offset, offsets.Form.PLAIN)}"
        )
        self._send("PUT", path, data, content_type)

    def snapshot(self, stream: str) -> Snapshot | None:
        """The newest snapshot of a stream; None if it has none."""
        bucket, _, name = stream.partition("/")
        path = f"/ds/{quote(bucket, safe='')}/{quote(name, safe='')}/snapshot"
        for _ in range(SNAPSHOT_TRIES):
            try:
                with self._open("GET", path) as response:
                    headers = response.headers
                    return Snapshot(int(headers[SNAPSHOT_OFFSET]), response.content, headers["content-type"])
            except LinkRefused as refused:
                # The one that the server leads to may be replaced on the way.
                if refused.code not in NO_SNAPSHOT:
                    raise
        return None

    # -- How it is asked --------------------------------------------------------------------------------------------

    def _json(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        told = json.loads(self._send(method, path, body))
        if not isinstance(told, dict):
            raise LinkFailed(f"{self.settings.url}{path} is not answered by a Headwater server; check the URL.")
        return told

    def _table(self, path: str, body: bytes, content_type: str = "application/json") -> pa.Table:
        answer = self._send("POST", path, body, content_type)
        return pa.ipc.open_stream(pa.BufferReader(answer)).read_all()

    def _send(self, method: str, path: str, body: bytes | None = None, content_type: str = "application/json") -> bytes:
        with self._open(method, path, body, content_type) as response:
            content: bytes = response.content
            return content

    @contextmanager
    def _open(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "application/json"
    ) -> Iterator[httpx2.Response]:
        """An answer that is a success; refusals are raised. Nothing is asked again once an answer is being read."""
        what = f"{method} {self.settings.url}{path}"
        whole = path != f"{OWN}/scan"
        deadline, failures = time.monotonic() + self.settings.timeout_seconds, 0
        while True:
            pause = min(self.settings.retry_interval_seconds * 2**failures, PAUSE_SECONDS_MAX)
            request = self._client.build_request(method, path, content=body, headers=self._headers(content_type))
            try:
                response = self._client.send(request, stream=True)
                if whole or not response.is_success:
                    response.read()
            except httpx2.HTTPError as error:
                if failures == self.settings.retries:
                    raise LinkFailed(f"{what} got no answer: {str(error) or type(error).__name__}.") from error
                failures += 1
                time.sleep(pause)
                continue
            if response.is_success:
                try:
                    yield response
                finally:
                    response.close()
                return
            next_offset = offsets.parse(response.headers.get(NEXT_OFFSET, ""))
            refused = LinkRefused(what, response.status_code, _problem(response), next_offset)
            waits = response.status_code == BUSY and time.monotonic() < deadline
            if response.status_code not in RETRIED or (failures == self.settings.retries and not waits):
                raise refused
            failures += not waits
            time.sleep(_asked_pause(response, pause))

    def _headers(self, content_type: str) -> dict[str, str]:
        headers = {"Content-Type": content_type}
        token = self.settings.token
        if self.settings.token_file is not None:
            # Read each time: whoever renews a token writes the file anew.
            try:
                token = Path(self.settings.token_file).read_text().strip()
            except OSError as error:
                raise LinkFailed(f"The token cannot be read: {error}.") from error
        return headers if token is None else {**headers, "Authorization": f"Bearer {token}"}


class _Incoming:
    """The body of an answer as a file that Arrow reads from."""

    closed = False

    def __init__(self, response: httpx2.Response) -> None:
        self._pieces = response.iter_raw()
        self._rest = memoryview(b"")

    def read(self, size: int = -1) -> bytes:
        found: list[memoryview] = []
        while size:
            if not self._rest:
                piece = next(self._pieces, None)
                if piece is None:
                    break
                self._rest = memoryview(piece)
            part = self._rest if size < 0 else self._rest[:size]
            self._rest = self._rest[len(part) :]
            found.append(part)
            size -= len(part) if size > 0 else 0
        return b"".join(found)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


def _batches(response: httpx2.Response) -> Iterator[pa.RecordBatch]:
    incoming = _Incoming(response)
    try:
        yield from pa.ipc.open_stream(pa.PythonFile(incoming, mode="r"))
        # To Arrow a stream may end anywhere between two batches; to HTTP it ends with its last chunk.
        incoming.read()
    except (httpx2.HTTPError, pa.ArrowException, OSError) as error:
        raise ScanBroken(f"The answer of {response.request.url} was cut short: {error}.") from error


def _body(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _problem(response: httpx2.Response) -> dict[str, Any]:
    try:
        told = response.json()
    except ValueError:
        told = None
    return told if isinstance(told, dict) else {"detail": response.text[:DETAIL_CHARACTERS_MAX]}


def _asked_pause(response: httpx2.Response, pause_seconds: float) -> float:
    try:
        asked = float(response.headers.get("retry-after", "0"))
    except ValueError:
        asked = 0.0
    # Those who were told the same do not all come back at the same instant.
    return min(max(asked, pause_seconds), PAUSE_SECONDS_MAX) * uniform(1.0, 1.5)


def tls_context(settings: LinkSettings) -> ssl.SSLContext | bool:
    """Whom to believe, and who we are, on a connection with TLS."""
    if settings.url.startswith("http://"):
        # Reading the certificates of this machine takes a tenth of a second, and every task makes a link.
        return False
    if settings.tls_ca is None and settings.tls_cert is None:
        return True
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca)
        if settings.tls_cert is not None:
            context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:
        files = ", ".join(filter(None, (settings.tls_ca, settings.tls_cert, settings.tls_key)))
        raise LinkFailed(f"The certificates ({files}) cannot be read: {error}.") from error
    return context
