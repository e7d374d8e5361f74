"""`headwater snapshot` and `headwater bootstrap`: what a stream amounts to, and what came after that."""

import json
import sys
from base64 import b64encode
from pathlib import Path

import click

from headwater.cli.connecting import JSON, Server, as_flat, connected
from headwater.cli.failures import fail
from headwater.cli.printing import say, size
from headwater.cli.streams.completing import NAME
from headwater.cli.streams.reading import opened
from headwater.client import Bootstrap
from headwater.protocol import content_types
from headwater.protocol.limits import SNAPSHOT_BYTES_MAX


@click.group()
def snapshot() -> None:
    """Publish and fetch snapshots of a stream."""


@snapshot.command()
@NAME
@click.argument("file", default="-")
@click.option("--offset", help="What it covers: everything before this.  [default: where the stream ends]")
@click.option("--record", type=click.IntRange(min=0), help="The same by the number of a message of a JSON stream.")
@click.option("--type", "content_type", default=content_types.DEFAULT, show_default=True, help="Its content type.")
@JSON
@connected
def put(
    server: Server, *, name: str, file: str, offset: str | None, record: int | None, content_type: str, as_json: bool
) -> None:
    """Publish FILE, or what is piped in, as what the stream amounts to.

    What it covers may be let go of by the server.
    """
    if offset is not None and record is not None:
        raise click.UsageError("--offset and --record say the same in two ways; choose one.")
    data = _contents(file)
    stream = server.extended(name)
    if offset is None and record is None:
        offset = stream.head().next_offset
    stands_at = as_flat(stream.publish_snapshot(data, offset=offset, record=record, content_type=content_type))
    if as_json:
        click.echo(json.dumps({"name": name, "offset": stands_at, "bytes": len(data)}))
    else:
        say(f"Published a snapshot of {size(len(data))} at {stands_at}.")


def _contents(file: str) -> bytes:
    if file == "-":
        data = sys.stdin.buffer.read(SNAPSHOT_BYTES_MAX + 1)
    else:
        try:
            data = Path(file).read_bytes()
        except OSError as error:
            fail(f"Cannot read {file}: {error.strerror}; name a file with the snapshot, or pipe it in.")
    if len(data) > SNAPSHOT_BYTES_MAX:
        fail(f"A snapshot has at most {size(SNAPSHOT_BYTES_MAX)}; make it smaller, compressed for example.")
    return data


@snapshot.command()
@NAME
@click.option("--offset", help="The one that stands here, instead of the latest.")
@click.option("--output", default="-", help="Write to this file.")
@JSON
@connected
def get(server: Server, name: str, offset: str | None, output: str, as_json: bool) -> None:
    """Fetch the latest snapshot."""
    found = server.extended(name).snapshot(offset)
    facts = {"offset": as_flat(found.offset), "content_type": found.content_type, "bytes": len(found.data)}
    if as_json and output == "-":
        click.echo(json.dumps({**facts, "base64": b64encode(found.data).decode()}))
        return
    with opened(output) as file:
        file.write(found.data)
    if as_json:
        click.echo(json.dumps(facts))


@click.command()
@NAME
@click.option("--output", default="-", help="A folder for the files snapshot, messages and bootstrap.json.")
@JSON
@connected
def bootstrap(server: Server, name: str, output: str, as_json: bool) -> None:
    """Fetch the latest snapshot and all that came after it."""
    stream = server.extended(name)
    # A bootstrap says the type of the snapshot only.
    end = b"\n" if stream.head().is_json else b""
    with stream.bootstrap() as found:
        if output != "-":
            facts = _save(found, Path(output), end)
            if as_json:
                click.echo(json.dumps(facts))
            else:
                say(f"Wrote what {name} holds to {output}; it goes on at {facts['next_offset']}.")
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


def _save(found: Bootstrap, folder: Path, end: bytes) -> dict[str, int | str | bool | None]:
    """Write three files; the one that says where to go on comes last."""
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
        fail(f"Cannot write into {folder}: {error.strerror}; give another folder with --output.")
    return facts


def _head(found: Bootstrap) -> dict[str, int | str | bool | None]:
    return {
        "snapshot_offset": None if found.snapshot is None else as_flat(found.snapshot.offset),
        "snapshot_content_type": None if found.snapshot is None else found.snapshot.content_type,
        "next_offset": as_flat(found.next_offset),
        "up_to_date": found.up_to_date,
        "closed": found.closed,
    }


def _encoded(found: Bootstrap) -> str | None:
    return None if found.snapshot is None else b64encode(found.snapshot.data).decode()
