"""Spark's link to a server: the client, with settings that can be sent to executors, and with pyarrow tables.

Settings are a value that Spark sends to its executors; each process makes its own link from them. A link is for one
thread. Its errors can be pickled too, because Spark passes them from one process to another.
"""

import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import randrange
from typing import Any, NamedTuple

import httpx2
import pyarrow as pa

from headwater.client import Admin, Client, RetryPolicy, ScanRange, Stream
from headwater.client.settings import bearer
from headwater.client.urls import checked_urls, join_urls, move_credentials, split_urls
from headwater.protocol import headers, offsets
from headwater.protocol.refusals import Code
from headwater.secret_files import may_be_secret
from headwater.spark.failures import LinkFailed, LinkRefused, ScanBroken, translated
from headwater.spark.options.values import OptionRefused, OptionValues, or_default

PAUSE_SECONDS_MAX = 10.0
"""The longest pause, however long a server asks for: the settings limit the number of tries."""
PAUSE_SECONDS_MIN = 0.001
PAGE_STREAMS = 50_000
"""Streams described per request: a few megabytes of answer."""
SNAPSHOT_TRIES = 3
NO_SNAPSHOT = frozenset({"not_found", "snapshot_not_found", "stream_not_found", "stream_gone", "invalid_name"})
"""Refusals that mean that a stream has no snapshot; some names have no URL, so none was ever published there."""


class LinkSettings(NamedTuple):
    """How to reach a server; small, and safe to send to executors."""

    url: str
    """Those of the nodes of a cluster have commas between them."""
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

    def __repr__(self) -> str:
        return f"LinkSettings({join_urls([move_credentials(url, {})[0] for url in split_urls(self.url)])!r})"

    @property
    def urls(self) -> list[str]:
        """The URLs in an order that begins with any of them, so that many tasks use all nodes of a cluster."""
        urls = [url.rstrip("/") for url in split_urls(self.url)]
        first = randrange(len(urls))
        return urls[first:] + urls[:first]

    @property
    def retry(self) -> RetryPolicy:
        """The client's retry policy; each of many tasks waits for its turn, so 503 does not count at first."""
        interval = max(self.retry_interval_seconds, PAUSE_SECONDS_MIN)
        return RetryPolicy(
            attempts_max=self.retries + 1,
            connect_attempts_max=self.retries + 1,
            first_delay_seconds=interval,
            delay_seconds_max=max(interval, PAUSE_SECONDS_MAX),
            retry_after_seconds_max=PAUSE_SECONDS_MAX,
            busy_seconds=self.timeout_seconds,
        )

    @property
    def client_headers(self) -> dict[str, str]:
        """The headers of every request; a token replaces a credential among them."""
        token = self.credential is not None
        return {name: value for name, value in self.headers if not token or name.lower() != headers.AUTHORIZATION.lower}

    @property
    def credential(self) -> str | Callable[[], str] | None:
        """The token. Its file is read for each request, so that it can be renewed."""
        return self.token if self.token_file is None else self._of_file

    def _of_file(self) -> str:
        assert self.token_file is not None
        try:
            token = Path(self.token_file).read_text()
            bearer(token)
        except (OSError, ValueError) as error:
            if may_be_secret(self.token_file):
                message = "The option tokenFile names a file that does not exist; give its path, not the token itself."
                raise LinkFailed(message) from None
            # Some of these errors quote what they read.
            reason = error.strerror if isinstance(error, OSError) else "it is not one word of printable ASCII"
            raise LinkFailed(f"The token in {self.token_file} cannot be read: {reason}.") from None
        return token


class Log(NamedTuple):
    """A server's log: its id, how far it is, and its lake."""

    id: str
    position: int
    has_lake: bool
    lake_url: str | None
    """None without a lake, and for those who may not read all of it."""


class Snapshot(NamedTuple):
    """The state of a stream at an offset."""

    offset: int
    data: bytes
    content_type: str


class Link:
    """A connection to one server or cluster."""

    def __init__(self, settings: LinkSettings) -> None:
        self.settings = settings
        self._urls = settings.urls
        self._http = httpx2.Client(timeout=settings.timeout_seconds, verify=verification(settings))
        self._expected: str | None = None
        self._admin = self._new_admin({})
        self._client = Client(
            [f"{url}/ds" for url in settings.urls],
            headers=settings.client_headers,
            token=settings.credential,
            retry=settings.retry,
            timeout_seconds=settings.timeout_seconds,
            http=self._http,
        )

    def _new_admin(self, more: Mapping[str, str]) -> Admin:
        settings = self.settings
        return Admin(
            self._urls,
            headers={**settings.client_headers, **more},
            token=settings.credential,
            retry=settings.retry,
            timeout_seconds=settings.timeout_seconds,
            http=self._http,
        )

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- The server and its lake ---------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """The server's version, health and usage."""
        with translated():
            return self._admin.status()

    def log(self) -> Log:
        """The server's log, as far as a client with any `pipeline` right may know it."""
        with translated():
            found = self._admin.describe_log()
        lake = found["lake"]
        return Log(found["log_id"], max(found["positions"].values()), lake is not None, (lake or {}).get("url"))

    def log_id(self) -> str:
        """The id of the server's log, which positions and incarnations belong to."""
        return self.log().id

    def expect_log(self, log_id: str) -> None:
        """From now on, have requests about the lake and about many streams refused by a server with another log."""
        if log_id != self._expected:
            self._expected, self._admin = log_id, self._new_admin({headers.STREAM_LOG_ID.name: log_id})

    def flush(self) -> dict[str, int]:
        """Write everything acknowledged so far to the lake, and return the position it reaches on each shard."""
        with translated():
            return self._admin.flush()

    def register(self, consumer: str, positions: Mapping[str, int], silence_seconds: int | None = None) -> None:
        """Record how far a consumer of the lake has read, and how long it may be silent."""
        with translated():
            self._admin.register_consumer(consumer, positions, silence_seconds=silence_seconds)

    def renew(self, consumer: str, positions: Mapping[str, int], silence_seconds: int | None = None) -> bool:
        """Record how far a consumer has read, unless the server says that it has lapsed; whether it has not."""
        return _unless_lapsed(
            lambda: self._admin.register_consumer(consumer, positions, renew=True, silence_seconds=silence_seconds)
        )

    def lease(self, lease: str, seconds: int) -> None:
        """Have the server keep the objects that the lake has now."""
        with translated():
            self._admin.lease(lease, seconds)

    def renew_lease(self, lease: str, seconds: int) -> bool:
        """Renew a lease; False if the server says that it has lapsed."""
        return _unless_lapsed(lambda: self._admin.lease(lease, seconds, renew=True))

    def consumers(self) -> dict[str, dict[str, int]]:
        """How far each registered consumer has read whose rows the lake keeps."""
        with translated():
            known = self._admin.consumers()
        return {one.name: dict(one.positions) for one in known if not one.lapsed and not one.lease}

    def forget(self, consumer: str) -> None:
        """Remove a consumer; the lake no longer keeps anything for it."""
        with translated():
            self._admin.forget_consumer(consumer)

    def swap(self, replaced: Sequence[int], keys: Sequence[str], dropped: int, deadline_us: int) -> None:
        """Replace segments of the lake with rewritten ones."""
        with translated():
            self._admin.swap(replaced, keys, dropped, deadline_us)

    # -- Many streams at once ------------------------------------------------------------------------------------------

    def describe(self, streams: Sequence[str]) -> pa.Table:
        """One row for each of these streams; missing streams are left out."""
        pages = (streams[at : at + PAGE_STREAMS] for at in range(0, max(len(streams), 1), PAGE_STREAMS))
        with translated():
            return pa.concat_tables([_table(self._admin.describe(page)) for page in pages])

    def describe_all(self, prefix: str) -> Iterator[pa.Table]:
        """One row for each stream with a prefix, sorted by name, a page at a time."""
        after: str | None = None
        while True:
            with translated():
                page = _table(self._admin.describe_prefix(prefix, after=after, page_streams_max=PAGE_STREAMS))
            if len(page):
                yield page
            if len(page) < PAGE_STREAMS:
                return
            after = page["stream"][-1].as_py()

    def locate(self, records: Sequence[tuple[str, int, int]]) -> list[int | None]:
        """The offset at which each record begins; a record is named by stream, incarnation and ordinal."""
        with translated():
            return self._admin.locate(records)

    @contextmanager
    def scan(
        self,
        ranges: Sequence[ScanRange],
        columns: Sequence[str] | None = None,
        since: int | None = None,
        until: int | None = None,
    ) -> Iterator[Iterator[pa.RecordBatch]]:
        """The rows of ranges, as they arrive; ScanBroken where the response ends too early."""
        with self._admin.scan(ranges, columns=columns, since_us=since, until_us=until) as pieces:
            # Refusals are raised here, before any row is asked for.
            with translated():
                first = next(pieces, b"")
            yield _batches(Incoming(first, pieces))

    def append(self, rows: pa.Table) -> pa.Table:
        """Append to many streams, and return the outcome of each row; every row needs a producer."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        with translated():
            return _table(self._admin.append(sink.getvalue().to_pybytes()))

    def finish(self, producer: str) -> None:
        """Fence a producer off from all streams, which then need not remember it."""
        with translated():
            self._admin.finish_producer(producer)

    # -- Snapshots -----------------------------------------------------------------------------------------------------

    def publish_snapshot(self, stream: str, offset: int, data: bytes, content_type: str) -> None:
        """Publish the state of a stream at an offset."""
        at = offsets.render(offset, offsets.Form.PLAIN)
        with translated():
            self.stream(stream).publish_snapshot(data, offset=at, content_type=content_type)

    def snapshot(self, stream: str) -> Snapshot | None:
        """The latest snapshot of a stream; None if it has none."""
        for _ in range(SNAPSHOT_TRIES):
            try:
                with translated():
                    found = self.stream(stream).snapshot()
                return Snapshot(int(found.offset), found.data, found.content_type)
            except LinkRefused as refused:
                # The snapshot that the server redirects to may have been replaced in the meantime.
                if refused.code not in NO_SNAPSHOT:
                    raise
        return None

    def stream(self, path: str, incarnation: str | None = None) -> Stream:
        """A single stream, or one life of it; its errors are the client's."""
        bucket, _, name = path.partition("/")
        return self._client.bucket(bucket).stream(name, incarnation=incarnation)


def _unless_lapsed(renew: Callable[[], None]) -> bool:
    try:
        with translated():
            renew()
    except LinkRefused as refused:
        if refused.code != Code.CONSUMER_LAPSED:
            raise
        return False
    return True


class Incoming:
    """A response as a file that Arrow reads from."""

    closed = False

    def __init__(self, first: bytes, pieces: Iterator[bytes]) -> None:
        self._rest = memoryview(first)
        self._pieces = pieces

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


def _batches(incoming: Incoming) -> Iterator[pa.RecordBatch]:
    try:
        with translated():
            yield from pa.ipc.open_stream(pa.PythonFile(incoming, mode="r"))
            # To Arrow a stream may end between any two batches; to HTTP it ends with its last chunk.
            incoming.read()
    except (pa.ArrowException, OSError) as error:
        raise ScanBroken(f"The rows of the response were cut short: {error}.") from error


def _table(answer: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.BufferReader(answer)).read_all()


def verification(settings: LinkSettings) -> ssl.SSLContext | bool:
    """The certificates to trust and to present, in the form that the HTTP client takes."""
    if settings.url.startswith("http://"):
        # Reading the certificates of this machine takes a tenth of a second, and every task makes a connection.
        return False
    files = settings.tls_ca, settings.tls_cert, settings.tls_key
    if files == (None, None, None):
        return True
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca)
        if settings.tls_cert is not None:
            context.load_cert_chain(settings.tls_cert, settings.tls_key)
        return context
    except OSError as error:
        if settings.tls_key is not None and may_be_secret(settings.tls_key):
            message = "The option tls.key names a file that does not exist; give its path, not the key itself."
            raise LinkFailed(message) from None
        named = ", ".join(filter(None, files))
        raise LinkFailed(f"The certificates ({named}) cannot be read: {error}.") from error


# -- Options that the source and the sink share ------------------------------------------------------------------------


_DEFAULTS = LinkSettings("")


def parse_link(options: Mapping[str, str] | OptionValues) -> LinkSettings:
    """The server's URL, credentials and retry settings."""
    values = options if isinstance(options, OptionValues) else OptionValues(options)
    url = values.text("url")
    if url is None or not url.startswith(("http://", "https://")):
        raise OptionRefused(f"Give the option url as http://host:port or https://host:port, not {url!r}.")
    token, token_file = values.text("token"), values.text("tokenFile")
    if token is not None and token_file is not None:
        raise OptionRefused("The options token and tokenFile exclude each other; choose one.")
    if token is not None:
        try:
            bearer(token)
        except ValueError:
            raise OptionRefused("The option token must be one word of printable ASCII, without 'Bearer'.") from None
    cert, key = values.text("tls.cert"), values.text("tls.key")
    if key is not None and cert is None:
        raise OptionRefused("The option tls.key needs tls.cert, the certificate for the key.")
    try:
        urls, sent = checked_urls(url, values.with_prefix("header."))
    except ValueError as error:
        raise OptionRefused(f"The option url is wrong: {error}") from None
    retry_ms, timeout_ms = values.number("retryIntervalMs"), values.number("requestTimeoutMs", 1)
    return LinkSettings(
        url=join_urls([one.rstrip("/") for one in urls]),
        token=token,
        token_file=token_file,
        headers=tuple(sorted(sent.items())),
        tls_ca=values.text("tls.ca"),
        tls_cert=cert,
        tls_key=key,
        retries=or_default(values.number("retries"), _DEFAULTS.retries),
        retry_interval_seconds=_DEFAULTS.retry_interval_seconds if retry_ms is None else retry_ms / 1000,
        timeout_seconds=_DEFAULTS.timeout_seconds if timeout_ms is None else timeout_ms / 1000,
    )
