"""`headwater bucket`: a bucket is created before its streams, and deleted when it is empty."""

import json
from dataclasses import asdict

import click

from headwater.cli.connecting import JSON, Server, connected
from headwater.cli.examples import examples
from headwater.cli.printing import facts, say


@click.group()
def bucket() -> None:
    """Create, show and delete buckets."""


@bucket.command(epilog=examples("headwater bucket make agents", "headwater bucket make agents --exist-ok"))
@click.argument("bucket")
@click.option("--exist-ok", is_flag=True, help="Succeed if it exists already.")
@JSON
@connected
def make(server: Server, bucket: str, exist_ok: bool, as_json: bool) -> None:
    """Create a bucket."""
    new = server.bucket(bucket).create(exist_ok=exist_ok)
    if as_json:
        click.echo(json.dumps({"bucket": bucket, "new": new}))
    else:
        say(f"Created bucket {bucket}." if new else f"Bucket {bucket} exists already.")


@bucket.command(epilog=examples("headwater bucket show agents"))
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


@bucket.command(epilog=examples("headwater bucket rm agents"))
@click.argument("bucket")
@JSON
@connected
def rm(server: Server, bucket: str, as_json: bool) -> None:
    """Delete an empty bucket."""
    server.bucket(bucket).delete()
    if as_json:
        click.echo(json.dumps({"bucket": bucket, "deleted": True}))
    else:
        say(f"Deleted bucket {bucket}.")
