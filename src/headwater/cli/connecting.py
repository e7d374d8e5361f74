"""The server that a command talks to, and what all such commands have in common."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import httpx2

from headwater.cli.commands import as_seconds
from headwater.cli.contexts.choosing import Destination, choose
from headwater.cli.contexts.store import DEFAULT_URL, problem_of
from headwater.cli.failures import fail, fail_request
from headwater.client import (
    Admin,
    Bucket,
    Client,
    ClientError,
    NotFound,
    ProtocolViolation,
    RetryPolicy,
    Stream,
)
from headwater.client.blocking.carrier import Carrier
from headwater.client.operations import ask
from headwater.client.settings import ClientSettings
from headwater.client.wire import Request, Response
from headwater.protocol import offsets
from headwater.protocol.names import DEFAULT_BUCKET
from headwater.units import render_duration

ANSWER_SECONDS_MAX = 60.0
COMPLETION_SECONDS_MAX = 1.0
COMPLETED_NAMES_MAX = 100
RETRY_SECONDS = 1.0
"""Long enough for a server that is starting, short enough for a mistyped URL."""


class Server:
    """A server, or the nodes of a cluster. A path in the URL is that of the streams, on any server."""

    def __init__(self, destination: Destination, retry_seconds: float = RETRY_SECONDS) -> None:
        self.destination, self.url = destination, destination.url
        settings = ClientSettings(
            self.url, destination.headers, token=destination.credential, timeout_seconds=ANSWER_SECONDS_MAX
        )
        self.streams_url, self.root_url = settings.streams_url, settings.root_url
        self._retry = retry_policy(retry_seconds)
        self._http = httpx2.Client(verify=destination.verification)
        self._carrier = Carrier(settings, self._http)
        self.client = Client(
            self.url,
            headers=destination.headers,
            token=destination.credential,
            retry=self._retry,
            # A reader that fails for longer is resumed by `tail`, which says so.
            follow_retry=retry_policy(1.0),
            http=self._http,
        )

    def stream(self, name: str, incarnation: str | None = None) -> Stream:
        """The stream `bucket/stream`, or `stream` of the default bucket."""
        _check_name(name)
        return self.client.stream(name.lstrip("/"), incarnation=incarnation)

    def extended(self, name: str) -> Stream:
        """The same stream at its bucket's URL, which has snapshots, batches and a bootstrap."""
        _check_name(name)
        bucket, slash, stream = name.lstrip("/").partition("/")
        if not slash:
            bucket, stream = DEFAULT_BUCKET, bucket
        return self.client.stream(f"{self.root_url}/ds/{quote(bucket, safe='')}/{quote(stream, safe='')}")

    def bucket(self, name: str) -> Bucket:
        _check_name(name)
        return self.client.bucket(name)

    def read(self, url: str, params: dict[str, str]) -> Response:
        """Send a GET that the client library has no method for; raise refusals as the library does."""
        return self._carrier.run(ask(Request("GET", url, params=params), self._retry)).response

    @contextmanager
    def admin(self, timeout_seconds: float = 60.0) -> Iterator[Admin]:
        """Open the administrative surface, which only a Headwater server has."""
        try:
            with Admin(
                self.url,
                headers=self.destination.headers,
                token=self.destination.credential,
                retry=self._retry,
                timeout_seconds=timeout_seconds,
                http=self._http,
            ) as opened:
                yield opened
        except (ProtocolViolation, NotFound) as error:
            if isinstance(error, NotFound) and error.code == "not_found":
                missing = f"{self.root_url} does not do this for its clients"
                fail(f"{missing}; name the server's listener for operators (--ops) by --url.", error.code, error.status)
            if isinstance(error, NotFound) and error.code is not None:
                raise
            fail(f"{self.root_url} is not a Headwater server; check --url.", "protocol_violation")

    def close(self) -> None:
        self.client.close()
        self._http.close()


def retry_policy(seconds: float) -> RetryPolicy:
    """Return a policy whose delays add up to at most this many seconds.

    >>> retry_policy(0).attempts_max, retry_policy(1).attempts_max, retry_policy(60).attempts_max
    (1, 4, 12)
    """
    policy = RetryPolicy(attempts_max=1, retry_after_seconds_max=seconds)
    delay, total, attempts = policy.first_delay_seconds, 0.0, 1
    while total + delay <= seconds:
        total, attempts = total + delay, attempts + 1
        delay = min(delay * policy.multiplier, policy.delay_seconds_max)
    return RetryPolicy(attempts_max=attempts, connect_attempts_max=attempts, retry_after_seconds_max=seconds)


def as_flat(offset: str | None) -> str | None:
    """Convert an offset of any surface to the flat form, so that all commands print offsets alike.

    >>> as_flat("of-another-server"), as_flat(as_flat("00000000000000000042")) == as_flat("00000000000000000042")
    ('of-another-server', True)
    """
    position = None if offset is None else offsets.parse(offset)
    return offset if position is None else offsets.render(position, offsets.Form.FLAT)


def check_url(context: click.Context, parameter: click.Parameter, url: str | None) -> str | None:
    """Validate the URL of a server, or the comma-separated URLs of a cluster."""
    if url is not None and (problem := problem_of(url)):
        raise click.BadParameter(f"{problem}.")
    return url


def _check_name(name: str) -> None:
    # HTTP clients resolve such segments, so the request would be about another URL: a bucket, for example.
    if not {".", ".."}.isdisjoint(name.split("/")):
        raise click.UsageError(f"{name!r} is not a valid name: no part between slashes may be '.' or '..'.")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise click.UsageError(f"{name!r} is not UTF-8, as names must be.") from None


def _split_headers(context: click.Context, parameter: click.Parameter, lines: tuple[str, ...]) -> dict[str, str]:
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or not (line.isascii() and line.isprintable()):
            raise click.BadParameter(f"{line!r} is not a header; write it like 'Name: value'.")
        headers[name.strip()] = value.strip()
    return headers


URL = click.option(
    "--url",
    envvar="HEADWATER_URL",
    show_envvar=True,
    callback=check_url,
    help="URL of the server, or comma-separated URLs of a cluster's nodes. If it has a path, the streams are below it."
    f"  [default: that of the context, or {DEFAULT_URL}]",
)
CONTEXT = click.option(
    "--context",
    "context_name",
    envvar="HEADWATER_CONTEXT",
    show_envvar=True,
    help="A server that you have logged in to, if --url does not name one.  [default: the current one]",
)
TOKEN_FILE = click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File with the token, read for each request.  [default: HEADWATER_TOKEN_FILE, or the context's]",
)
HEADER = click.option(
    "--header", "headers", multiple=True, callback=_split_headers, help="'Name: value' for every request; repeatable."
)
RETRY = click.option(
    "--retry-seconds",
    default=render_duration(RETRY_SECONDS),
    metavar="DURATION",
    show_default=True,
    callback=as_seconds,
    help="How long to retry while the server does not answer or is busy.",
)


def complete_name(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a stream; return nothing after a failure, because an error would disturb the typing."""
    given = context.params
    bucket, slash, prefix = incomplete.partition("/")
    if not slash:
        bucket, prefix = DEFAULT_BUCKET, incomplete
    try:
        url = given.get("url") or os.environ.get("HEADWATER_URL") or None
        at = choose(url, given.get("context_name"), given.get("token_file"), given.get("headers") or {})
        with (
            httpx2.Client(verify=at.verification) as http,
            Client(
                at.url,
                headers=at.headers,
                token=at.credential,
                retry=RetryPolicy(attempts_max=1),
                timeout_seconds=COMPLETION_SECONDS_MAX,
                http=http,
            ) as client,
            client.bucket(bucket).streams(prefix=prefix, page_streams_max=COMPLETED_NAMES_MAX) as streams,
        ):
            names = [one.name for one in islice(streams, COMPLETED_NAMES_MAX)]
    except (ClientError, ValueError, click.ClickException):
        return []
    return [f"{bucket}/{name}" if slash else name for name in names]


NAME = click.argument("name", shell_complete=complete_name)


def destined(command: Callable[..., None]) -> Callable[..., None]:
    """Pass the server that the user chose to a command, as `destination`."""

    @URL
    @CONTEXT
    @TOKEN_FILE
    @HEADER
    @wraps(command)
    def run(
        url: str | None, context_name: str | None, token_file: Path | None, headers: dict[str, str], **options: Any
    ) -> None:
        command(destination=choose(url, context_name, token_file, headers), **options)

    return run


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Connect a command to its server; a failed request ends the command with one sentence."""
    return RETRY(connected_once(command))


def connected_once(command: Callable[..., None]) -> Callable[..., None]:
    """Connect a command that does not retry."""

    @destined
    @wraps(command)
    def run(destination: Destination, retry_seconds: float = RETRY_SECONDS, **options: Any) -> None:
        with closing(Server(destination, retry_seconds)) as server:
            try:
                command(server, **options)
            except ClientError as error:
                fail_request(error, server.url, str(options.get("name") or options.get("bucket") or "NAME"))

    return run
