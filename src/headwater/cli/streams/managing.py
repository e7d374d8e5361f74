"""`headwater create`, `close`, `rm`, `head` and `ls`: the life of a stream."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from urllib.parse import urlsplit

import click

from headwater.cli.connecting import DEFAULT_BUCKET, JSON, Server, connected
from headwater.cli.failures import fail
from headwater.cli.printing import columns, json_list, moment, say, size
from headwater.cli.streams.completing import NAME
from headwater.cli.streams.inputs import PIECE_BYTES
from headwater.client import Fork, NotFound, StreamInfo
from headwater.client.values import ListedStream
from headwater.protocol import offsets
from headwater.protocol.limits import APPEND_BYTES_MAX


@click.command()
@NAME
@click.argument("data", required=False)
@click.option("--type", "content_type", help="Content type of its messages.  [default: application/octet-stream]")
@click.option("--ttl", type=click.IntRange(min=0), help="Seconds that it lives after its last use.")
@click.option("--expires-at", help="When it ends, as 2030-01-31T12:00:00Z.")
@click.option("--closed", is_flag=True, help="Nothing can be added afterwards.")
@click.option("--fork-from", metavar="NAME", help="Begin with the bytes of this stream.")
@click.option("--offset", help="Share the other stream only up to this offset; goes with --fork-from.")
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
    """Make a stream; DATA is its first message.

    With - as DATA, that is what is piped in.
    """
    if ttl is not None and expires_at is not None:
        raise click.UsageError("--ttl and --expires-at are two ways to end a stream; choose one.")
    if offset is not None and fork_from is None:
        raise click.UsageError("--offset says how much of another stream is shared; name that with --fork-from.")
    fork = None if fork_from is None else Fork(urlsplit(server.stream(fork_from).url).path, offset)
    created = server.stream(name).create(
        content_type,
        body=None if data is None else _body(data),
        ttl_seconds=ttl,
        expires_at=expires_at,
        closed=closed,
        fork=fork,
    )
    if as_json:
        click.echo(json.dumps({"name": name, **asdict(created)}))
    elif created.new:
        say(f"Created {name}; it goes on at {created.next_offset}.")
    else:
        say(f"{name} was there already, just as asked for.")


def _body(data: str) -> bytes:
    if data != "-":
        return data.encode(errors="surrogateescape")
    body = sys.stdin.buffer.read(APPEND_BYTES_MAX + 1)
    if len(body) > APPEND_BYTES_MAX:
        pieces = f"create the stream without data, then append, which takes {size(PIECE_BYTES)} at a time"
        fail(f"The input is longer than {size(APPEND_BYTES_MAX)}, more than one request may carry; {pieces}.")
    return body


@click.command()
@NAME
@JSON
@connected
def close(server: Server, name: str, as_json: bool) -> None:
    """Close a stream: nothing can be added any more."""
    done = server.stream(name).close_stream()
    if as_json:
        click.echo(json.dumps({"name": name, "closed": True, "next_offset": done.next_offset}))
    else:
        say(f"Closed {name} at {done.next_offset}.")


@click.command()
@NAME
@JSON
@connected
def rm(server: Server, name: str, as_json: bool) -> None:
    """Delete a stream."""
    server.stream(name).delete()
    if as_json:
        click.echo(json.dumps({"name": name, "deleted": True}))
    else:
        say(f"Deleted {name}.")


@click.command()
@NAME
@JSON
@connected
def head(server: Server, name: str, as_json: bool) -> None:
    """Say what a stream is and where it ends."""
    facts = _facts(server.stream(name).head())
    if as_json:
        click.echo(json.dumps({"name": name, **facts}))
        return
    rows = [("name", name), *((key.replace("_", " "), _told(value)) for key, value in facts.items())]
    columns(("", ""), rows, (False, False), head=False)


def _facts(found: StreamInfo) -> dict[str, object]:
    facts = {key: value for key, value in asdict(found).items() if key != "headers"}
    position = offsets.parse(found.next_offset)
    extensions = found.headers.get("stream-extensions")
    return {"bytes": position, **facts, "extensions": extensions.split(", ") if extensions else []}


def _told(value: object) -> str:
    match value:
        case None | []:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(str, value))
    return str(value)


HEADS = ("STREAM", "TYPE", "SIZE", "CLOSED", "CREATED", "LAST WRITE")
RIGHT = (False, False, True, False, False, False)


@click.command()
@click.argument("bucket", default=DEFAULT_BUCKET)
@click.option("--prefix", help="Only streams whose name in the bucket begins with this.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many.")
@JSON
@connected
def ls(server: Server, bucket: str, prefix: str | None, limit: int | None, as_json: bool) -> None:
    """List the streams of a bucket.

    Without BUCKET, those that were made without one.
    """
    bucket = bucket.strip("/")
    with server.bucket(bucket).streams(prefix=prefix, page_streams_max=limit and min(limit, 1000)) as streams:
        listed = islice(_unless_none(streams, bucket), limit)
        if as_json:
            json_list({**asdict(one), "name": _full_name(bucket, one)} for one in listed)
        else:
            columns(HEADS, (_row(bucket, one) for one in listed), RIGHT, head=sys.stdout.isatty())


def _unless_none(streams: Iterator[ListedStream], bucket: str) -> Iterator[ListedStream]:
    """The streams; none, if the bucket that needs no name has never been needed."""
    try:
        yield from streams
    except NotFound:
        if bucket != DEFAULT_BUCKET:
            raise


def _full_name(bucket: str, listed: ListedStream) -> str:
    return listed.name if bucket == DEFAULT_BUCKET and "/" not in listed.name else f"{bucket}/{listed.name}"


def _row(bucket: str, listed: ListedStream) -> list[str]:
    name = "".join(letter if letter.isprintable() else "?" for letter in _full_name(bucket, listed))
    times = [moment(at * 1000) for at in (listed.created_at_ms, listed.last_write_at_ms)]
    return [name, listed.content_type, size(listed.tail_offset), "closed" if listed.closed else "open", *times]
