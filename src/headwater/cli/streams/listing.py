"""`headwater head` and `headwater ls`."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain, islice

import click

from headwater.cli.connecting import JSON, Server, connected
from headwater.cli.examples import examples
from headwater.cli.printing import columns, facts, json_list, moment, size
from headwater.cli.streams.completing import NAME
from headwater.client import BadRequest, NotFound, StreamInfo
from headwater.client.values import ListedStream
from headwater.protocol import offsets
from headwater.protocol.names import DEFAULT_BUCKET

HEADS = ("STREAM", "TYPE", "SIZE", "CLOSED", "CREATED", "LAST WRITE")
RIGHT = (False, False, True, False, False, False)
PAGE_STREAMS_MAX = 1000


@click.command(epilog=examples("headwater head demo/events", "headwater head demo/events --json"))
@NAME
@JSON
@connected
def head(server: Server, name: str, as_json: bool) -> None:
    """Show a stream's type, end, lifetime and state."""
    found = _facts(server.stream(name).head())
    if as_json:
        click.echo(json.dumps({"name": name, **found}))
        return
    facts([("name", name), *((key.replace("_", " "), _shown(value)) for key, value in found.items())])


def _facts(found: StreamInfo) -> dict[str, object]:
    members = {key: value for key, value in asdict(found).items() if key != "headers"}
    position = offsets.parse(found.next_offset)
    extensions = found.headers.get("stream-extensions")
    return {"bytes": position, **members, "extensions": extensions.split(", ") if extensions else []}


def _shown(value: object) -> str:
    match value:
        case None | []:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(str, value))
    return str(value)


@click.command(
    epilog=examples("headwater ls", "headwater ls demo", "headwater ls demo/2025- --limit 20 --json"),
)
@click.argument("bucket", metavar="[BUCKET[/PREFIX]]", default=DEFAULT_BUCKET)
@click.option("--prefix", help="Only streams whose names in the bucket begin with this; the same as BUCKET/PREFIX.")
@click.option("--limit", type=click.IntRange(min=1), help="List at most this many.")
@JSON
@connected
def ls(server: Server, bucket: str, prefix: str | None, limit: int | None, as_json: bool) -> None:
    """List the streams of a bucket, or of a prefix.

    Without a bucket, list the streams that were created without one.
    """
    bucket, slash, beginning = bucket.lstrip("/").partition("/")
    if beginning and prefix:
        raise click.UsageError("BUCKET/PREFIX and --prefix say the same; give one of them.")
    prefix = beginning or prefix
    found, bucket = _find(server, bucket, prefix, limit, named=not slash and not prefix)
    listed = islice(found, limit)
    if as_json:
        json_list({**asdict(one), "name": full_name(bucket, one)} for one in listed)
    else:
        columns(HEADS, (_row(bucket, one) for one in listed), RIGHT, head=sys.stdout.isatty())


def _find(
    server: Server, bucket: str, prefix: str | None, limit: int | None, *, named: bool
) -> tuple[Iterator[ListedStream], str]:
    """Return the streams and their bucket; a single word that names no bucket may begin names without a bucket."""
    page = limit and min(limit, PAGE_STREAMS_MAX)
    streams = listed_streams(server.bucket(bucket).streams(prefix=prefix, page_streams_max=page), bucket)
    try:
        first = list(islice(streams, 1))
    except (NotFound, BadRequest):
        if not named:
            raise
        others = server.bucket(DEFAULT_BUCKET).streams(prefix=bucket, page_streams_max=page)
        streams = listed_streams(others, DEFAULT_BUCKET)
        first, bucket = list(islice(streams, 1)), DEFAULT_BUCKET
        if not first:
            raise
    return chain(first, streams), bucket


def listed_streams(streams: Iterator[ListedStream], bucket: str) -> Iterator[ListedStream]:
    """Yield the streams; none if it is the default bucket, which exists only once it has been used."""
    try:
        yield from streams
    except NotFound:
        if bucket != DEFAULT_BUCKET:
            raise


def full_name(bucket: str, listed: ListedStream) -> str:
    """Return the name by which all commands know a stream."""
    return listed.name if bucket == DEFAULT_BUCKET and "/" not in listed.name else f"{bucket}/{listed.name}"


def _row(bucket: str, listed: ListedStream) -> list[str]:
    name = "".join(letter if letter.isprintable() else "?" for letter in full_name(bucket, listed))
    times = [moment(at * 1000) for at in (listed.created_at_ms, listed.last_write_at_ms)]
    return [name, listed.content_type, size(listed.tail_offset), "closed" if listed.closed else "open", *times]
