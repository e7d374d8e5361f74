"""`headwater lake sql`: query a lake with DuckDB, which reads the segments through our own store.

The tables:

messages    every live row once, under the name of the stream that it was written to
pinned      rows that are no longer live, but that forks still have
inherited   the rows that a fork shares with its sources, under the name of the fork
streams     every stream, as of when the table was last written
segments, tombstones, forks   the contents of the catalog
"""

import csv
import json
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import pyarrow as pa

from headwater.cli.commands import JSON, verb
from headwater.cli.connecting import HEADER
from headwater.cli.failures import fail
from headwater.cli.lake.opening import DATA, SERVER, OpenLake, failing, find_store, leased, open_lake, segment_facts
from headwater.cli.printing import columns
from headwater.lake.catalog import read_forks_table
from headwater.lake.datasets import dataset
from headwater.lake.format import SCHEMA, split_name
from headwater.lake.iceberg.streams import STREAMS, read_streams
from headwater.lake.scanning import inheritance
from headwater.storage.store import KeyMissing
from headwater.streams.segments import Segment

BATCH_ROWS = 1_000

MISSING = (
    "DuckDB is not installed here; add it with `pip install duckdb`, or read the segments with pyarrow as "
    "docs/reference/lake.md shows."
)

MESSAGES = """
create view messages as
select stored.* from stored
anti join tombstones on stored.incarnation = tombstones.incarnation and stored."offset" < tombstones.below
"""
PINNED = """
create view pinned as
select stored.* from stored
semi join tombstones on stored.incarnation = tombstones.incarnation and stored."offset" < tombstones.below
semi join pieces as piece on stored.incarnation = piece.source_incarnation
    and stored."offset" < piece."to" and stored.next_offset > piece.start
"""
INHERITED = """
create view inherited as
select piece.bucket, piece.stream, piece.incarnation,
    greatest(stored."offset", piece.start) as "offset", least(stored.next_offset, piece."to") as next_offset,
    record, append, position, committed_at, producer_id, producer_epoch, producer_seq, content_type,
    payload[greatest(piece.start - stored."offset", 0) + 1 : least(stored.next_offset, piece."to") - stored."offset"]
        as payload
from stored join pieces as piece on stored.incarnation = piece.source_incarnation
    and stored."offset" < piece."to" and stored.next_offset > piece.start
"""
PIECES = pa.schema(
    [(name, pa.string()) for name in ("bucket", "stream")]
    + [(name, pa.int64()) for name in ("incarnation", "source_incarnation", "start", "to")]
)


@verb(
    "headwater lake sql --data data 'select stream, count(*) from messages group by 1'",
    "headwater lake sql s3://history/headwater 'from segments' --csv",
)
@click.argument("url_and_query", nargs=-1, metavar="[URL] QUERY")
@DATA
@SERVER
@HEADER
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, with a header line.")
@JSON
def sql(
    *,
    url_and_query: tuple[str, ...],
    data: Path | None,
    server: str | None,
    headers: dict[str, str],
    as_csv: bool,
    as_json: bool,
) -> None:
    """Query in SQL, with DuckDB.

    The tables are messages, inherited (what forks share with their sources), pinned (what only forks have), streams,
    segments, tombstones and forks. With --json each line is an object.
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other; choose one.")
    if len(url_and_query) != (2 if data is None else 1):
        raise click.UsageError("Name a lake, by its URL or --data DIR, and give one query in quotes.")
    store = find_store(url_and_query[0] if data is None else None, data)
    try:
        duckdb: Any = import_module("duckdb")
    except ImportError:
        fail(MISSING)
    with failing(), leased(server, headers):
        _query(duckdb, open_lake(store), url_and_query[-1], as_csv, as_json)


def _query(duckdb: Any, opened: OpenLake, query: str, as_csv: bool, as_json: bool) -> None:
    with TemporaryDirectory(prefix="headwater-sql-") as folder:
        # Otherwise DuckDB would download an extension in the middle of a query.
        settings = {
            "autoinstall_known_extensions": "false",
            "python_enable_replacements": "false",
            "temp_directory": folder,
        }
        with duckdb.connect(config=settings) as connection:
            try:
                statements = len(connection.extract_statements(query))
                if statements == 1:
                    _register(connection, opened, with_streams="streams" in query.lower())
                    result = connection.sql(query)
                    if result is not None:
                        _print(result.to_arrow_reader(BATCH_ROWS), as_csv, as_json)
                    return
                invalid, failure = True, f"it has {statements} statements, not one"
            except BrokenPipeError:
                raise
            except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
                invalid, failure = True, _line(error)
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                invalid, failure = False, _line(error)
    # After the handlers: an exception keeps DuckDB alive, which would then print warnings at exit.
    if invalid:
        raise click.UsageError(f"DuckDB does not understand the query: {failure}.")
    _find_missing(opened)
    fail(f"DuckDB could not answer the query: {failure}; change it, or run `headwater lake verify`.")


def _find_missing(opened: OpenLake) -> None:
    """Raise KeyMissing if an object of the lake is gone, since that is why a query failed: DuckDB only quotes it."""
    present = {item.key for item in opened.store.items("segments/")}
    for listed in opened.catalog.segments:
        if listed.key not in present:
            raise KeyMissing(f"There is no object {listed.key} in {opened.store.url}.")


def _register(connection: Any, opened: OpenLake, *, with_streams: bool) -> None:
    """Register the lake's tables with DuckDB; the list of the streams is read only if the query names it."""
    pieces = [
        (*split_name(piece.name), piece.incarnation, piece.source_incarnation, piece.start, piece.to)
        for piece in inheritance(opened.forks)
    ]
    tables = {
        "stored": dataset(opened.store, opened.catalog.segments),
        "tombstones": opened.tombstones,
        "forks": read_forks_table(opened.store, opened.catalog),
        "segments": _segments(opened),
        "pieces": pa.table([list(column) for column in zip(*pieces, strict=True)] or [[]] * len(PIECES), PIECES),
    }
    if with_streams:
        found = read_streams(opened.store)
        tables["streams"] = pa.concat_tables([STREAMS.empty_table(), *(() if found is None else found[1])])
    for name, table in tables.items():
        connection.register(name, table)
    # DuckDB estimates Arrow data at one row, and would build its hash table from the whole lake, not the tombstones.
    connection.execute("set disabled_optimizers = 'join_order,build_side_probe_side'")
    connection.execute(MESSAGES)
    connection.execute(PINNED)
    connection.execute(INHERITED)


def _segments(opened: OpenLake) -> pa.Table:
    facts = [segment_facts(listed) for listed in opened.catalog.segments]
    moment = SCHEMA.field("committed_at").type
    words = ("key", "id", "first_name", "last_name", "low_stream", "high_stream")
    names = ["key", "live_rows", *Segment.__struct_fields__]
    types = {name: pa.string() if name in words else moment if name.endswith("_at") else pa.int64() for name in names}
    return pa.table({name: pa.array([one[name] for one in facts], type) for name, type in types.items()})


# -- Output ------------------------------------------------------------------------------------------------------------


def _print(reader: pa.RecordBatchReader, as_csv: bool, as_json: bool) -> None:
    names = reader.schema.names
    rows = _rows(reader)
    if as_json:
        for row in rows:
            click.echo(json.dumps(dict(zip(names, map(_plain, row), strict=True)), ensure_ascii=False))
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_text(_plain(value), "") for value in row] for row in rows)
    else:
        right = [pa.types.is_integer(kind) or pa.types.is_decimal(kind) for kind in reader.schema.types]
        columns(names, ([_cell(value) for value in row] for row in rows), right, head=True)


def _rows(reader: pa.RecordBatchReader) -> Iterator[tuple[Any, ...]]:
    for batch in reader:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _plain(value: Any) -> Any:
    """Convert a value to JSON's types. Bytes look as in DuckDB: those that are not printable ASCII are \\xNN."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02X}" for byte in value)
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime():
            return (value.astimezone(UTC) if value.tzinfo else value).isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case dict():
            return {str(name): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
    return str(value)


def _text(value: Any, nothing: str) -> str:
    if value is None:
        return nothing
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | dict | list) else str(value)


def _cell(value: Any) -> str:
    return _text(_plain(value), "-").replace("\n", "\\n").replace("\t", "\\t")


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(" Detail: ")[0].strip().rstrip(".!")
