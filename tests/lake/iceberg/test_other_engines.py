"""Other engines open the lake's tables without any code of ours, and find exactly the rows that our own scan finds."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TypeAlias
from urllib.parse import quote

import polars
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import StaticTable

from headwater.client import Admin, Client
from headwater.lake.catalog import FORKS, read_catalog, read_forks, read_forks_table, read_tombstones
from headwater.lake.datasets import dataset
from headwater.lake.format import SCHEMA
from headwater.lake.iceberg.pinned_rows import merged
from headwater.lake.iceberg.streams import STREAMS, read_streams
from headwater.lake.scanning import Inherited, inheritance, live_rows
from headwater.lake.verify.tables import pinned_spans
from headwater.storage.folder import FolderStore
from headwater.storage.s3 import iceberg_options
from headwater.storage.store import Store
from headwater.testing import running_server
from headwater.testing.s3_server import REGION, RunningS3

from ...duckdb_iceberg import connect
from ..built_lakes import act_randomly, tell_a_story, writing

Engine: TypeAlias = Callable[[str], pa.Table]
"""Reads the whole table in a folder."""

ORDER = [("bucket", "ascending"), ("stream", "ascending"), ("incarnation", "ascending"), ("offset", "ascending")]


def our_rows(store: Store) -> pa.Table:
    """The live rows, under the names they were written to, by our own scan."""
    catalog = read_catalog(store)
    assert catalog is not None
    plan = live_rows(catalog, read_tombstones(store, catalog), (), inherited=False)
    batches = dataset(store, plan.segments).to_batches()
    tables = [plan.own(pa.Table.from_batches([batch])) for batch in batches]
    return pa.concat_tables([SCHEMA.empty_table(), *tables]).sort_by(ORDER)


def our_pinned_rows(store: Store) -> pa.Table:
    """The rows that only forks have, by their offsets."""
    catalog = read_catalog(store)
    assert catalog is not None
    tombstones = {row["incarnation"]: row["below"] for row in read_tombstones(store, catalog).to_pylist()}
    pieces: dict[int, list[Inherited]] = {}
    for piece in inheritance(read_forks(store, catalog)):
        pieces.setdefault(piece.source_incarnation, []).append(piece)
    found = [SCHEMA.empty_table()]
    for batch in dataset(store, catalog.segments).to_batches():
        rows = pa.Table.from_batches([batch])
        spans = merged(pinned_spans(rows, 0, tombstones, pieces))
        found += [rows.slice(first, end - first) for first, end in spans]
    return pa.concat_tables(found).sort_by(ORDER)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Engine]]:
    """pyiceberg, Polars and DuckDB."""
    with connect(tmp_path_factory.mktemp("home")) as duckdb:
        yield [
            lambda table: StaticTable.from_metadata(table).scan().to_arrow(),
            lambda table: polars.scan_iceberg(StaticTable.from_metadata(table)).collect().to_arrow(),
            lambda table: duckdb.sql(f"from iceberg_scan('{table}')").to_arrow_table(),
        ]


def in_our_types(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table.cast(schema).replace_schema_metadata(None).combine_chunks()


def check(engines: list[Engine], data: Path) -> int:
    """Compare the tables row by row; the number of rows of `messages`."""
    store = FolderStore(data / "lake")
    catalog = read_catalog(store)
    assert catalog is not None
    messages = in_our_types(our_rows(store), SCHEMA)
    forks = in_our_types(read_forks_table(store, catalog), FORKS)
    pinned = in_our_types(our_pinned_rows(store), SCHEMA)
    listed = read_streams(store)
    assert listed is not None
    streams = in_our_types(pa.concat_tables([STREAMS.empty_table(), *listed[1]]), STREAMS)
    for engine in engines:
        assert in_our_types(engine(f"{data}/lake/pinned"), SCHEMA).sort_by(ORDER).equals(pinned)
        assert in_our_types(engine(f"{data}/lake/streams"), STREAMS).sort_by(ORDER[:2]).equals(streams)
        assert in_our_types(engine(f"{data}/lake/messages"), SCHEMA).sort_by(ORDER).equals(messages)
        assert in_our_types(engine(f"{data}/lake/forks"), FORKS).equals(forks)
    return len(messages)


def test_they_find_the_rows_of_our_own_scan(engines: list[Engine], tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        tell_a_story(writer)
        assert check(engines, tmp_path) > 20
        writer.delete("/team/plain")
        writer.trim("/team/source", 6)
        writer.flush()
        assert check(engines, tmp_path) > 10
    with writing(tmp_path) as writer:
        writer.make("/team/after-a-restart", b"one more")
        writer.flush()
        check(engines, tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_they_agree_after_a_random_history(engines: list[Engine], seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    for part in "abc":
        with writing(tmp_path) as writer:
            act_randomly(writer, random, 25, part)
            check(engines, tmp_path)
            for name in sorted(writer.contents())[:2]:
                writer.delete(f"/{name}")
            writer.flush()
            check(engines, tmp_path)


def test_a_file_of_one_bucket_declares_its_order(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        writer.make("/team/x", b"one bucket")
        writer.flush()
        writer.make("/team/y", b"two")
        writer.make("/team-a/x", b"buckets")
        writer.flush()
    for name, orders in (("messages", [1, None]), ("streams", [1])):
        table = StaticTable.from_metadata(f"{tmp_path}/lake/{name}")
        assert table.sort_order().order_id == 0
        columns = [table.schema().find_column_name(one.source_id) for one in table.sort_orders()[1].fields]
        assert columns == [column for column, _ in ORDER if column in table.schema().column_names]
        files = sorted((task.file for task in table.scan().plan_files()), key=lambda file: file.file_path)
        assert [file.sort_order_id for file in files] == orders


def test_a_filter_reads_only_the_files_that_may_match(tmp_path: Path) -> None:
    with writing(tmp_path) as writer:
        for number in range(6):
            writer.make(f"/team/s{number}", b"x" * 10)
            writer.flush()
        table = StaticTable.from_metadata(f"{tmp_path}/lake/messages")
        assert len(list(table.scan().plan_files())) == 6
        [found] = table.scan(row_filter="stream == 's4'").plan_files()
        assert found.file.record_count == 1
        assert not list(table.scan(row_filter="bucket == 'other'").plan_files())
        assert len(list(table.scan(row_filter="offset >= 10").plan_files())) == 0


def test_a_filter_by_bucket_finds_its_rows_whatever_characters_buckets_have(tmp_path: Path) -> None:
    buckets = ["team", "team b", "team.b", "team+", "team-a", "zoo", "é", "é!"]
    with writing(tmp_path) as writer:
        for bucket in buckets:
            writer.ask("PUT", f"/v1/stream/{quote(bucket)}/x", body=b"row")
        writer.flush()
        table = StaticTable.from_metadata(f"{tmp_path}/lake/messages")
        assert [len(table.scan(row_filter=f"bucket == '{bucket}'").to_arrow()) for bucket in buckets] == [1] * 8


def test_they_read_a_lake_on_s3_through_the_servers_catalog(s3: RunningS3, s3_url: str, tmp_path: Path) -> None:
    with (
        running_server("--lake", s3_url, data=tmp_path / "data") as server,
        Client(server.url) as client,
        Admin(server.url) as admin,
    ):
        for name in ("kept", "gone"):
            client.stream(f"shop/{name}").create("text/plain", body=b"one")
        admin.flush()
        client.stream("shop/gone").delete()
        admin.flush()
        table = RestCatalog("headwater", uri=f"{server.url}/iceberg", **iceberg_options()).load_table(
            "headwater.messages"
        )
        assert table.scan().to_arrow()["stream"].to_pylist() == ["kept"]
        assert polars.scan_iceberg(table, storage_options=s3.environment).collect()["stream"].to_list() == ["kept"]
        with connect(tmp_path) as duckdb:
            duckdb.sql(
                f"create secret (type s3, key_id '{s3.access_key}', secret '{s3.secret_key}', region '{REGION}', "
                f"endpoint '{s3.endpoint.removeprefix('http://')}', use_ssl false, url_style 'path')"
            )
            duckdb.sql(
                f"attach '' as lake (type iceberg, endpoint '{server.url}/iceberg', authorization_type 'none', "
                "access_delegation_mode 'none')"
            )
            assert duckdb.sql("select stream from lake.headwater.messages").fetchall() == [("kept",)]
            assert duckdb.sql(f"select stream from iceberg_scan('{s3_url}/messages')").fetchall() == [("kept",)]
