"""`headwater bucket`: buckets are made before their streams, and dropped when they are empty."""

import json
from dataclasses import asdict

import click

from headwater.cli.connecting import JSON, Server, connected
from headwater.cli.printing import columns, say


@click.group()
def bucket() -> None:
    """Make, look at and drop buckets."""


@bucket.command()
@click.argument("bucket")
@click.option("--exist-ok", is_flag=True, help="One that is there already is fine.")
@JSON
@connected
def make(server: Server, bucket: str, exist_ok: bool, as_json: bool) -> None:
    """Make a bucket."""
    new = server.bucket(bucket).create(exist_ok=exist_ok)
    if as_json:
        click.echo(json.dumps({"bucket": bucket, "new": new}))
    else:
        say(f"Made the bucket {bucket}." if new else f"The bucket {bucket} was there already.")


@bucket.command()
@click.argument("bucket")
@JSON
@connected
def show(server: Server, bucket: str, as_json: bool) -> None:
    """Say how many streams a bucket holds."""
    found = server.bucket(bucket).info()
    if as_json:
        click.echo(json.dumps(asdict(found)))
    else:
        columns(("", ""), [("name", found.name), ("streams", str(found.streams))], (False, False), head=False)


@bucket.command()
@click.argument("bucket")
@JSON
@connected
def rm(server: Server, bucket: str, as_json: bool) -> None:
    """Drop an empty bucket."""
    server.bucket(bucket).delete()
    if as_json:
        click.echo(json.dumps({"bucket": bucket, "deleted": True}))
    else:
        say(f"Dropped the bucket {bucket}.")
