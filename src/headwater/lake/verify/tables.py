"""Verifying the tables beside `messages`: the pinned rows, and the list of the streams."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from crc32c import crc32c

from headwater.lake.catalog import Catalog, Deletes
from headwater.lake.damage import LakeDamaged
from headwater.lake.iceberg.manifests import Content
from headwater.lake.iceberg.pinned import NAME
from headwater.lake.iceberg.pinned_rows import Spans, complement, merged
from headwater.lake.iceberg.reading import deletes_in, manifests_of, newest_table, of_content, segments_in
from headwater.lake.iceberg.streams import read_streams
from headwater.lake.scanning import Inherited
from headwater.lake.segments.columns import starts, view
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
        self._listed = _read_pinned(self._store, self._catalog)
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


def _read_pinned(store: Store, catalog: Catalog) -> dict[str, Deletes | None]:
    """The segments that the table lists as of a catalog, by key, each with the file of its deleted rows."""
    table = newest_table(store, NAME)
    if table is None:
        raise LakeDamaged(f"{NAME}/metadata", "the table is missing")
    snapshot = next((one for one in table.snapshots if one.id == catalog.pinned_id), None)
    if snapshot is None:
        raise LakeDamaged(table.key, f"it lacks the snapshot {catalog.pinned_id} that {catalog.key} names")
    manifests = manifests_of(store, snapshot)
    deletes = {
        entry.number: Deletes(entry.key, entry.size, entry.crc, entry.rows)
        for manifest in of_content(manifests, Content.DELETES)
        for entry in deletes_in(store, manifest)
    }
    return {
        entry.key(catalog.shard): deletes.get(entry.number)
        for manifest in of_content(manifests, Content.DATA)
        for entry in segments_in(store, manifest)
    }


def pinned_spans(
    table: pa.Table, row: int, dead_below: Mapping[int, int], pieces: Mapping[int, Sequence[Inherited]]
) -> Iterator[tuple[int, int]]:
    """The ranges of dead rows that forks inherit, in a table that begins at this row of its segment."""
    if not len(table):
        return
    table = table.select(["incarnation", "offset", "next_offset"]).combine_chunks()
    lives = starts(table["incarnation"].chunk(0))
    offset, next_offset = view(table["offset"].chunk(0)), view(table["next_offset"].chunk(0))
    for first, end in pairwise([*view(lives), len(table)]):
        life = table["incarnation"][first].as_py()
        for piece in pieces.get(life, ()):
            low = bisect_right(next_offset, piece.start, first, end)
            high = bisect_left(offset, min(piece.to, dead_below.get(life, 0)), low, end)
            if low < high:
                yield row + low, row + high


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
