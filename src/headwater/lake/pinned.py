"""Pinned rows for our own readers: what the table `pinned` lists, as of a catalog; and what it must list."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import pyarrow as pa

from headwater.lake.catalog import Catalog, Deletes
from headwater.lake.damage import LakeDamaged
from headwater.lake.iceberg.manifests import Content
from headwater.lake.iceberg.pinned import NAME
from headwater.lake.iceberg.reading import deletes_in, manifests_of, newest_table, of_content, segments_in
from headwater.lake.scanning import Inherited
from headwater.lake.segments.columns import starts, view
from headwater.storage.store import Store


def read_pinned(store: Store, catalog: Catalog) -> dict[str, Deletes | None]:
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
