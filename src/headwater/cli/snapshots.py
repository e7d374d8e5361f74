"""`headwater snapshot` and `headwater bootstrap`: snapshots of a stream, and what comes after the latest."""

import json
import sys
from base64 import b64encode
from pathlib import Path

import click

from headwater.cli.commands import JSON, Verbs, as_content_type, verb
from headwater.cli.connecting import NAME, Server, as_flat, connected
from headwater.cli.failures import fail
from headwater.cli.printing import answer, note, say, size
from headwater.cli.streams.reading import opened
from headwater.client import START, Bootstrap, OffsetTrimmed, Stream
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


Facts = dict[str, int | str | bool | None]


@verb("headwater bootstrap demo/document", "headwater bootstrap demo/document --output copy")
@NAME
@click.option("--output", default="-", metavar="DIR", help="Write the files snapshot, messages and bootstrap.json.")
@JSON
@connected
def bootstrap(server: Server, name: str, output: str, as_json: bool) -> None:
    """Fetch the latest snapshot and all messages after it."""
    stream = server.extended(name)
    # A bootstrap carries the type of the snapshot, not of the messages.
    end = b"\n" if stream.head().is_json else b""
    with stream.bootstrap() as found:
        if output != "-":
            facts = _save(found, Path(output), end)
            answer(as_json, facts, f"Wrote {name} to {output}; continue reading at offset {facts['next_offset']}.")
        elif as_json:
            click.echo(json.dumps(_head(found) | {"snapshot": _encoded(found)}))
            for message in found:
                click.echo(json.dumps({"message": b64encode(message).decode()}))
        else:
            with opened("-") as file:
                if found.snapshot is not None:
                    file.write(found.snapshot.data + end)
                for message in found:
                    file.write(message + end)


def _save(found: Bootstrap, folder: Path, end: bytes) -> Facts:
    """Write three files; bootstrap.json, which has the next offset, comes last."""
    count = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "snapshot").write_bytes(b"" if found.snapshot is None else found.snapshot.data)
        with (folder / "messages").open("wb") as file:
            for message in found:
                file.write(message + end)
                count += 1
        facts = _head(found) | {"messages": count}
        (folder / "bootstrap.json").write_text(json.dumps(facts, indent=1) + "\n")
    except OSError as error:
        fail(f"Cannot write to {folder}: {error.strerror}; give another folder with --output.")
    return facts


def _head(found: Bootstrap) -> Facts:
    return {
        "snapshot_offset": None if found.snapshot is None else as_flat(found.snapshot.offset),
        "snapshot_content_type": None if found.snapshot is None else found.snapshot.content_type,
        "next_offset": as_flat(found.next_offset),
        "up_to_date": found.up_to_date,
        "closed": found.closed,
    }


def _encoded(found: Bootstrap) -> str | None:
    return None if found.snapshot is None else b64encode(found.snapshot.data).decode()
