"""`headwater spark init`: a declarative pipeline to start from."""

from pathlib import Path

import click

from headwater.cli.commands import JSON, verb
from headwater.cli.connecting import CONTEXT, URL
from headwater.cli.contexts.choosing import choose
from headwater.cli.failures import fail
from headwater.cli.printing import json_list, say


@verb("headwater spark init pipeline --bucket shop")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@URL
@CONTEXT
@click.option("--bucket", default="shop", show_default=True, help="The bucket that the pipeline reads.")
@click.option("--results", help="The bucket that the pipeline writes.  [default: the name of --bucket plus -alerts]")
@JSON
def init(
    folder: Path, *, url: str | None, context_name: str | None, bucket: str, results: str | None, as_json: bool
) -> None:
    """Write a declarative pipeline into DIR.

    It has bronze, silver and gold tables from streams, and a flow back into streams. It runs unchanged with
    `spark-pipelines`; its README explains how.
    """
    from headwater.spark.pipeline.project import ProjectRefused, write_project  # noqa: PLC0415

    try:
        written = write_project(folder, choose(url, context_name, None, {}).url, bucket, results)
    except ProjectRefused as refused:
        fail(str(refused))
    except OSError as error:
        fail(f"Cannot write to {folder}: {error.strerror}.")
    if as_json:
        json_list(str(path) for path in written)
        return
    for path in written:
        say(f"Wrote {path}")
    say(f"Next: cd {folder} && spark-pipelines run --conf spark.sql.catalogImplementation=hive")
