"""`headwater purge`."""

import json
import sys
import time

import click

from headwater.cli.commands import JSON, verb
from headwater.cli.connecting import Server, connected
from headwater.cli.printing import counted, note, say
from headwater.cli.progress import Progress
from headwater.cli.streams.completing import complete_name
from headwater.client import PurgeInfo
from headwater.client.blocking.admin import Admin
from headwater.protocol.names import DEFAULT_BUCKET

ANSWER_SECONDS_MAX = 60.0
POLL_SECONDS = 0.1
STAGES = ("deleting", "rewriting", "dropping")
BACKUPS = "Backups, exports and copies that readers have made are not touched."


@verb("headwater purge demo/log --yes", "headwater purge --prefix team/2025- --with-forks")
@click.argument("name", required=False, shell_complete=complete_name)
@click.option("--prefix", help="Purge all streams whose names begin with this: bucket/, or bucket/beginning.")
@click.option("--with-forks", is_flag=True, help="Purge the forks of these streams, too, which inherit their rows.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@JSON
@connected
def purge(server: Server, *, name: str | None, prefix: str | None, with_forks: bool, yes: bool, as_json: bool) -> None:
    """Remove every byte of streams now.

    They are deleted, and their bytes leave the lake, the log, its images and the snapshots.
    Earlier snapshots of the lake's tables and all leases end, and so do consumers that have not read the rows yet.
    A stream that is deleted already is purged by its name, too. Backups are not touched.
    """
    if (name is None) == (prefix is None):
        raise click.UsageError("Either name the stream to purge, or give --prefix.")
    if prefix is not None and not prefix.strip("/"):
        # An unset variable of a script must not purge everything.
        raise click.UsageError(f"--prefix is empty; for all streams without a bucket, use --prefix {DEFAULT_BUCKET}/.")
    whole, beginning = (None if given is None else _whole(given) for given in (name, prefix))
    what = whole or f"{beginning}*"
    if not yes:
        _confirm(server, whole or f"everything that begins with {beginning}")
    with server.admin(ANSWER_SECONDS_MAX) as admin:
        begun = admin.purge(whole, prefix=beginning, with_forks=with_forks)
        if not begun.streams and not as_json:
            note(f"No stream {what} exists at {server.url}; only the remains of deleted ones are removed.")
        ended = _follow(admin, begun.id)
    if as_json:
        facts = {"purge": ended.id, "stage": ended.stage, "streams": begun.streams, "backups": "not touched"}
        click.echo(json.dumps(facts))
    if ended.stage == "refused":
        raise click.ClickException(
            "One of the streams was forked meanwhile, so its rows are still needed; repeat this with --with-forks."
        )
    if not as_json:
        say(f"Purged {counted(begun.streams, 'stream')}; nothing of {what} is left in the store. {BACKUPS}")


def _whole(name: str) -> str:
    """A name or a prefix with its bucket, as other commands read them."""
    name = name.lstrip("/")
    return name if "/" in name else f"{DEFAULT_BUCKET}/{name}"


def _confirm(server: Server, what: str) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError(f"This removes {what} for good; confirm with --yes.")
    click.confirm(f"Remove every byte of {what} at {server.url} for good? {BACKUPS}", abort=True, err=True)


def _follow(admin: Admin, purge_id: str) -> PurgeInfo:
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
