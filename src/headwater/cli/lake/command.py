"""`headwater lake`: inspect, verify and query a lake, without a server."""

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

from headwater.cli.commands import JSON, Verbs
from headwater.cli.connecting import HEADER
from headwater.cli.failures import fail
from headwater.cli.lake.leasing import SERVER, leased
from headwater.cli.printing import columns, counted, facts, json_list, moment, size
from headwater.cli.progress import Progress
from headwater.lake.catalog import Catalog, ForkRow, ListedSegment, read_catalog, read_forks, read_tombstones
from headwater.lake.damage import LakeDamaged
from headwater.lake.iceberg.messages import NAME
from headwater.lake.iceberg.reading import read_newest
from headwater.lake.inventory import StreamTally, TableTally, objects, streams, tables, totals
from headwater.lake.scanning import may_have
from headwater.lake.segments.reader import SegmentDamaged
from headwater.lake.verify.verifier import Verifier
from headwater.storage.opening import open_store
from headwater.storage.store import KeyMissing, Store, StoreFailed

NEXT_STEP = "run `headwater lake verify` to see what else is wrong"
REPLACED = "the server may have replaced it meanwhile, so try again, with --server if it takes long"


class OpenLake(NamedTuple):
    """A lake as of its newest catalog."""

    store: Store
    catalog: Catalog
    tombstones: pa.Table
    forks: list[ForkRow]


@click.group(cls=Verbs, aliases={"stat": "show"})
def lake() -> None:
    """Inspect, verify and query a lake; no server is needed."""


DATA = click.option(
    "--data", type=click.Path(path_type=Path), help="Data directory of a server that keeps its lake there."
)


def verb(*lines: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command, with examples, on a lake that is named by its URL or by the data directory of its server."""

    def decorate(command: Callable[..., None]) -> click.Command:
        @wraps(command)
        def run(
            url: str | None, data: Path | None, server: str | None, headers: dict[str, str], **options: Any
        ) -> None:
            store = find_store(url, data)
            with failing(), leased(server, headers):
                command(store, **options)

        options = click.argument("url", required=False)(DATA(SERVER(HEADER(run))))
        return lake.verb(*lines)(options)

    return decorate


def find_store(url: str | None, data: Path | None) -> Store:
    """Return the store that the command line names."""
    if url is not None and data is None:
        place = url
    elif data is not None and url is None:
        place = str(data / "lake")
    else:
        raise click.UsageError("Name a lake: either its folder or s3://bucket/prefix, or --data DIR.")
    if place == "memory:":
        raise click.UsageError("A lake in memory exists only inside its server; name a folder or s3://bucket/prefix.")
    try:
        return open_store(place)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def failing() -> Iterator[None]:
    """End with one sentence if anything is wrong with the lake."""
    try:
        yield
    except (LakeDamaged, SegmentDamaged) as error:
        fail(f"{str(error).rstrip('.')}; {NEXT_STEP}.")
    except KeyMissing as error:
        fail(
            f"{str(error).rstrip('.')}, although the catalog lists it; {REPLACED}, and if that fails too, {NEXT_STEP}."
        )
    except StoreFailed as error:
        fail(f"{str(error).rstrip('.')}; check the URL, the permissions and, for S3, the AWS_ variables.")


def open_lake(store: Store) -> OpenLake:
    """Return the lake in a store, or end with a sentence if there is none."""
    catalog = read_catalog(store)
    if catalog is None:
        no_lake(store)
    return OpenLake(store, catalog, read_tombstones(store, catalog), read_forks(store, catalog))


def no_lake(store: Store) -> NoReturn:
    fail(f"There is no lake at {store.url}; check the URL, or write one with `headwater flush`.")


# -- ls ----------------------------------------------------------------------------------------------------------------

SEGMENT_HEADS = ("KEY", "ROWS", "LIVE", "SIZE", "POSITIONS", "FROM", "TO", "FIRST", "LAST")
SEGMENT_RIGHT = (False, True, True, True, True, False, False, False, False)
STREAM_HEADS = ("STREAM", "INCARNATION", "ROWS", "BYTES", "INHERITED", "FROM", "TO")
STREAM_RIGHT = (False, True, True, True, True, False, False)


TABLE_HEADS = ("TABLE", "VERSION", "SNAPSHOTS", "FILES", "ROWS", "POSITION", "WRITTEN")
TABLE_RIGHT = (False, True, True, True, True, True, False)


@verb("headwater lake ls --data data", "headwater lake ls s3://history/headwater --streams --prefix team/")
@click.option("--streams", "by_stream", is_flag=True, help="List streams instead; reads the names in every segment.")
@click.option("--tables", "by_table", is_flag=True, help="List the Iceberg tables instead.")
@click.option(
    "--prefix", default="", help="Only streams (bucket/stream) that begin with this, or segments that may hold them."
)
@JSON
def ls(store: Store, by_stream: bool, by_table: bool, prefix: str, as_json: bool) -> None:
    """List segments, streams, or tables."""
    if by_table and (by_stream or prefix):
        raise click.UsageError("--tables is for the whole lake; leave out --streams and --prefix.")
    opened = open_lake(store)
    if by_table:
        found = tables(store)
        if as_json:
            json_list(one._asdict() for one in found)
        else:
            columns(TABLE_HEADS, map(_table_row, found), TABLE_RIGHT, head=sys.stdout.isatty())
        return
    if by_stream:
        tallies = streams(store, opened.catalog, opened.tombstones, opened.forks, prefix)
        if as_json:
            json_list(tally._asdict() for tally in tallies)
        else:
            columns(STREAM_HEADS, map(_stream_row, tallies), STREAM_RIGHT, head=sys.stdout.isatty())
        return
    listed = [one for one in opened.catalog.segments if may_have(one.segment, prefix)]
    listed.sort(key=lambda one: one.key)
    if as_json:
        json_list(map(segment_facts, listed))
    else:
        columns(SEGMENT_HEADS, map(_segment_row, listed), SEGMENT_RIGHT, head=sys.stdout.isatty())


def segment_facts(listed: ListedSegment) -> dict[str, Any]:
    """Return all members of a segment in the catalog, without nesting."""
    members = {name: getattr(listed.segment, name) for name in listed.segment.__struct_fields__}
    return {"key": listed.key, "live_rows": listed.live_rows, **members}


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


def _table_row(tally: TableTally) -> list[str]:
    *numbers, updated_ms = tally[1:]
    return [tally.table, *map(str, numbers), moment(updated_ms * 1000)]


def _stream_row(tally: StreamTally) -> list[str]:
    times = ["-" if at is None else moment(at) for at in (tally.first_at, tally.last_at)]
    numbers = [str(tally.incarnation), str(tally.rows), size(tally.bytes), size(tally.inherited_bytes)]
    return [tally.name, *numbers, *times]


# -- show --------------------------------------------------------------------------------------------------------------


@verb("headwater lake show --data data")
@JSON
def show(store: Store, as_json: bool) -> None:
    """Show how many rows, bytes, streams and leftovers there are."""
    opened = open_lake(store)
    tally = totals(store, opened.catalog, opened.tombstones, opened.forks)
    stored = {kind: heap._asdict() for kind, heap in objects(store, opened.catalog, time.time_ns() // 1000).items()}
    members = {"url": store.url, **tally._asdict()}
    listed = {one.table: one._asdict() for one in tables(store)}
    if as_json:
        click.echo(json.dumps({**members, "tables": listed, "objects": stored}, indent=1))
        return
    rows = [(name.replace("_", " "), _shown(name, value)) for name, value in members.items()]
    rows += [(f"rows of {name}", str(one["rows"])) for name, one in listed.items()]
    rows += [(f"{kind} in store", f"{heap['objects']} ({size(heap['bytes'])})") for kind, heap in stored.items()]
    facts(rows)


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name.endswith("_at"):
        return moment(value)
    return size(value) if name.endswith("_bytes") else str(value)


# -- verify ------------------------------------------------------------------------------------------------------------


@verb("headwater lake verify --data data", "headwater lake verify s3://history/headwater --json-values")
@click.option("--json-values", is_flag=True, help="Also parse every message of JSON streams.")
@JSON
def verify(store: Store, json_values: bool, as_json: bool) -> None:
    """Check every byte and every row; print one line per problem."""
    if read_newest(store, NAME) is None:
        no_lake(store)
    with Progress("Verifying") as progress:
        verifier = Verifier(store, json_values=json_values, progress=progress.update)
        if as_json:
            json_list(problem._asdict() for problem in verifier.problems())
        else:
            for problem in verifier.problems():
                click.echo(str(problem))
    if count := verifier.found:
        problems = counted(count, "problem")
        fail(f"The lake at {store.url} has {problems}; restore damaged objects from a backup, and verify again.")
    if not as_json:
        rows = f"{counted(verifier.rows, 'row')} ({verifier.live_rows:,} live)"
        checked = f"{counted(verifier.segments, 'segment')}, {rows}, {size(verifier.bytes)}"
        click.echo(f"The lake is intact: {checked} of {counted(verifier.streams, 'stream')}.")
