"""`headwater backup`: copy a server or one bucket to a folder or S3, verify a copy, restore one."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from headwater.backup.create import Origin, create_backup
from headwater.backup.manifest import BackupFailed, Manifest, verify_backup
from headwater.backup.manifest import Progress as BackupProgress
from headwater.backup.restore import restore_backup
from headwater.cli.commands import JSON, Verbs
from headwater.cli.failures import fail
from headwater.cli.printing import Progress, counted, say, size
from headwater.lake.ownership import LakeOwned
from headwater.log.journal.files import JournalDamaged
from headwater.storage.opening import open_store
from headwater.storage.store import KeyExists, KeyMissing, Store, StoreFailed

LAKE = click.option("--lake", help="Where the lake is, if not in the data directory.")
DATA = click.option("--data", type=click.Path(path_type=Path), required=True, help="Data directory of a server.")


@click.group(cls=Verbs)
def backup() -> None:
    """Back up a running server, verify a backup, restore one."""


@backup.verb(
    "headwater backup create /backups/monday --data /var/lib/headwater",
    "headwater backup create s3://backups/agents --data data --bucket agents",
)
@click.argument("place")
@DATA
@LAKE
@click.option("--bucket", help="Copy only this bucket, with the streams that its forks need.")
@JSON
def create(place: str, data: Path, lake: str | None, bucket: str | None, as_json: bool) -> None:
    """Copy everything to PLACE, a folder or s3://bucket/prefix. The server may keep running."""
    with _working("Copying") as progress:
        manifest = create_backup(Origin(data, _store(lake or str(data / "lake")), bucket), _store(place), progress)
    _print(manifest, as_json, lambda held: say(f"Copied {held} to {place}."))


@backup.verb("headwater backup verify /backups/monday")
@click.argument("place")
@JSON
def verify(place: str, as_json: bool) -> None:
    """Compare every object of a backup with its checksum."""
    with _working("Verifying") as progress:
        manifest, _ = verify_backup(_store(place), progress)
    _print(manifest, as_json, lambda held: click.echo(f"The backup in {place} is intact: {held}."))


@backup.verb("headwater backup restore /backups/monday --data /var/lib/restored")
@click.argument("place")
@DATA
@LAKE
@JSON
def restore(place: str, data: Path, lake: str | None, as_json: bool) -> None:
    """Create a new data directory from the backup in PLACE."""
    with _working("Restoring") as progress:
        manifest, log_id = restore_backup(_store(place), data, _store(lake or str(data / "lake")), progress)
    start = f"start a server on it with `headwater serve --data {data}`"
    _print(manifest, as_json, lambda held: say(f"Restored {held} into {data}; {start}."), restored_log_id=log_id)


def _store(url: str) -> Store:
    try:
        return open_store(url)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _print(manifest: Manifest, as_json: bool, done: Callable[[str], None], **more: str) -> None:
    total = sum(copied.size for copied in manifest.objects)
    if as_json:
        facts = {name: getattr(manifest, name) for name in ("log_id", "position", "bucket", "streams")}
        click.echo(json.dumps(facts | {"objects": len(manifest.objects), "bytes": total, **more}))
    else:
        done(f"{counted(manifest.streams, 'stream')} as of position {manifest.position:,}, {size(total)}")


@contextmanager
def _working(label: str) -> Iterator[BackupProgress]:
    """Show progress, and end with one sentence if anything goes wrong."""
    try:
        with Progress(label) as line:
            yield lambda what, done, total: line.update(done, total, what)
    except (BackupFailed, StoreFailed, KeyMissing, KeyExists, LakeOwned, JournalDamaged, OSError) as error:
        fail(f"{str(error).rstrip('.')}.")
