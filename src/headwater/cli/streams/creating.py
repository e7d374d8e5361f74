"""`headwater create`."""

import json
import sys
from dataclasses import asdict
from urllib.parse import urlsplit

import click

from headwater.cli.commands import JSON, as_content_type, as_whole_seconds, verb
from headwater.cli.connecting import Server, connected
from headwater.cli.failures import fail
from headwater.cli.printing import say, size
from headwater.cli.streams.completing import NAME
from headwater.cli.streams.inputs import PIECE_BYTES
from headwater.client import Created, Fork, NotFound
from headwater.protocol.limits import APPEND_BYTES_MAX


@verb(
    "headwater create demo/log --type text/plain",
    "headwater create demo/events '{\"order\": 1}' --type application/json --ttl 24h",
    "headwater create demo/branch --fork-from demo/log",
)
@NAME
@click.argument("data", required=False)
@click.option(
    "--type",
    "content_type",
    metavar="TYPE",
    callback=as_content_type,
    help="Content type of its messages.  [default: application/octet-stream]",
)
@click.option(
    "--ttl",
    metavar="DURATION",
    callback=as_whole_seconds,
    help="Delete it once it has been unused for this long.",
)
@click.option("--expires-at", metavar="TIME", help="Delete it at this time, such as 2030-01-31T12:00:00Z.")
@click.option("--closed", is_flag=True, help="Create it closed: nothing can be appended.")
@click.option("--fork-from", metavar="NAME", help="Start with the bytes of this stream, without copying them.")
@click.option("--offset", help="Share the other stream only up to this offset; needs --fork-from.")
@JSON
@connected
def create(
    server: Server,
    *,
    name: str,
    data: str | None,
    content_type: str | None,
    ttl: int | None,
    expires_at: str | None,
    closed: bool,
    fork_from: str | None,
    offset: str | None,
    as_json: bool,
) -> None:
    """Create a stream, with DATA as its first message if given.

    If DATA is -, the first message is read from standard input. Repeating the command with the same options succeeds.
    """
    if ttl is not None and expires_at is not None:
        raise click.UsageError("--ttl and --expires-at exclude each other; choose one.")
    if offset is not None and fork_from is None:
        raise click.UsageError("--offset says how much of another stream is shared; name that stream with --fork-from.")
    fork = None if fork_from is None else Fork(urlsplit(server.stream(fork_from).url).path, offset)
    try:
        created = server.stream(name).create(
            content_type,
            body=None if data is None else _body(data),
            ttl_seconds=ttl,
            expires_at=expires_at,
            closed=closed,
            fork=fork,
        )
    except NotFound as error:
        if fork_from is None:
            raise
        # Only the source can be missing: the stream itself is about to be created.
        missing = f"There is no stream {fork_from} at {server.url} to fork from"
        fail(f"{missing}; list streams with `headwater ls`.", error.code or "stream_not_found", error.status)
    _print(created, name, as_json)


def _print(created: Created, name: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"name": name, **asdict(created)}))
    elif created.new:
        say(f"Created {name}; the next message goes to offset {created.next_offset}.")
    else:
        say(f"{name} exists already with these options.")


def _body(data: str) -> bytes:
    if data != "-":
        return data.encode(errors="surrogateescape")
    body = sys.stdin.buffer.read(APPEND_BYTES_MAX + 1)
    if len(body) > APPEND_BYTES_MAX:
        fail(
            f"The input is longer than the {size(APPEND_BYTES_MAX)} that fit into one request; create the stream "
            f"without data, then use `headwater append`, which sends {size(PIECE_BYTES)} at a time."
        )
    return body
