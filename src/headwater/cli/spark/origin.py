"""The options that the jobs on Spark have in common: which server, and which of its streams."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from headwater.cli.spark.command import URL


def split_options(context: click.Context, parameter: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    """Options as `name=value`, as a table."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is no option of the source; it should read name=value.")
        found[name] = value
    return found


def with_origin(command: Callable[..., Any]) -> Callable[..., Any]:
    """A verb that reads streams of a server: it is given them as `origin`."""

    @URL
    @click.option("--bucket", help="A bucket, whole, or that of the other names.")
    @click.option("--prefix", help="How the names of the streams begin, bucket/ included unless --bucket says it.")
    @click.option("--stream", "streams", multiple=True, help="One stream; repeatable.")
    @click.option("--pattern", help="A regular expression for whole names.")
    @click.option(
        "--option", "options", multiple=True, callback=split_options, help="An option of the source, name=value."
    )
    @wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        from headwater.spark.jobs.origin import Origin  # noqa: PLC0415

        names = ("url", "bucket", "prefix", "streams", "pattern", "options")
        origin = Origin(**{name: options.pop(name) for name in names})
        return command(*arguments, origin=origin, **options)

    return run
