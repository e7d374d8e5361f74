"""Verifying the tables beside `messages`: the pinned rows, and the list of the streams."""

from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crc32c import crc32c

from headwater.lake.catalog import Catalog, Deletes
from headwater.lake.damage import LakeDamaged
from headwater.lake.iceberg.pins import Spans, complement, merged
from headwater.lake.iceberg.streams import read_streams
from headwater.lake.pinned import read_pinned
from headwater.storage.store import KeyMissing, Store


class PinnedChecks:
    """Compares the table `pinned` with the rows that forks need; every segment of the catalog is named once."""

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self._store, self._catalog = store, catalog
        self._listed: dict[str, Deletes | None] = {}
        self.known = False
        """Whether the table could be read; otherwise nothing is compared with it."""

    def read(self) -> None:
        """Read what the table lists. LakeDamaged if it cannot be read."""
        self._listed = read_pinned(self._store, self._catalog)
        self.known = True

    def segment(self, key: str, rows: int, pinned: Spans) -> Iterator[tuple[str, str]]:
        """What is wrong about a segment with these pinned rows: the key of an object, and a sentence."""
        if not self.known:
            return
        is_listed, deletes = key in self._listed, self._listed.pop(key, None)
        if is_listed != bool(pinned):
            what = "lists no rows of it, but forks need some" if pinned else "lists it, but no fork needs a row of it"
            yield key, f"the table of pinned rows {what}"
        elif is_listed:
            yield from self._deletes(key, complement(pinned, rows), deletes)

    def _deletes(self, key: str, expected: Spans, deletes: Deletes | None) -> Iterator[tuple[str, str]]:
        if deletes is None:
            if expected:
                yield key, "all of its rows are listed as pinned, but forks need only some"
            return
        try:
            data = self._store.read(deletes.key)
        except KeyMissing:
            yield deletes.key, "it is missing"
            return
        if crc32c(data) != deletes.crc:
            yield deletes.key, "its checksum does not match"
            return
        table = pq.read_table(pa.BufferReader(data), use_threads=False)
        if merged((row, row + 1) for row in table["pos"].to_pylist()) != expected:
            yield deletes.key, "its rows are not those that no fork needs"
        if not all(path.endswith(f"/{key}") for path in table["file_path"].unique().to_pylist()):
            yield deletes.key, "it is about another segment"

    def rest(self) -> Iterator[tuple[str, str]]:
        """What is wrong once every segment was compared that can be read."""
        for key in self._listed.keys() - {listed.key for listed in self._catalog.segments}:
            yield key, "the table of pinned rows lists it, but the lake does not have it"


def streams_problems(store: Store) -> Iterator[tuple[str, str]]:
    """What is wrong with the table `streams`; it need not exist, and it may be older than the rest of the lake."""
    try:
        found = read_streams(store)
        if found is None:
            return
        table, files = found
        last = "", ""
        for rows in files:
            for what in _file_problems(rows, last):
                yield table.key, what
            if len(rows):
                last = rows["bucket"][-1].as_py(), rows["stream"][-1].as_py()
    except LakeDamaged as damage:
        yield damage.key, damage.problem


def _file_problems(rows: pa.Table, before: tuple[str, str]) -> Iterator[str]:
    names = list(zip(rows["bucket"].to_pylist(), rows["stream"].to_pylist(), strict=True))
    if names != sorted(set(names)) or (names and names[0] <= before):
        yield "its streams are not in order, or not listed once"
    if pc.any(pc.or_(pc.less(rows["start"], 0), pc.greater(rows["start"], rows["tail"]))).as_py():
        yield "a stream ends before it begins"
    for name, attributes in zip(names, rows["attributes"].to_pylist(), strict=True):
        try:
            msgspec.json.decode(attributes or "{}")
        except msgspec.DecodeError:
            yield f"the attributes of {'/'.join(name)!r} are not JSON"
