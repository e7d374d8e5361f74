"""`headwater lake`: look at a lake, check it and ask it questions, with no server."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click
import pyarrow as pa

from headwater.cli.printing import columns, json_list, moment, say, size
from headwater.lake.catalog import Catalog, ForkRow, ListedSegment
from headwater.lake.inventory import StreamTally, objects, streams, totals
from headwater.lake.reader import SegmentDamaged
from headwater.lake.scanning import LakeDamaged, may_have, read_catalog, read_forks, read_tombstones
from headwater.lake.verify.verifier import Verifier
from headwater.storage.opening import open_store
from headwater.storage.store import KeyMissing, Store, StoreFailed

NEXT_STEP = "run `headwater lake verify` to see what else is wrong"


class OpenLake(NamedTuple):
    """A lake as its newest catalog tells of it."""

    store: Store
    catalog: Catalog
    tombstones: pa.Table
    forks: list[ForkRow]


@click.group()
def lake() -> None:
    """Look at a lake, check it, and ask it questions; no server is needed."""


DATA = click.option(
    "--data", type=click.Path(path_type=Path), help="Data directory of a server, whose folder lake is meant."
)


def verb(command: Callable[..., None]) -> click.Command:
    """A command on a lake that is named by its URL or by the data directory of its server."""

    @wraps(command)
    def run(url: str | None, data: Path | None, **options: Any) -> None:
        with failing():
            command(find_store(url, data), **options)

    return lake.command()(click.argument("url", required=False)(DATA(run)))


def find_store(url: str | None, data: Path | None) -> Store:
    """The store that the command line names."""
    if url is not None and data is None:
        place = url
    elif data is not None and url is None:
        place = str(data / "lake")
    else:
        raise click.UsageError("Name a lake: either its folder or s3://bucket/prefix, or --data DIR.")
    if place == "memory:":
        raise click.UsageError("A lake in memory is its server's alone; name a folder or s3://bucket/prefix.")
    try:
        return open_store(place)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def failing() -> Iterator[None]:
    """Whatever goes wrong with a lake is told in one sentence."""
    try:
        yield
    except (LakeDamaged, SegmentDamaged) as error:
        fail(f"{str(error).rstrip('.')}; {NEXT_STEP}.")
    except KeyMissing as error:
        fail(f"{str(error).rstrip('.')}, though the catalog names it; try again, and if it stays so, {NEXT_STEP}.")
    except StoreFailed as error:
        fail(f"{str(error).rstrip('.')}; check the URL, the permissions and, for S3, the AWS_ variables.")


def fail(sentence: str) -> NoReturn:
    """End with exit code 1 and say why."""
    click.echo(f"Error: {sentence}", err=True)
    sys.exit(1)


def open_lake(store: Store) -> OpenLake:
    """The lake in a store, or a sentence on why there is none."""
    catalog = read_catalog(store)
    if catalog is None:
        no_lake(store)
    return OpenLake(store, catalog, read_tombstones(store, catalog), read_forks(store, catalog))


def no_lake(store: Store) -> NoReturn:
    fail(f"There is no catalog at {store.url}; check the URL, or flush the server with POST /__headwater/flush.")


# -- ls ----------------------------------------------------------------------------------------------------------------

SEGMENT_HEADS = ("KEY", "ROWS", "LIVE", "SIZE", "POSITIONS", "FROM", "TO", "FIRST", "LAST")
SEGMENT_RIGHT = (False, True, True, True, True, False, False, False, False)
STREAM_HEADS = ("STREAM", "INCARNATION", "ROWS", "BYTES", "INHERITED", "FROM", "TO")
STREAM_RIGHT = (False, True, True, True, True, False, False)


@verb
@click.option("--streams", "by_stream", is_flag=True, help="List streams instead; this reads every segment's names.")
@click.option("--prefix", default="", help="Only what may hold names (bucket/stream) that begin with this.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def ls(store: Store, by_stream: bool, prefix: str, as_json: bool) -> None:
    """List segments, or streams."""
    opened = open_lake(store)
    if by_stream:
        tallies = streams(store, opened.catalog, opened.tombstones, opened.forks, prefix)
        if as_json:
            json_list(tally._asdict() for tally in tallies)
        else:
            columns(STREAM_HEADS, map(_stream_row, tallies), STREAM_RIGHT, head=sys.stdout.isatty())
        return
    listed = [one for one in opened.catalog.segments if may_have(one, prefix)]
    listed.sort(key=lambda one: one.key)
    if as_json:
        json_list(map(segment_facts, listed))
    else:
        columns(SEGMENT_HEADS, map(_segment_row, listed), SEGMENT_RIGHT, head=sys.stdout.isatty())


def segment_facts(listed: ListedSegment) -> dict[str, Any]:
    """What a catalog says of a segment, in one level."""
    facts = {name: getattr(listed.segment, name) for name in listed.segment.__struct_fields__}
    return {"key": listed.key, "live_rows": listed.live_rows, **facts}


def _segment_row(listed: ListedSegment) -> list[str]:
    segment = listed.segment
    return [
        listed.key,
        str(segment.rows),
        str(listed.live_rows),
        size(segment.size),
        f"{segment.first_position}-{segment.last_position}",
        moment(segment.first_at),
        moment(segment.last_at),
        segment.first_name,
        segment.last_name,
    ]


def _stream_row(tally: StreamTally) -> list[str]:
    times = ["-" if at is None else moment(at) for at in (tally.first_at, tally.last_at)]
    numbers = [str(tally.incarnation), str(tally.rows), size(tally.bytes), size(tally.inherited_bytes)]
    return [tally.name, *numbers, *times]


# -- stat --------------------------------------------------------------------------------------------------------------


@verb
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def stat(store: Store, as_json: bool) -> None:
    """Count rows, bytes, streams and leftovers."""
    opened = open_lake(store)
    counted = totals(store, opened.catalog, opened.tombstones, opened.forks)
    heaps = {kind: heap._asdict() for kind, heap in objects(store, opened.catalog, time.time_ns() // 1000).items()}
    facts = {"url": store.url, **counted._asdict()}
    if as_json:
        click.echo(json.dumps({**facts, "objects": heaps}, indent=1))
        return
    rows = [(name.replace("_", " "), _told(name, value)) for name, value in facts.items()]
    rows += [(f"{kind} in store", f"{heap['objects']} ({size(heap['bytes'])})") for kind, heap in heaps.items()]
    columns(("", ""), rows, (False, False), head=False)


def _told(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name.endswith("_at"):
        return moment(value)
    return size(value) if name.endswith("_bytes") else str(value)


# -- verify ------------------------------------------------------------------------------------------------------------


@verb
@click.option("--json-values", is_flag=True, help="Also parse every message of JSON streams.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list of problems.")
def verify(store: Store, json_values: bool, as_json: bool) -> None:
    """Check every byte and every row."""
    if not any(item.key.endswith(".json") for item in store.items("catalog/")):
        no_lake(store)
    with progress() as show:
        verifier = Verifier(store, json_values=json_values, progress=show)
        if as_json:
            json_list(problem._asdict() for problem in verifier.problems())
        else:
            for problem in verifier.problems():
                click.echo(str(problem))
    if count := verifier.found:
        noun = "problem" if count == 1 else "problems"
        fail(f"The lake at {store.url} has {count} {noun}; bring damaged objects back from a copy, and verify again.")
    if not as_json:
        read = f"{verifier.segments} segments, {verifier.rows} rows ({verifier.live_rows} live), {size(verifier.bytes)}"
        say(f"No problem in {read} of {verifier.streams} streams.")


@contextmanager
def progress() -> Iterator[Callable[[int, int], None]]:
    """Shows how far something is, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    with click.progressbar(length=1, label="Verifying", file=sys.stderr) as bar:

        def show(done: int, total: int) -> None:
            bar.length = max(total, 1)
            bar.update(done - bar.pos)

        yield show
