"""Parquet tables: one folder for every day and bucket, in which every file is part of the table.

Engines read `day` from the name of the folder. They guess the type of such a column and would read the bucket `0007` as
the number 7, so `bucket` is a column of the files, and its folder has a name that no engine takes for a column.

Tasks store files where no engine finds them. Creating the manifest of a batch commits it: the manifest lists the files
of the batch and their final names. Then the files are moved; if a run is killed, the next one moves the rest. So no
engine ever finds a row twice.
"""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import unquote

from headwater.spark.jobs.export.files import FileRules
from headwater.spark.jobs.export.ledger import FOLDER, create_once, read_json, staged_stem
from headwater.spark.jobs.export.tables import TableFile, TableOptions, Written, file_schema, spark_columns
from headwater.storage.store import TableStore

BATCHES = f"{FOLDER}/batches/"
MANIFESTS_KEPT = 100
"""Spark keeps the offsets of as many batches, and repeats only the last one."""
MOVES_AT_ONCE = 16

_SPECIAL = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")
_KEY = re.compile(r"day=([^/]+)/bucket-([^/]+)/[^/]+\.parquet")
_IN_PATH = ("day",)
"""The columns that files do not have."""


class ParquetTable:
    """A folder of Parquet files."""

    def __init__(self, store: TableStore, options: TableOptions, moves_at_once: int = MOVES_AT_ONCE) -> None:
        self._store, self._options, self._moves_at_once = store, options, moves_at_once

    def rules(self, batch: int, attempt: str) -> FileRules:
        stem, columns = staged_stem(batch, attempt), self._options.columns
        schema, spark = file_schema(columns, without=_IN_PATH), spark_columns(columns, without=_IN_PATH)
        return FileRules(self._store.location, batch, stem, ".pending", stem, schema, spark)

    def has(self, batch: int) -> bool:
        manifest = read_json(self._store, manifest_key(batch))
        if manifest is None:
            return False
        self._publish(batch, manifest)
        return True

    def commit(self, written: Written) -> None:
        moves = [
            (file.key, f"{folder(file.day, file.bucket)}/batch-{written.batch:010}-{number:05}.parquet")
            for number, file in enumerate(written.files)
        ]
        manifest = {
            "batch": written.batch,
            "rows": written.rows,
            "bytes": written.bytes,
            "streams": written.streams,
            "position": max(written.position, self.position or 0),
            "files": [{"from": key, "to": to} for key, to in moves],
        }
        create_once(self._store, manifest_key(written.batch), json.dumps(manifest, indent=1).encode())
        found = read_json(self._store, manifest_key(written.batch))
        assert found is not None
        self._publish(written.batch, found)

    def _publish(self, batch: int, manifest: dict[str, Any]) -> None:
        if read_json(self._store, done_key(batch)) is not None:
            return
        with ThreadPoolExecutor(self._moves_at_once) as pool:
            list(pool.map(lambda file: self._store.move(file["from"], file["to"]), manifest["files"]))
        self._store.create(done_key(batch), b"{}")
        for key in (manifest_key(batch - MANIFESTS_KEPT), done_key(batch - MANIFESTS_KEPT)):
            self._store.delete(key)

    def files(self) -> Iterator[TableFile]:
        for key in self._store.keys(""):
            found = _KEY.fullmatch(key)
            if found:
                yield TableFile(key, found[1], unquote(found[2]))

    @property
    def position(self) -> int | None:
        newest = max((key for key in self._store.keys(BATCHES) if key.endswith(".json")), default=None)
        manifest = None if newest is None else read_json(self._store, newest)
        return None if manifest is None else int(manifest["position"])


def manifest_key(batch: int) -> str:
    """The key of the manifest of a batch."""
    return f"{BATCHES}{batch:010}.json"


def done_key(batch: int) -> str:
    """The key of the marker that all files of a batch have their final names."""
    return f"{BATCHES}{batch:010}.done"


def folder(day: str, bucket: str) -> str:
    """The folder of a day and a bucket, escaped as Hive does.

    >>> folder("2025-11-16", "team"), folder("2025-11-16", "50%=½")
    ('day=2025-11-16/bucket-team', 'day=2025-11-16/bucket-50%25%3D½')
    """
    return f"day={day}/bucket-{_SPECIAL.sub(lambda found: f'%{ord(found[0]):02X}', bucket)}"
