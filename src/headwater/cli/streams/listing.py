"""`headwater show` and `headwater ls`."""

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import chain, islice

import click

from headwater.cli.commands import JSON, verb
from headwater.cli.connecting import NAME, Server, connected
from headwater.cli.failures import fail
from headwater.cli.printing import facts, listing, moment, page_of, printable, size
from headwater.client import BadRequest, NotFound, StreamInfo
from headwater.client.values import ListedStream
from headwater.protocol import offsets
from headwater.protocol.names import DEFAULT_BUCKET, RESERVED_SEGMENT
from headwater.protocol.refusals import Code

HEADS = ("STREAM", "TYPE", "SIZE", "CLOSED", "CREATED", "LAST WRITE")
RIGHT = (False, False, True, False, False, False)


@verb("headwater show demo/events", "headwater show demo/events --json")
@NAME
@JSON
@connected
def show(server: Server, name: str, as_json: bool) -> None:
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


@verb("headwater ls", "headwater ls demo", "headwater ls demo/2025- --limit 20 --json", "headwater ls --all")
@click.argument("bucket", metavar="[BUCKET[/PREFIX]]", default="")
@click.option("--prefix", help="Only streams whose names in the bucket begin with this; the same as BUCKET/PREFIX.")
@click.option(
    "--all", "everything", is_flag=True, help="List the streams of all buckets; --prefix then applies to bucket/stream."
)
@click.option("--limit", type=click.IntRange(min=1), help="List at most this many.")
@JSON
@connected
def ls(server: Server, *, bucket: str, prefix: str | None, everything: bool, limit: int | None, as_json: bool) -> None:
    """List the streams of a bucket, or those with a prefix.

    Without a bucket, list the streams that were created without one.
    """
    bucket, slash, beginning = bucket.lstrip("/").partition("/")
    if beginning and prefix:
        raise click.UsageError("BUCKET/PREFIX and --prefix say the same; give one of them.")
    if everything and bucket:
        raise click.UsageError("--all lists every bucket; leave BUCKET out.")
    prefix = beginning or prefix
    if everything:
        found = _of_all_buckets(server, prefix or "", limit)
    else:
        found = _find(server, bucket or DEFAULT_BUCKET, prefix, limit, named=not slash and not prefix)
    listing(as_json, islice(found, limit), asdict, _row, heads=HEADS, right=RIGHT)


class NoBucket(Exception):
    """A bucket whose name is valid only below /v1/stream has no streams, so it does not exist."""


def _find(server: Server, bucket: str, prefix: str | None, limit: int | None, *, named: bool) -> Iterator[ListedStream]:
    """Return the streams of a bucket; a single word that names none may begin the names of streams without one."""
    streams = listed_streams(server, bucket, prefix, limit)
    try:
        first = list(islice(streams, 1))
    except (NotFound, BadRequest, NoBucket) as error:
        streams = listed_streams(server, DEFAULT_BUCKET, bucket, limit) if named else iter(())
        first = list(islice(streams, 1))
        if first:
            return chain(first, streams)
        if isinstance(error, NoBucket):
            advice = f"it comes with its first stream: `headwater create {bucket}/NAME`"
            fail(f"There is no bucket {bucket} at {server.url}; {advice}.", Code.BUCKET_NOT_FOUND, 404)
        raise
    return chain(first, streams)


def listed_streams(
    server: Server, bucket: str, prefix: str | None = None, limit: int | None = None
) -> Iterator[ListedStream]:
    """Yield the streams of a bucket; none if it is the default one, which exists only once it has been used."""
    try:
        for one in server.bucket(bucket).streams(prefix=prefix, page_streams_max=page_of(limit)):
            yield replace(one, name=full_name(f"{bucket}/{one.name}"))
    except NotFound:
        if bucket != DEFAULT_BUCKET:
            raise
    except BadRequest as error:
        # Below /v1/stream a bucket may have a name that is not possible elsewhere; it exists while it has a stream.
        if error.code != Code.INVALID_NAME or bucket == RESERVED_SEGMENT:
            raise
        if next(_of_all_buckets(server, f"{bucket}/", 1), None) is None:
            raise NoBucket from error
        yield from _of_all_buckets(server, f"{bucket}/{prefix or ''}", limit)


def _of_all_buckets(server: Server, prefix: str, limit: int | None) -> Iterator[ListedStream]:
    """Yield the streams whose whole names begin with a prefix."""
    with server.admin() as admin:
        for one in admin.streams(prefix=prefix, page_streams_max=page_of(limit)):
            yield replace(one, name=full_name(one.name))


def full_name(whole: str) -> str:
    """Return the name by which all commands know a stream: without the default bucket, where that is clear.

    >>> full_name("_default/notes"), full_name("_default/a/b"), full_name("demo/notes")
    ('notes', '_default/a/b', 'demo/notes')
    """
    bucket, _, name = whole.partition("/")
    return name if bucket == DEFAULT_BUCKET and "/" not in name else whole


def _row(listed: ListedStream) -> list[str]:
    times = [moment(at * 1000) for at in (listed.created_at_ms, listed.last_write_at_ms)]
    state = "closed" if listed.closed else "open"
    return [printable(listed.name), listed.content_type, size(listed.tail_offset), state, *times]
