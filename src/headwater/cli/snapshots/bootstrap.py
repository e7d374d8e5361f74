"""`headwater bootstrap`: the latest snapshot and every message after it."""

import json
from base64 import b64encode
from pathlib import Path

import click

from headwater.cli.commands import JSON, verb
from headwater.cli.connecting import Server, as_flat, connected
from headwater.cli.failures import fail
from headwater.cli.printing import say
from headwater.cli.streams.completing import NAME
from headwater.cli.streams.output import opened
from headwater.client import Bootstrap

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
            if as_json:
                click.echo(json.dumps(facts))
            else:
                say(f"Wrote {name} to {output}; continue reading at offset {facts['next_offset']}.")
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
