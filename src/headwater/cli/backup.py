"""`headwater backup`: copy a server, or one bucket of it, to a folder or S3; check a copy; make a server of one."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from headwater.backup.create import Origin, create_backup
from headwater.backup.manifest import BackupFailed, Manifest, Progress
from headwater.backup.restore import restore_backup
from headwater.backup.verify import verify_backup
from headwater.cli.printing import say, size
from headwater.lake.ownership import LakeOwned
from headwater.log.journal.files import JournalDamaged
from headwater.storage.opening import open_store
from headwater.storage.store import KeyExists, KeyMissing, Store, StoreFailed

LAKE = click.option("--lake", help="Where the lake is, if not in the data directory.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print what the backup holds as JSON.")
DATA = click.option("--data", type=click.Path(path_type=Path), required=True, help="Data directory of a server.")


@click.group()
def backup() -> None:
    """Copy a server while it works, check a copy, restore one."""


@backup.command()
@click.argument("place")
@DATA
@LAKE
@click.option("--bucket", help="Copy only this bucket, with what its streams are forks of.")
@JSON
def create(place: str, data: Path, lake: str | None, bucket: str | None, as_json: bool) -> None:
    """Copy everything to PLACE, a folder or s3://bucket/prefix; the server may run meanwhile."""
    with _failing(), _bar() as progress:
        manifest = create_backup(Origin(data, _store(lake or str(data / "lake")), bucket), _store(place), progress)
    _tell(manifest, as_json, f"Copied to {place}")


@backup.command()
@click.argument("place")
@JSON
def verify(place: str, as_json: bool) -> None:
    """Read every object of the backup in PLACE and compare it with its checksum."""
    with _failing(), _bar() as progress:
        manifest, _ = verify_backup(_store(place), progress)
    _tell(manifest, as_json, f"{place} is whole")


@backup.command()
@click.argument("place")
@DATA
@LAKE
@JSON
def restore(place: str, data: Path, lake: str | None, as_json: bool) -> None:
    """Make a new data directory of the backup in PLACE; a server goes on from it as the old one would have."""
    with _failing(), _bar() as progress:
        manifest = restore_backup(_store(place), data, _store(lake or str(data / "lake")), progress)
    _tell(manifest, as_json, f"Restored into {data}; start it with `headwater serve --data {data}`")


def _store(url: str) -> Store:
    try:
        return open_store(url)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _tell(manifest: Manifest, as_json: bool, done: str) -> None:
    total = sum(copied.size for copied in manifest.objects)
    if as_json:
        facts = {name: getattr(manifest, name) for name in ("log_id", "position", "bucket", "streams")}
        click.echo(json.dumps(facts | {"objects": len(manifest.objects), "bytes": total}))
    else:
        say(f"{done}: {manifest.streams:,} streams as of position {manifest.position:,}, {size(total)}.")


@contextmanager
def _failing() -> Iterator[None]:
    """Whatever goes wrong is told in one sentence."""
    try:
        yield
    except (BackupFailed, StoreFailed, KeyMissing, KeyExists, LakeOwned, JournalDamaged, OSError) as error:
        click.echo(f"Error: {str(error).rstrip('.')}.", err=True)
        sys.exit(1)


@contextmanager
def _bar() -> Iterator[Progress]:
    """A bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    with click.progressbar(length=1, file=sys.stderr, item_show_func=lambda what: what) as bar:

        def progress(what: str, done: int, total: int) -> None:
            bar.length = max(total, 1)
            bar.current_item = what
            bar.update(max(done - bar.pos, 0))

        yield progress
