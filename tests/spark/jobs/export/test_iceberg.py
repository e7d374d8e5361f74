"""A commit to an Iceberg table costs the same however many there were before."""

from pathlib import Path

import pytest

from headwater.lake.format import SCHEMA
from headwater.spark.jobs.export import iceberg
from headwater.spark.jobs.export.files import DataFile, write_files
from headwater.spark.jobs.export.iceberg import IcebergExport, open_catalog
from headwater.spark.jobs.export.tables import TableOptions, Written
from headwater.spark.schemas import spark_schema
from headwater.storage.folder import FolderStore

from .exported_rows import rows_of


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IcebergExport:
    """A table that keeps little, so that a few commits suffice."""
    monkeypatch.setattr(iceberg, "SNAPSHOTS_KEPT", 10)
    monkeypatch.setattr(iceberg, "SNAPSHOTS_EXPIRED_AT_ONCE", 5)
    monkeypatch.setattr(iceberg, "METADATA_FILES_KEPT", 3)
    monkeypatch.setattr(iceberg, "MANIFESTS_TO_MERGE", 5)
    columns = spark_schema(SCHEMA)
    return IcebergExport(FolderStore(tmp_path / "events"), TableOptions("export-1", columns))


def commit(table: IcebergExport, batches: range) -> None:
    """Commit batches of one row each."""
    for batch in batches:
        rows = rows_of("a/x", [b"%d" % batch], position=batch)
        reports = write_files(table.rules(batch, "attempt"), iter(rows.to_batches()))
        facts = [fact for report in reports for fact in report.to_pylist() if fact["kind"] == "data"]
        table.commit(Written(batch, [DataFile(**{name: fact[name] for name in DataFile._fields}) for fact in facts], 1))


def metadata(tmp_path: Path) -> dict[Path, int]:
    """The files of the table's metadata, and their sizes."""
    return {path: path.stat().st_size for path in (tmp_path / "events/metadata").iterdir() if path.suffix != ".crc"}


def test_metadata_does_not_grow_with_the_number_of_commits(table: IcebergExport, tmp_path: Path) -> None:
    commit(table, range(30))
    first = metadata(tmp_path)
    commit(table, range(30, 60))
    last = metadata(tmp_path)
    # For each snapshot a list of manifests and its own manifest, merged ones, and a few files for the whole table.
    assert len(last) <= 2 * (10 + 5) + 10
    assert len(last) <= len(first) + 5
    newest = [max(size for path, size in found.items() if path.name.endswith(".json")) for found in (first, last)]
    assert newest[1] < newest[0] * 1.2
    assert len(list((tmp_path / "events/data").glob("*.parquet"))) == 60, "data is not metadata"
    assert sum(1 for _ in table.files()) == 60
    assert (table.has(59), table.has(60), table.position) == (True, False, 59)


def test_a_table_has_at_most_30_snapshots(tmp_path: Path) -> None:
    columns = spark_schema(SCHEMA)
    commit(IcebergExport(FolderStore(tmp_path / "events"), TableOptions("export-1", columns)), range(45))
    opened = open_catalog(FolderStore(tmp_path / "events"), None).load_table("headwater.events")
    assert 20 <= len(opened.snapshots()) <= 30


def test_the_snapshots_that_are_left_can_be_read(table: IcebergExport, tmp_path: Path) -> None:
    commit(table, range(12))
    opened = open_catalog(FolderStore(tmp_path / "events"), None).load_table("headwater.events")
    tagged = opened.snapshots()[3].snapshot_id
    opened.manage_snapshots().create_tag(tagged, "kept").commit()
    commit(table, range(12, 45))
    opened.refresh()
    left = opened.snapshots()
    assert 10 <= len(left) <= 10 + 5 + 1
    assert tagged in {snapshot.snapshot_id for snapshot in left}
    for snapshot in left:
        found = opened.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["payload"].to_pylist()
        assert snapshot.summary is not None
        assert sorted(map(int, found)) == list(range(int(snapshot.summary["headwater.batch"] or -1) + 1))
