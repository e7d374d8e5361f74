"""`headwater create`, `close`, `rm` and `purge`: the beginning and the end of a stream."""

import json
import sys
import time
from dataclasses import asdict
from urllib.parse import urlsplit

import click

from headwater.cli.commands import JSON, as_content_type, as_whole_seconds, confirm, verb
from headwater.cli.connecting import NAME, Server, complete_name, connected
from headwater.cli.failures import code_of, fail, report, sentence
from headwater.cli.printing import Progress, answer, counted, note, say, size
from headwater.cli.streams.inputs import PIECE_BYTES
from headwater.cli.streams.listing import NoBucket, listed_streams
from headwater.client import Fork, NotFound, PurgeInfo, RequestRefused
from headwater.client.blocking.admin import Admin
from headwater.protocol.limits import APPEND_BYTES_MAX
from headwater.protocol.names import DEFAULT_BUCKET

PURGE_ANSWER_SECONDS_MAX = 60.0
POLL_SECONDS = 0.1
STAGES = ("deleting", "rewriting", "dropping")
BACKUPS = "Backups, exports and copies that clients made are not touched."


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
    text = f"Created {name}; the next message goes to offset {created.next_offset}."
    answer(
        as_json,
        {"name": name, **asdict(created)},
        text if created.new else f"{name} exists already with these options.",
    )


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


@verb("headwater close demo/log")
@NAME
@JSON
@connected
def close(server: Server, name: str, as_json: bool) -> None:
    """Close a stream, so that it accepts no more appends."""
    done = server.stream(name).close_stream()
    answer(
        as_json,
        {"name": name, "closed": True, "next_offset": done.next_offset},
        f"Closed {name} at offset {done.next_offset}.",
    )


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
        _check_prefix(prefix)
        names = _matching(server, prefix)
        if not names:
            note(_no_match(server, prefix))
        elif not yes:
            matches = counted(len(names), "stream")
            question = f"Delete {matches} whose names begin with {prefix} at {server.url}?"
            confirm(question, f"--prefix {prefix} matches {matches}; confirm with --yes.")
    failed = False
    with Progress("Deleting") as progress:
        for done, name in enumerate(names, 1):
            progress.update(done, len(names), name)
            failed |= not _delete(server, name, as_json)
    if failed:
        sys.exit(1)


def _check_prefix(prefix: str) -> None:
    # An unset variable of a script must not delete everything.
    if not prefix.strip("/"):
        raise click.UsageError(f"--prefix is empty; for all streams without a bucket, use --prefix {DEFAULT_BUCKET}/.")


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


def _delete(server: Server, name: str, as_json: bool) -> bool:
    try:
        server.stream(name).delete()
    except RequestRefused as error:
        report(sentence(error, server.url, name), code_of(error), error.status, as_json=as_json)
        return False
    answer(as_json, {"name": name, "deleted": True}, f"Deleted {name}.")
    return True


@verb("headwater purge demo/log --yes", "headwater purge --prefix team/2025- --with-forks")
@click.argument("name", required=False, shell_complete=complete_name)
@click.option("--prefix", help="Purge all streams whose names begin with this: bucket/, or bucket/beginning.")
@click.option("--with-forks", is_flag=True, help="Also purge forks of these streams, which inherit their rows.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@JSON
@connected
def purge(server: Server, *, name: str | None, prefix: str | None, with_forks: bool, yes: bool, as_json: bool) -> None:
    """Remove every byte of streams now.

    Deletes the streams and removes their bytes from the lake, the log, its images and the snapshots. Ends earlier
    snapshots of the lake's tables, all leases, and consumers that have not read the rows yet. NAME may be a stream
    that was deleted already. Backups are not touched.
    """
    if (name is None) == (prefix is None):
        raise click.UsageError("Either name the stream to purge, or give --prefix.")
    if prefix is not None:
        _check_prefix(prefix)
    whole, beginning = (None if given is None else _whole(given) for given in (name, prefix))
    what = whole or f"{beginning}*"
    if not yes:
        scope = whole or f"everything that begins with {beginning}"
        question = f"Remove every byte of {scope} at {server.url} for good? {BACKUPS}"
        confirm(question, f"This removes {scope} for good; confirm with --yes.")
    with server.admin(PURGE_ANSWER_SECONDS_MAX) as admin:
        begun = admin.purge(whole, prefix=beginning, with_forks=with_forks)
        if not begun.streams and not as_json:
            note(f"No stream {what} exists at {server.url}; only the remains of deleted ones are removed.")
        ended = _await_purge(admin, begun.id)
    if as_json:
        facts = {"purge": ended.id, "stage": ended.stage, "streams": begun.streams, "backups": "not touched"}
        click.echo(json.dumps(facts))
    if ended.stage == "refused":
        raise click.ClickException(
            "One of the streams has a new fork that needs its rows; repeat the command with --with-forks."
        )
    if not as_json:
        say(f"Purged {counted(begun.streams, 'stream')}; nothing of {what} is left in the store. {BACKUPS}")


def _whole(name: str) -> str:
    """Return a name or prefix with its bucket; the default bucket if it names none."""
    name = name.lstrip("/")
    return name if "/" in name else f"{DEFAULT_BUCKET}/{name}"


def _await_purge(admin: Admin, purge_id: str) -> PurgeInfo:
    """Wait until a purge has ended."""
    said: str | None = None
    with Progress("Purging") as progress:
        while not (found := admin.purge_info(purge_id)).done:
            progress.update(STAGES.index(found.stage), len(STAGES), found.stage)
            if found.problem is not None and found.problem != said:
                said = found.problem
                note(said)
            time.sleep(POLL_SECONDS)
    return found
