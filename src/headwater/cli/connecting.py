"""Which server a command speaks to, and what all such commands have in common."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any
from urllib.parse import quote, urlsplit

import click
import httpx2

from headwater.cli.failures import fail, sentence
from headwater.client import Bucket, Client, ClientError, RequestRefused, RetryPolicy, Stream, TransportFailed
from headwater.client.errors import refusal
from headwater.client.wire import Request, Response
from headwater.protocol import offsets

DEFAULT_URL = "http://127.0.0.1:4437"
FLAT = "/v1/stream"
DEFAULT_BUCKET = "_default"
RETRY = RetryPolicy(attempts_max=4)
"""Somebody waits at a terminal: a second of patience, not ten."""


class Server:
    """A server by its URL. Below a URL with a path are the streams themselves, as of any server of the protocol."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self.url = url.rstrip("/")
        self.headers = headers
        self.has_path = urlsplit(self.url).path != ""
        self.streams_url = self.url if self.has_path else self.url + FLAT
        self.root_url = self.streams_url.removesuffix(FLAT)
        self.client = Client(self.streams_url, headers=headers, retry=RETRY)
        self._root: Client | None = None

    def stream(self, name: str) -> Stream:
        """The stream `bucket/stream`, or `stream` of the bucket that needs no name."""
        _check_name(name)
        return self.client.stream(name.lstrip("/"))

    def extended(self, name: str) -> Stream:
        """The same stream where it has snapshots, batches and a bootstrap: below its bucket."""
        _check_name(name)
        bucket, slash, stream = name.lstrip("/").partition("/")
        if not slash:
            bucket, stream = DEFAULT_BUCKET, bucket
        return self.client.stream(f"{self.root_url}/ds/{quote(bucket, safe='')}/{quote(stream, safe='')}")

    def bucket(self, name: str) -> Bucket:
        _check_name(name)
        self._root = self._root or Client(self.root_url, headers=self.headers, retry=RETRY)
        return self._root.bucket(name)

    def send(
        self, method: str, url: str, params: dict[str, str] | None = None, timeout_seconds: float = 60.0
    ) -> Response:
        """A request that the client library has no name for; all but success is raised as the library would."""
        request = Request(method, url, params=params or {})
        try:
            found = httpx2.request(method, url, params=params, headers=self.headers, timeout=timeout_seconds)
        except httpx2.HTTPError as error:
            raise TransportFailed(str(error), sent=not isinstance(error, httpx2.ConnectError)) from error
        response = Response(found.status_code, {key.lower(): one for key, one in found.headers.items()}, found.content)
        if not response.ok:
            raise refusal(request, response)
        return response

    def ask(self, method: str, path: str, timeout_seconds: float = 60.0) -> dict[str, Any]:
        """What the server says of itself."""
        try:
            told = json.loads(self.send(method, self.root_url + path, timeout_seconds=timeout_seconds).body)
        except RequestRefused as error:
            if error.code is not None:
                raise
            told = None
        except ValueError:
            told = None
        if not isinstance(told, dict):
            fail(f"{self.root_url} is no Headwater server; check --url.")
        return told

    def close(self) -> None:
        self.client.close()
        if self._root is not None:
            self._root.close()


def as_flat(offset: str | None) -> str | None:
    """An offset of any surface as the flat one prints it, so that all commands print them alike.

    >>> as_flat("00000000000000000042"), as_flat("of-another-server")
    ('0000000000000000_0000000000000042', 'of-another-server')
    """
    position = None if offset is None else offsets.parse(offset)
    return offset if position is None else offsets.render(position, offsets.Form.FLAT)


def _check_url(context: click.Context, parameter: click.Parameter, url: str) -> str:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid or not url.isascii() or not url.isprintable():
        raise click.BadParameter(f"{url!r} is no URL of a server; it should read like {DEFAULT_URL}.")
    return url


def _check_name(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise click.UsageError(f"{name!r} is not UTF-8, and names are.") from None


def _split_headers(context: click.Context, parameter: click.Parameter, lines: tuple[str, ...]) -> dict[str, str]:
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or not (line.isascii() and line.isprintable()):
            raise click.BadParameter(f"{line!r} is no header; it should read 'Name: value'.")
        headers[name.strip()] = value.strip()
    return headers


URL = click.option(
    "--url",
    default=DEFAULT_URL,
    envvar="HEADWATER_URL",
    show_default=True,
    show_envvar=True,
    callback=_check_url,
    help="Where the server is; with a path, where its streams are.",
)
HEADER = click.option(
    "--header", "headers", multiple=True, callback=_split_headers, help="'Name: value' for every request; repeatable."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """A command that speaks to a server, whose every failure is one sentence."""

    @URL
    @HEADER
    @wraps(command)
    def run(url: str, headers: dict[str, str], **options: Any) -> None:
        with ExitStack() as stack:
            server = Server(url, headers)
            stack.callback(server.close)
            try:
                command(server, **options)
            except ClientError as error:
                fail(sentence(error, server.url, str(options.get("name") or options.get("bucket") or "NAME")))

    return run
