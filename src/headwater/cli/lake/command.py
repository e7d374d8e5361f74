"""`headwater lake`: inspect, verify and query a lake, without a server."""

import json
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from headwater.cli.commands import JSON, Verbs
from headwater.cli.connecting import HEADER, check_url
from headwater.cli.failures import fail
from headwater.cli.lake.opening import DATA, SERVER, failing, find_store, leased, no_lake, open_lake, segment_facts
from headwater.cli.lake.sql import sql
from headwater.cli.printing import Progress, counted, facts, json_list, listing, moment, size
from headwater.lake.catalog import ListedSegment
from headwater.lake.iceberg.messages import NAME
from headwater.lake.iceberg.reading import read_newest
from headwater.lake.iceberg.tables import NAMESPACE, table_url
from headwater.lake.inventory import StreamTally, TableTally, objects, streams, tables, totals
from headwater.lake.scanning import may_have
from headwater.lake.verify.verifier import Verifier
from headwater.storage.s3 import iceberg_options
from headwater.storage.store import Store

ENGINES = ("pyiceberg", "polars", "duckdb", "spark", "trino")
ICEBERG_RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


@click.group(cls=Verbs, aliases={"stat": "show"})
def lake() -> None:
    """Inspect, verify and query a lake; no server is needed."""


lake.add_command(sql)


def verb(*lines: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command, with examples, that finds its lake by a URL or by the data directory of a server."""

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
        listing(as_json, tables(store), TableTally._asdict, _table_row, heads=TABLE_HEADS, right=TABLE_RIGHT)
    elif by_stream:
        tallies = streams(store, opened.catalog, opened.tombstones, opened.forks, prefix)
        listing(as_json, tallies, StreamTally._asdict, _stream_row, heads=STREAM_HEADS, right=STREAM_RIGHT)
    else:
        listed = [one for one in opened.catalog.segments if may_have(one.segment, prefix)]
        listed.sort(key=lambda one: one.key)
        listing(as_json, listed, segment_facts, _segment_row, heads=SEGMENT_HEADS, right=SEGMENT_RIGHT)


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


# -- catalog -----------------------------------------------------------------------------------------------------------


@lake.verb(
    "headwater lake catalog --data data",
    "headwater lake catalog s3://history/headwater --server http://localhost:4437",
)
@click.argument("url", required=False)
@DATA
@click.option(
    "--server", metavar="URL", callback=check_url, help="URL of the lake's server, which is then the catalog."
)
@click.option("--engine", type=click.Choice(ENGINES), help="Print the configuration of one engine only.")
@JSON
def catalog(url: str | None, data: Path | None, server: str | None, engine: str | None, as_json: bool) -> None:
    """Print the configuration that other engines need."""
    place = table_url(find_store(url, data).url)
    uri = None if server is None else f"{server.rstrip('/')}/iceberg"
    found = {name: _CONFIGURATIONS[name](place, uri) for name in (ENGINES if engine is None else (engine,))}
    if as_json:
        click.echo(json.dumps(found))
    elif engine is not None:
        click.echo(found[engine])
    else:
        for name, text in found.items():
            click.echo(f"# {name}\n{text}\n")


def _pyiceberg(place: str, uri: str | None) -> str:
    if uri is None:
        return (
            "from pyiceberg.table import StaticTable\n"
            f'messages = StaticTable.from_metadata("{place}/messages"{_options(place)})'
        )
    return (
        "from pyiceberg.catalog import load_catalog\n"
        f'catalog = load_catalog("{NAMESPACE}", uri="{uri}"{_options(place, ", **")})\n'
        f'messages = catalog.load_table("{NAMESPACE}.messages")'
    )


def _options(place: str, before: str = ", ") -> str:
    """The endpoint and the region of S3, if the environment names them."""
    if not place.startswith("s3:"):
        return ""
    return f"{before}{iceberg_options()!r}"


def _polars(place: str, uri: str | None) -> str:
    return f"{_pyiceberg(place, uri)}\nimport polars\nframe = polars.scan_iceberg(messages)"


def _duckdb(place: str, uri: str | None) -> str:
    if uri is None:
        return (
            "install iceberg; load iceberg;\n"
            f"from iceberg_scan('{place}/messages', version_name_format => '%s%s.metadata.json');"
        )
    attach = f"attach '' as {NAMESPACE} (type iceberg, endpoint '{uri}', authorization_type 'none')"
    return f"install iceberg; load iceberg;\n{attach};\nfrom {NAMESPACE}.{NAMESPACE}.messages;"


def _spark(place: str, uri: str | None) -> str:
    if uri is None:
        return (
            f"spark.jars.packages {ICEBERG_RUNTIME}\n"
            f"# then, with the newest file of {place}/messages/metadata:\n"
            f'# spark.read.format("iceberg").load("{place}/messages/metadata/VERSION.metadata.json")'
        )
    lines = [
        f"spark.jars.packages {ICEBERG_RUNTIME}",
        f"spark.sql.catalog.{NAMESPACE} org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{NAMESPACE}.type rest",
        f"spark.sql.catalog.{NAMESPACE}.uri {uri}",
    ]
    if place.startswith("s3:"):
        lines.append(f"spark.sql.catalog.{NAMESPACE}.io-impl org.apache.iceberg.aws.s3.S3FileIO")
    return "\n".join(lines)


def _trino(place: str, uri: str | None) -> str:
    files = "fs.native-s3.enabled=true" if place.startswith("s3:") else "fs.hadoop.enabled=true"
    catalog = f"iceberg.rest-catalog.uri={uri or 'http://SERVER/iceberg'}"
    return "\n".join(("connector.name=iceberg", "iceberg.catalog.type=rest", catalog, files))


_CONFIGURATIONS = {"pyiceberg": _pyiceberg, "polars": _polars, "duckdb": _duckdb, "spark": _spark, "trino": _trino}
