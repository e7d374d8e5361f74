"""`headwater close` and `headwater rm`."""

import json
import sys

import click

from headwater.cli.commands import JSON, verb
from headwater.cli.connecting import Server, connected
from headwater.cli.failures import code_of, report, sentence
from headwater.cli.printing import counted, note, say
from headwater.cli.progress import Progress
from headwater.cli.streams.completing import NAME, complete_name
from headwater.cli.streams.listing import NoBucket, listed_streams
from headwater.client import NotFound, RequestRefused
from headwater.protocol.names import DEFAULT_BUCKET


@verb("headwater close demo/log")
@NAME
@JSON
@connected
def close(server: Server, name: str, as_json: bool) -> None:
    """Close a stream, so that nothing can be appended any more."""
    done = server.stream(name).close_stream()
    if as_json:
        click.echo(json.dumps({"name": name, "closed": True, "next_offset": done.next_offset}))
    else:
        say(f"Closed {name} at offset {done.next_offset}.")


@verb("headwater rm demo/log demo/events", "headwater rm --prefix team/2025- --yes")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_name)
@click.option("--prefix", help="Delete all streams whose names begin with this: bucket/, or bucket/beginning.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation; goes with --prefix.")
@JSON
@connected
def rm(server: Server, *, names: tuple[str, ...], prefix: str | None, yes: bool, as_json: bool) -> None:
    """Delete streams, by their names or by a prefix."""
    if bool(names) == (prefix is not None):
        raise click.UsageError("Either name the streams to delete, or give --prefix.")
    if prefix is not None:
        if not prefix.strip("/"):
            # An unset variable of a script must not delete everything.
            raise click.UsageError(
                f"--prefix is empty; for all streams without a bucket, use --prefix {DEFAULT_BUCKET}/."
            )
        names = _matching(server, prefix)
        if not names:
            note(_no_match(server, prefix))
        elif not yes:
            _confirm(server, prefix, len(names))
    failed = False
    with Progress("Deleting") as progress:
        for done, name in enumerate(names, 1):
            progress.update(done, len(names), name)
            failed |= not _delete(server, name, as_json)
    if failed:
        sys.exit(1)


def _matching(server: Server, prefix: str) -> tuple[str, ...]:
    bucket, slash, beginning = prefix.lstrip("/").partition("/")
    if not slash:
        bucket, beginning = DEFAULT_BUCKET, bucket
    try:
        return tuple(one.name for one in listed_streams(server, bucket, beginning or None))
    except (NotFound, NoBucket):
        # A bucket that was never created holds no streams.
        return ()


def _no_match(server: Server, prefix: str) -> str:
    if "/" in prefix.lstrip("/"):
        return f"No stream at {server.url} begins with {prefix}."
    # `demo` does not match demo/log: a prefix that is one character short must not delete a whole bucket.
    return (
        f"No stream without a bucket at {server.url} begins with {prefix}; for bucket {prefix}, use --prefix {prefix}/."
    )


def _confirm(server: Server, prefix: str, count: int) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError(f"--prefix {prefix} matches {counted(count, 'stream')}; confirm with --yes.")
    question = f"Delete {counted(count, 'stream')} whose names begin with {prefix} at {server.url}?"
    click.confirm(question, abort=True, err=True)


def _delete(server: Server, name: str, as_json: bool) -> bool:
    try:
        server.stream(name).delete()
    except RequestRefused as error:
        report(sentence(error, server.url, name), code_of(error), error.status, as_json=as_json)
        return False
    if as_json:
        click.echo(json.dumps({"name": name, "deleted": True}))
    else:
        say(f"Deleted {name}.")
    return True
