"""The files that a task of an export writes, without Spark."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from headwater.spark.jobs.export.files import AuditTally, FileLimits, FileRules, by_day_and_bucket, write_files
from headwater.spark.jobs.export.parquet import ParquetTable, folder
from headwater.spark.jobs.export.tables import TableOptions
from headwater.spark.jobs.report import JobFailed, open_location

from .exported_rows import NULLABLE, rows_of, together

FILE = pa.schema([field for field in NULLABLE if field.name not in ("bucket", "day")])


LIMITS = FileLimits()


def written(to: Path, *batches: pa.Table, limits: FileLimits = LIMITS) -> list[dict[str, object]]:
    """Write batches of rows, and return what the task reports of its files."""
    rules = FileRules(str(to), 0, "out/0", ".parquet", "parts/0", FILE, limits=limits)
    given = (one.to_batches()[0] for one in batches)
    return [fact for report in write_files(rules, given) for fact in report.to_pylist()]


def test_an_invalid_location_is_refused_in_one_sentence() -> None:
    with pytest.raises(JobFailed, match="is not a valid table URL; use a path"):
        open_location("gs://bucket/x")


def test_a_task_writes_a_file_for_every_day_and_bucket(tmp_path: Path) -> None:
    given = together(rows_of("a/x", [b"1", b"22", b"333"]), rows_of("b/y", [b"4"]))
    facts = [fact for fact in written(tmp_path, given) if fact["kind"] == "data"]
    assert [(fact["day"], fact["bucket"], fact["rows"], fact["bytes"]) for fact in facts] == [
        ("2025-11-16", "a", 1, 1),
        ("2025-11-16", "b", 1, 1),
        ("2025-11-17", "a", 2, 5),
    ]
    assert [fact["position"] for fact in facts] == [10, 10, 12]
    last = pq.read_table(tmp_path / str(facts[-1]["key"]))
    assert last.schema.remove_metadata().equals(FILE)
    assert last.equals(given.slice(1, 2).select(FILE.names))
    assert Path(tmp_path, str(facts[-1]["key"])).stat().st_size == facts[-1]["size"]


def test_a_task_without_rows_writes_nothing(tmp_path: Path) -> None:
    assert written(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_rows_keep_their_order_however_days_and_buckets_are_mixed() -> None:
    one = rows_of("a/x", [b"1", b"2", b"3", b"4", b"5"])
    mixed = together(one, rows_of("b/y", [b"6", b"7"]), one)
    found = list(by_day_and_bucket(mixed))
    assert sum(len(rows) for _, _, rows in found) == len(mixed)
    for _, bucket, rows in found:
        assert set(rows["bucket"].to_pylist()) == {bucket}
        assert len(pc.unique(rows["committed_at"].cast(pa.date32()))) == 1
        before = [row for row in mixed.to_pylist() if row in rows.to_pylist()]
        assert before == rows.to_pylist()


def test_a_task_that_holds_too_much_finishes_its_largest_file(tmp_path: Path) -> None:
    small, large = rows_of("a/x", [b"1"]), rows_of("b/y", [bytes(3_000)])
    facts = written(tmp_path, together(small, large), small, limits=FileLimits(open_bytes_max=2_000))
    assert [(fact["bucket"], fact["rows"]) for fact in facts if fact["kind"] == "data"] == [("b", 1), ("a", 2)]


def test_a_large_file_is_followed_by_another(tmp_path: Path) -> None:
    limits = FileLimits(group_bytes=1, file_bytes=1)
    facts = written(tmp_path, rows_of("a/x", [b"1"]), rows_of("a/x", [b"2"], offset=1), limits=limits)
    assert [fact["rows"] for fact in facts if fact["kind"] == "data"] == [1, 1]


def test_the_audit_of_a_task_counts_every_life_once() -> None:
    tally = AuditTally(7, fold_rows=2)
    tally.add(together(rows_of("a/x", [b"1", b"22"]), rows_of("a/y", [b"3"]), rows_of("a/x", [b"4"], incarnation=9)))
    tally.add(rows_of("a/x", [b"333"], offset=3, position=20))
    found = sorted(tally.result().to_pylist(), key=lambda row: (row["stream"], row["incarnation"]))
    assert [tuple(row.values()) for row in found] == [
        (7, "a", "x", 1, 0, 3, 6, 20, 3, 6),
        (7, "a", "x", 9, 0, 0, 1, 10, 1, 1),
        (7, "a", "y", 1, 0, 0, 1, 10, 1, 1),
    ]


@pytest.mark.parametrize("bucket", ["plain", "_default", "50% = ½", "a:b", "12"])
def test_the_folder_of_a_bucket_names_it(bucket: str, tmp_path: Path) -> None:
    path = tmp_path / folder("2025-11-16", bucket) / "x.parquet"
    path.parent.mkdir(parents=True)
    path.touch()
    table = ParquetTable(open_location(str(tmp_path)), TableOptions("export-1", StructType()))
    assert [(file.day, file.bucket) for file in table.files()] == [("2025-11-16", bucket)]
