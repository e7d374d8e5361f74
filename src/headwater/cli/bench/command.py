"""`headwater bench`: put load on a server, measure it, and check every byte that it returns."""

import json
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from headwater.cli.bench import workloads
from headwater.cli.bench.workloads import MESSAGE_BYTES_MIN, Bench, Result, show
from headwater.cli.commands import JSON, Verbs, as_bytes
from headwater.cli.connecting import Server, connected_once
from headwater.cli.failures import fail
from headwater.cli.printing import Progress
from headwater.client import OutcomeUnknown
from headwater.client.urls import split_urls
from headwater.load.messages import LoadFailed
from headwater.load.targets import Target

Work = Callable[[Bench, Result], None]
Before = dict[str, Any]

SPARE_FILES = 64


@click.group(cls=Verbs)
def bench() -> None:
    """Measure a server, and check everything that it returns."""


def number(flag: str, most: int, default: int, help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make an option for a positive whole number."""
    return click.option(flag, type=click.IntRange(1, most), default=default, show_default=True, help=help)


def load(workload: str) -> Callable[[Callable[..., Work]], Callable[..., None]]:
    """Turn a function that returns a workload into a command that measures it."""

    def decorate(command: Callable[..., Work]) -> Callable[..., None]:
        @click.option(
            "--seconds", type=click.FloatRange(0.1, 86_400), default=5.0, show_default=True, help="How long to measure."
        )
        @click.option(
            "--bytes",
            "size",
            metavar="SIZE",
            default="256",
            show_default=True,
            callback=as_bytes(MESSAGE_BYTES_MIN, 2**20),
            help="Size of a message.",
        )
        @click.option("--keep", is_flag=True, help="Keep the streams that the benchmark created.")
        @click.option(
            "--compare", type=click.Path(path_type=Path), help="Compare with what an earlier run printed with --json."
        )
        @JSON
        @connected_once
        def run(server: Server, compare: Path | None, as_json: bool, **options: Any) -> None:
            if len(split_urls(server.url)) > 1:
                raise click.UsageError("A benchmark measures one server; give the URL of one node.")
            before = None if compare is None else _earlier(compare, workload)
            seconds, size, keep = options.pop("seconds"), options.pop("size"), options.pop("keep")
            result = Result(workload, server.streams_url, {**options, "bytes": size, "seconds": seconds})
            _allow_files(max(options.get("connections", 0), options.get("readers", 0), options.get("clients", 0)))
            with Progress() as progress:
                target = Target.of_url(server.streams_url, server.destination.request_headers())
                bench = Bench(server.client, target, progress.show, seconds, size, keep)
                _measure(command(**options), bench, result)
            if as_json:
                click.echo(json.dumps(result.facts()))
            else:
                show(result, before)
            if not result.check.ok:
                fail(f"The data that was read is not what was acknowledged: {result.check}; see the server's log.")

        run.__doc__ = command.__doc__
        return run

    return decorate


@bench.verb("headwater bench append --streams 1000 --connections 64 --seconds 10", name="append")
@number("--streams", 100_000, 100, "How many streams.")
@number("--connections", 10_000, 64, "How many connections.")
@load("append")
def append(streams: int, connections: int) -> Work:
    """Append to many streams, with one writer each."""
    return partial(workloads.append, streams=streams, connections=connections)


@bench.verb("headwater bench fanout --readers 500 --rate 20", name="fanout")
@number("--readers", 10_000, 100, "How many readers.")
@click.option("--rate", type=click.FloatRange(0.1, 10_000), default=50.0, show_default=True, help="Events per second.")
@load("fanout")
def fanout(readers: int, rate: float) -> Work:
    """Deliver one stream to many SSE readers."""
    return partial(workloads.fanout, readers=readers, rate=rate)


@bench.verb("headwater bench replay --clients 50 --messages 100000", name="replay")
@number("--clients", 10_000, 20, "How many clients.")
@number("--messages", 1_000_000, 10_000, "Length of the stream.")
@load("replay")
def replay(clients: int, messages: int) -> Work:
    """Read one whole stream repeatedly with many clients."""
    return partial(workloads.replay, clients=clients, message_count=messages)


def _measure(work: Work, bench: Bench, result: Result) -> None:
    try:
        work(bench, result)
    except (LoadFailed, OutcomeUnknown) as error:
        reason = " ".join(str(error).split()).rstrip(".").replace(". ", "; ")
        fail(f"The measurement at {result.url} failed: {reason}; see the server's log.")


def _earlier(path: Path, workload: str) -> Before:
    """Return the result of an earlier run of the same workload."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        raise click.UsageError(
            f"{path} does not hold a result; save one with `headwater bench {workload} --json`."
        ) from None
    if not isinstance(found, dict) or found.get("workload") != workload or not isinstance(found.get("figures"), dict):
        raise click.UsageError(f"{path} does not hold a result of `headwater bench {workload} --json`.")
    return found


def _allow_files(sockets: int) -> None:
    """Raise the limit of open files, if needed: each connection takes a file descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if sockets + SPARE_FILES > hard:
        fail(
            f"{sockets} connections need more files than the {hard} that may be open; raise `ulimit -n`, or use fewer."
        )
    if sockets + SPARE_FILES > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
