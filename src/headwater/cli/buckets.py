"""`headwater bucket`: create, list, show and delete buckets."""

import json
from dataclasses import asdict
from itertools import islice

import click

from headwater.cli.commands import JSON, Verbs
from headwater.cli.connecting import Server, connected
from headwater.cli.printing import answer, facts, listing, page_of, printable
from headwater.client.values import BucketInfo


@click.group(cls=Verbs, aliases={"make": "create"})
def bucket() -> None:
    """Create, list, show and delete buckets."""


@bucket.verb("headwater bucket create agents", "headwater bucket create agents --exist-ok")
@click.argument("bucket")
@click.option("--exist-ok", is_flag=True, help="Succeed if the bucket already exists.")
@JSON
@connected
def create(server: Server, bucket: str, exist_ok: bool, as_json: bool) -> None:
    """Create a bucket."""
    new = server.bucket(bucket).create(exist_ok=exist_ok)
    answer(
        as_json,
        {"bucket": bucket, "new": new},
        f"Created bucket {bucket}." if new else f"Bucket {bucket} already exists.",
    )


@bucket.verb("headwater bucket ls", "headwater bucket ls team- --limit 20 --json")
@click.argument("prefix", required=False)
@click.option("--limit", type=click.IntRange(min=1), help="List at most this many.")
@JSON
@connected
def ls(server: Server, prefix: str | None, limit: int | None, as_json: bool) -> None:
    """List all buckets, or those whose names begin with PREFIX."""
    with server.admin() as admin:
        found = islice(admin.buckets(prefix=prefix, page_buckets_max=page_of(limit)), limit)
        listing(as_json, found, asdict, _row, heads=("BUCKET", "STREAMS"), right=(False, True))


def _row(found: BucketInfo) -> list[str]:
    return [printable(found.name), str(found.streams)]


@bucket.verb("headwater bucket show agents")
@click.argument("bucket")
@JSON
@connected
def show(server: Server, bucket: str, as_json: bool) -> None:
    """Show how many streams a bucket holds."""
    found = server.bucket(bucket).info()
    if as_json:
        click.echo(json.dumps(asdict(found)))
    else:
        facts([("name", found.name), ("streams", str(found.streams))])


@bucket.verb("headwater bucket rm agents")
@click.argument("bucket")
@JSON
@connected
def rm(server: Server, bucket: str, as_json: bool) -> None:
    """Delete an empty bucket."""
    server.bucket(bucket).delete()
    answer(as_json, {"bucket": bucket, "deleted": True}, f"Deleted bucket {bucket}.")
