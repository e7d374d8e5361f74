"""Tables that grow by batches: each batch is in the table once, no matter when its attempts were killed."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from headwater.spark.jobs.export.delta import DeltaExport
from headwater.spark.jobs.export.iceberg import CATALOG_FILE, open_catalog
from headwater.spark.jobs.export.job import Exporter, open_table, write_batch
from headwater.spark.jobs.export.ledger import IDENTITY_KEY, check_query, claim, staged_stem
from headwater.spark.jobs.export.parquet import ParquetTable
from headwater.spark.jobs.export.shape import Shape
from headwater.spark.jobs.export.tables import Table, TableOptions, Written
from headwater.spark.jobs.report import JobFailed
from headwater.spark.jobs.verify.exported import export_rows
from headwater.storage.folder import FolderStore
from headwater.storage.opening import open_table_store
from headwater.storage.store import TableStore
from headwater.testing.s3_server import running_s3

from .exported_rows import rows_of, together

FIRST = together(rows_of("a/x", [b'{"id":1}', b"22"]), rows_of("b/y", [b"3"]))
SECOND = rows_of("a/x", [b"4", b"5"], position=20, offset=10, record=2)


class Killed(Exception):
    """Simulates a kill of the driver."""


def frame(spark: SparkSession, rows: pa.Table) -> DataFrame:
    """Rows in two partitions."""
    return spark.createDataFrame(rows).repartition(2, "stream")


def exporter(spark: SparkSession, kind: str, to: Path) -> tuple[Exporter, Table, TableStore]:
    store = open_table_store(str(to))
    columns = spark.createDataFrame(FIRST).schema
    table = open_table(kind, store, TableOptions("export-1", columns))
    return Exporter(store, table), table, store


def payloads(kind: str, to: Path) -> list[bytes]:
    """All payloads in a table, sorted, read by another engine."""
    if kind == "parquet":
        with duckdb.connect() as engine:
            read = f"read_parquet('{to}/**/*.parquet', hive_partitioning=true)"
            return sorted(row[0] for row in engine.execute(f"select payload from {read}").fetchall())
    if kind == "delta":
        return sorted(DeltaTable(to).to_pyarrow_table()["payload"].to_pylist())
    table = open_catalog(FolderStore(to), None).load_table(f"headwater.{to.name}")
    return sorted(table.scan().to_arrow()["payload"].to_pylist())


@pytest.fixture
def to(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "events"


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_batch_is_in_a_table_once_whenever_its_attempts_were_killed(
    kind: str, spark: SparkSession, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export, table, store = exporter(spark, kind, to)
    commit = type(table).commit
    # Killed after the files were stored, before the commit.
    monkeypatch.setattr(type(table), "commit", raising)
    with pytest.raises(Killed):
        export(frame(spark, FIRST), 0)
    # Killed after the commit, before Spark recorded it.
    monkeypatch.setattr(type(table), "commit", lambda *given: raising(commit(*given)))
    with pytest.raises(Killed):
        export(frame(spark, FIRST), 0)
    monkeypatch.setattr(type(table), "commit", commit)
    assert payloads(kind, to) == [b"22", b"3", b'{"id":1}']

    again, table, store = exporter(spark, kind, to)
    again(frame(spark, FIRST), 0)
    again(frame(spark, SECOND), 1)
    assert (again.counts.repeated, again.counts.batches, again.counts.rows) == (1, 1, 2)
    assert payloads(kind, to) == [b"22", b"3", b"4", b"5", b'{"id":1}']
    assert table.position == 21
    assert sorted((file.day, file.bucket) for file in table.files()) == [
        ("2025-11-16", "a"), ("2025-11-16", "a"), ("2025-11-16", "b"), ("2025-11-17", "a"), ("2025-11-17", "a")
    ]  # fmt: skip
    assert not list(store.keys("_headwater/staged/"))
    assert audit(to) == [(0, "a", "x", 0, 8, 10, 2), (0, "b", "y", 0, 0, 1, 1), (1, "a", "x", 10, 11, 12, 2)]


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_if_two_runs_find_a_batch_missing_one_commits_it(kind: str, spark: SparkSession, to: Path) -> None:
    for batch, rows in enumerate((FIRST, SECOND)):
        runs = [exporter(spark, kind, to)[1] for _ in range(2)]
        assert not any(table.has(batch) for table in runs)
        attempts = [stored(frame(spark, rows), table, batch) for table in runs]
        for table, written in zip(runs, attempts, strict=True):
            table.commit(written)
            assert table.has(batch)
    assert payloads(kind, to) == [b"22", b"3", b"4", b"5", b'{"id":1}']


def test_if_two_runs_open_a_delta_table_at_once_one_commits(
    spark: SparkSession, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = (exporter(spark, "delta", to)[1] for _ in range(2))
    first.commit(stored(frame(spark, FIRST), first, 0))
    opened = [DeltaTable(to)]
    open_now = DeltaExport._open
    attempts = [stored(frame(spark, SECOND), table, 1) for table in (first, other)]
    first.commit(attempts[0])
    monkeypatch.setattr(DeltaExport, "_open", lambda self: opened.pop() if opened else open_now(self))
    other.commit(attempts[1])
    assert not opened
    assert payloads("delta", to) == [b"22", b"3", b"4", b"5", b'{"id":1}']


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_of_another_export_is_neither_read_nor_written(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    store, columns = open_table_store(str(tmp_path / "events")), spark.createDataFrame(FIRST).schema
    where = (f"sqlite:///{tmp_path}/catalog.db", "shop.events") if kind == "iceberg" else ()
    one, other = (open_table(kind, store, TableOptions(name, columns, *where)) for name in ("one", "other"))
    Exporter(store, one)(frame(spark, FIRST), 0)
    written = stored(frame(spark, SECOND), other, 1)
    for ask in (lambda: other.has(0), lambda: other.commit(written), lambda: other.position, lambda: [*other.files()]):
        with pytest.raises(
            JobFailed, match=r"^The (Delta|Iceberg) table .*events holds the export 'one', not 'other'; "
        ):
            ask()
    assert (one.has(0), one.has(1), one.position) == (True, False, 11)


def stored(rows: DataFrame, table: Table, batch: int) -> Written:
    """Store the files of an attempt at a batch without committing it."""
    attempt = secrets.token_hex(4)
    return write_batch(rows, table.rules(batch, attempt), f"{staged_stem(batch, attempt)}.audit")


def raising(*_: Any) -> None:
    raise Killed


def audit(to: Path) -> list[tuple[Any, ...]]:
    """The audit of an export, as tuples."""
    found = ds.dataset(to / "_headwater/audit", format="parquet").to_table().to_pylist()
    names = ("batch", "bucket", "stream", "first_offset", "last_offset", "next_offset", "rows")
    return sorted(tuple(row[name] for name in names) for row in found)


def test_the_next_attempt_completes_the_moves_of_a_killed_one(
    spark: SparkSession, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, columns = open_table_store(str(to)), spark.createDataFrame(FIRST).schema
    export = Exporter(store, ParquetTable(store, TableOptions("export-1", columns), moves_at_once=1))
    move = FolderStore.move
    moved: list[str] = []

    def once(self: FolderStore, key: str, name: str) -> None:
        if moved:
            raise Killed
        moved.append(name)
        move(self, key, name)

    monkeypatch.setattr(FolderStore, "move", once)
    with pytest.raises(Killed):
        export(frame(spark, FIRST), 0)
    assert len(payloads("parquet", to)) < 3
    monkeypatch.setattr(FolderStore, "move", move)
    exporter(spark, "parquet", to)[0](frame(spark, FIRST), 0)
    assert payloads("parquet", to) == [b"22", b"3", b'{"id":1}']
    assert not list(store.keys("_headwater/staged/"))


@pytest.mark.spark_slow
@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_table_may_be_on_s3(kind: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_s3() as s3:
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
            # Workers have the environment of the session, which started earlier.
            monkeypatch.setitem(spark.sparkContext.environment, name, value)
        store = open_table_store(f"s3://{s3.bucket}/tables/{kind}")
        columns = spark.createDataFrame(FIRST).schema
        catalog = f"sqlite:///{tmp_path}/catalog.db" if kind == "iceberg" else None
        table = open_table(kind, store, TableOptions("export-1", columns, catalog))
        export = Exporter(store, table)
        for rows, batch in ((FIRST, 0), (FIRST, 0), (SECOND, 1)):
            export(frame(spark, rows), batch)
        assert (export.counts.repeated, export.counts.rows, table.position) == (1, 5, 21)
        assert export_rows(spark, store.location, list(table.files()), Shape()).count() == 5


def test_typed_columns_and_variants_are_read_back_with_what_did_not_fit(spark: SparkSession, to: Path) -> None:
    shapes = {
        "typed": Shape("id long, at timestamp"),
        "inside": Shape("id long", into="value"),
        "any": Shape(variant=True),
    }
    given = rows_of("a/x", [b'{"id":1,"at":"2025-01-02T03:04:05Z"}', b'{"id":"no"}', b"\xff"])
    for name, shape in shapes.items():
        shape.check()
        rows = shape.apply(spark.createDataFrame(given))
        store = open_table_store(str(to / name))
        table = open_table("parquet", store, TableOptions(name, rows.schema))
        Exporter(store, table)(rows, 0)
    read = spark.read.parquet
    typed = read(str(to / "typed")).selectExpr("id", "cast(at as string)", "_corrupt", "payload").orderBy("offset")
    assert [tuple(row) for row in typed.collect()] == [
        (1, "2025-01-02 03:04:05", None, bytearray(given["payload"][0].as_py())),
        (None, None, '{"id":"no"}', bytearray(b'{"id":"no"}')),
        (None, None, "\ufffd", bytearray(b"\xff")),
    ]
    assert [row[0] for row in read(str(to / "inside")).orderBy("offset").selectExpr("value.id").collect()] == [
        1,
        None,
        None,
    ]
    found = read(str(to / "any")).orderBy("offset").selectExpr("variant_get(value, '$.id', 'string')", "bucket")
    assert [tuple(row) for row in found.collect()] == [("1", "a"), ("no", "a"), (None, "a")]


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_every_engine_reads_the_name_of_a_bucket_as_it_is(kind: str, spark: SparkSession, to: Path) -> None:
    names = ["0007", "1e3", "2025-11-16", "50%=½", "_load", "true"]
    given = together(*(rows_of(f"{name}/x", [b"1"]) for name in names))
    exporter(spark, kind, to)[0](frame(spark, given), 0)
    if kind == "parquet":
        assert sorted(ds.dataset(to, partitioning="hive").to_table()["bucket"].to_pylist()) == names
        assert sorted(ds.dataset(to).to_table()["bucket"].to_pylist()) == names
        found = spark.read.parquet(str(to))
        assert sorted(tuple(row) for row in found.selectExpr("bucket", "string(day)").collect()) == [
            (name, "2025-11-16") for name in names
        ]
        assert found.where("bucket = '0007' AND day = date'2025-11-16'").count() == 1
        with duckdb.connect() as engine:
            for hive in ("", ", hive_partitioning=true"):
                read = f"read_parquet('{to}/**/*.parquet'{hive})"
                assert engine.execute(f"select bucket from {read} order by 1").fetchall() == [(name,) for name in names]
    elif kind == "delta":
        assert sorted(DeltaTable(to).to_pyarrow_table()["bucket"].to_pylist()) == names
    else:
        table = open_catalog(FolderStore(to), None).load_table(f"headwater.{to.name}")
        assert sorted(table.scan().to_arrow()["bucket"].to_pylist()) == names


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        (Shape("id lonk"), "is not valid"),
        (Shape("id long", variant=True), "exclude each other"),
        (Shape(into="value"), "needs --schema"),
        (Shape("offset long"), "The column name 'offset' is taken by a column of the lake; .* with --into value"),
        (Shape("id long", into="Stream"), "choose another name"),
    ],
)
def test_invalid_columns_are_refused(shape: Shape, problem: str, spark: SparkSession) -> None:
    with pytest.raises(JobFailed, match=problem):
        shape.check()


def test_a_store_belongs_to_one_export(tmp_path: Path) -> None:
    store, one = FolderStore(tmp_path), {"log_id": "j", "format": "delta"}
    claimed = claim(store, one, None)
    assert claimed.name.startswith(f"export-{tmp_path.name}-")
    assert claim(store, one, None) == claim(store, one, claimed.name) == claimed
    with pytest.raises(JobFailed, match=r'holds an export in another format \("delta", not "parquet"\)'):
        claim(store, {**one, "format": "parquet"}, None)
    with pytest.raises(JobFailed, match="holds an export of another name"):
        claim(store, one, "other")


def test_an_export_that_starts_over_under_its_name_is_another_one(tmp_path: Path) -> None:
    first, again = (claim(FolderStore(tmp_path / folder), {"format": "iceberg"}, "orders") for folder in "ab")
    assert first.name == again.name == "orders"
    assert first.export_id != again.export_id


def test_an_export_of_an_earlier_version_is_known_by_its_name(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.create(IDENTITY_KEY, b'{"version": 1, "format": "iceberg", "name": "orders"}')
    assert claim(store, {"format": "iceberg", "table": "shop.events"}, None) == ("orders", "orders")


def test_a_table_belongs_to_one_checkpoint(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    with pytest.raises(JobFailed, match="is at batch 3, but"):
        check_query(store, "q", 3)
    check_query(store, "q", 0)
    check_query(store, "q", 4)
    with pytest.raises(JobFailed, match="belongs to another checkpoint"):
        check_query(store, "other", 0)


def test_the_default_catalog_of_an_iceberg_table_is_beside_its_data(tmp_path: Path) -> None:
    open_catalog(FolderStore(tmp_path / "new"), None)
    assert (tmp_path / "new" / CATALOG_FILE).exists()
