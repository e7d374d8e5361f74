"""`headwater snapshot`: create and show snapshots of a stream."""

import json
import sys
from base64 import b64encode
from pathlib import Path

import click

from headwater.cli.commands import JSON, Verbs, as_content_type
from headwater.cli.connecting import Server, as_flat, connected
from headwater.cli.failures import fail
from headwater.cli.printing import note, say, size
from headwater.cli.streams.completing import NAME
from headwater.cli.streams.output import opened
from headwater.client import START, OffsetTrimmed, Stream
from headwater.protocol import content_types
from headwater.protocol.limits import SNAPSHOT_BYTES_MAX


@click.group(cls=Verbs, aliases={"put": "create", "get": "show"})
def snapshot() -> None:
    """Create and show snapshots of a stream."""


@snapshot.verb(
    "headwater snapshot create demo/document state.json --type application/json",
    "headwater snapshot create demo/events --record 1000 < totals.json",
)
@NAME
@click.argument("file", default="-")
@click.option("--offset", help="The snapshot covers everything before this offset.  [default: the end of the stream]")
@click.option("--record", type=click.IntRange(min=0), help="The same by the number of a message of a JSON stream.")
@click.option(
    "--type",
    "content_type",
    metavar="TYPE",
    default=content_types.DEFAULT,
    show_default=True,
    callback=as_content_type,
    help="Content type of the snapshot.",
)
@JSON
@connected
def create(
    server: Server, *, name: str, file: str, offset: str | None, record: int | None, content_type: str, as_json: bool
) -> None:
    """Publish FILE, or standard input, as a snapshot of a stream.

    A snapshot replaces all messages before its offset. By default the server then deletes those messages; with
    `headwater serve --retention explicit` it keeps them.
    """
    if offset is not None and record is not None:
        raise click.UsageError("--offset and --record exclude each other; choose one.")
    data = _contents(file)
    stream = server.extended(name)
    if offset is None and record is None:
        offset = stream.head().next_offset
    published_at = as_flat(stream.publish_snapshot(data, offset=offset, record=record, content_type=content_type))
    trimmed_before = published_at if _earliest(stream) == published_at else None
    if as_json:
        facts = {"name": name, "offset": published_at, "bytes": len(data), "trimmed_before": trimmed_before}
        click.echo(json.dumps(facts))
        return
    say(f"Published a snapshot of {size(len(data))} at offset {published_at}.")
    if trimmed_before is not None:
        note(
            f"The server deleted the messages of {name} before offset {trimmed_before}, which the snapshot replaces; "
            "to keep such history, run `headwater serve --retention explicit`."
        )


def _earliest(stream: Stream) -> str | None:
    """Return the offset at which a stream's history starts; None if nothing was trimmed."""
    try:
        stream.page(START, page_bytes_max=1)
    except OffsetTrimmed as error:
        return as_flat(error.earliest_offset)
    return None


def _contents(file: str) -> bytes:
    if file == "-":
        data = sys.stdin.buffer.read(SNAPSHOT_BYTES_MAX + 1)
    else:
        try:
            data = Path(file).read_bytes()
        except OSError as error:
            fail(f"Cannot read {file}: {error.strerror}; name a file with the snapshot, or pipe it in.")
    if len(data) > SNAPSHOT_BYTES_MAX:
        fail(f"A snapshot has at most {size(SNAPSHOT_BYTES_MAX)}; make it smaller, for example by compression.")
    return data


@snapshot.verb("headwater snapshot show demo/document", "headwater snapshot show demo/document --output state.json")
@NAME
@click.option("--offset", help="Print the snapshot at this offset instead of the latest.")
@click.option("--output", default="-", metavar="FILE", help="Write to a file.")
@JSON
@connected
def show(server: Server, name: str, offset: str | None, output: str, as_json: bool) -> None:
    """Print the latest snapshot."""
    found = server.extended(name).snapshot(offset)
    facts = {"offset": as_flat(found.offset), "content_type": found.content_type, "bytes": len(found.data)}
    if as_json and output == "-":
        click.echo(json.dumps({**facts, "base64": b64encode(found.data).decode()}))
        return
    with opened(output) as file:
        file.write(found.data)
    if as_json:
        click.echo(json.dumps(facts))
