"""Options that several verbs of `headwater spark` share."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import click

from headwater.cli.contexts.choosing import Destination
from headwater.protocol.limits import MIB

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

PARTITIONS = click.option("--partitions", type=click.IntRange(1), help="How many tasks write.")
BATCH = click.option(
    "--batch-mib",
    "batch_bytes",
    type=click.IntRange(1),
    default=256,
    show_default=True,
    callback=lambda context, parameter, mib: mib * MIB,
    help="Approximate size of a batch, in MiB of payload.",
)


def pairs(flag: str, usage: str, form: str = "name=value", *, name: str | None = None) -> Decorator:
    """A repeatable option whose values have the form name=value, parsed into a dictionary."""

    def split(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
        found = {}
        for pair in given:
            key, equals, value = pair.partition("=")
            if not equals or not key:
                raise click.BadParameter(f"{pair!r} does not have the form {form}.")
            found[key] = value
        return found

    return click.option(flag, name or flag.lstrip("-"), multiple=True, callback=split, help=usage)


CREDENTIALS = ("token", "tokenfile", "header.authorization")
"""Options of the source and the sink that prove who the job is, in lower case."""


def with_credentials(options: Mapping[str, str], destination: Destination) -> dict[str, str]:
    """The options with the credentials that the command line has for the server, unless they have others.

    So a token needs no `--option token=...`, which other users of this machine could see in the list of processes.

    >>> with_credentials({"via": "lake"}, Destination("http://h", token="t"))
    {'token': 't', 'via': 'lake'}
    """
    found = dict[str, str]()
    if not has_credentials(options):
        if destination.token_file is not None:
            found["tokenFile"] = str(destination.token_file)
        elif destination.token is not None:
            found["token"] = destination.token
        found |= {f"header.{name}": value for name, value in destination.headers.items()}
    if destination.tls_ca is not None and "tls.ca" not in map(str.lower, options):
        found["tls.ca"] = destination.tls_ca
    return {**found, **options}


def has_credentials(options: Mapping[str, str]) -> bool:
    """Whether options name a token or another credential."""
    return not set(CREDENTIALS).isdisjoint(map(str.lower, options))


def iceberg(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that find an Iceberg table."""
    command = click.option("--table", help="Iceberg: the table's name in the catalog.")(command)
    return click.option(
        "--catalog", help="Iceberg: the URI of the catalog.  [default: a SQLite file next to the table]"
    )(command)


def with_origin(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb options that select streams of a server; it receives them as `origin`."""

    @click.option("--bucket", help="Read this bucket; the names in the other options are then relative to it.")
    @click.option("--prefix", help="Read the streams whose names begin with this: bucket/prefix without --bucket.")
    @click.option("--stream", "streams", multiple=True, help="Read this stream; repeatable.")
    @click.option("--pattern", help="Read the streams whose whole name matches this regular expression.")
    @pairs("--option", "An option of the Headwater source, name=value; repeatable.", name="options")
    @wraps(command)
    def run(*arguments: Any, **options: Any) -> Any:
        from headwater.spark.jobs.origin import Origin  # noqa: PLC0415

        names = ("url", "bucket", "prefix", "streams", "pattern", "options")
        origin = Origin(**{name: options.pop(name) for name in names})
        return command(*arguments, origin=origin, **options)

    return run
