"""The inventory of a lake: its streams, and every object in its store."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa

from headwater.lake.catalog import Catalog, ForkRow
from headwater.lake.damage import LakeDamaged
from headwater.lake.format import deadline_us_of, parse_segment_key
from headwater.lake.iceberg.manifests import Content
from headwater.lake.iceberg.messages import NAME
from headwater.lake.iceberg.metadata import Table
from headwater.lake.iceberg.reading import manifests_of, newest_table, of_content, segments_in
from headwater.lake.iceberg.tables import TABLES
from headwater.lake.ownership import OWNER_KEY
from headwater.lake.verify.spans import LifeRows, Spans
from headwater.storage.store import Store


class StreamTally(NamedTuple):
    """The rows that a lake holds of one stream."""

    name: str
    incarnation: int
    rows: int
    bytes: int
    inherited_bytes: int
    """Of a fork: the bytes that it shares with its source, which are counted there."""
    first_at: int | None
    last_at: int | None


class Heap(NamedTuple):
    """The number and size of the objects of one kind."""

    objects: int = 0
    bytes: int = 0

    def plus(self, size: int) -> "Heap":
        return Heap(self.objects + 1, self.bytes + size)


def streams(
    store: Store, catalog: Catalog, tombstones: pa.Table, forks: Iterable[ForkRow], prefix: str = ""
) -> Iterator[StreamTally]:
    """The streams with live or inherited rows in the lake, by name; bytes that only the server has are not counted."""
    known = sorted(fork for fork in forks if not fork.deleted and fork.name.startswith(prefix))
    inherited = (StreamTally(fork.name, fork.incarnation, 0, 0, fork.to - fork.start, None, None) for fork in known)
    with Spans() as spans:
        spans.gather(store, catalog, tombstones, prefix)
        live = (span for span in spans.in_order() if span.live_rows and span.name.startswith(prefix))
        both = heapq.merge(_tallies(live), inherited, key=lambda tally: tally[:2])
        for _, same in groupby(both, key=lambda tally: tally[:2]):
            first, *others = same
            yield first._replace(inherited_bytes=others[0].inherited_bytes) if others else first


def _tallies(spans: Iterable[LifeRows]) -> Iterator[StreamTally]:
    for (name, incarnation), life in groupby(spans, key=lambda span: span[:2]):
        known = list(life)
        rows, size = sum(span.live_rows for span in known), sum(span.live_bytes for span in known)
        yield StreamTally(name, incarnation, rows, size, 0, known[0].first_at, known[-1].last_at)


class Totals(NamedTuple):
    """A lake in numbers. Times are microseconds since 1970; None in an empty lake."""

    log_id: str
    catalog_position: int
    catalog_at: int
    flushed_position: int
    dropped_position: int
    streams: int
    forks: int
    tombstones: int
    segments: int
    rows: int
    live_rows: int
    """Rows that a scan returns under their own names."""
    needed_rows: int
    """Live rows, rows that only forks need, and dead rows that share an extent with these."""
    dead_rows: int
    payload_bytes: int
    live_bytes: int
    stored_bytes: int
    compression_ratio: float | None
    oldest_at: int | None
    newest_at: int | None
    oldest_segment: str | None
    newest_segment: str | None


def totals(store: Store, catalog: Catalog, tombstones: pa.Table, forks: Sequence[ForkRow]) -> Totals:
    """Count a lake, which reads the names in every segment."""
    known, live_rows, live_bytes = 0, 0, 0
    for tally in streams(store, catalog, tombstones, forks):
        known, live_rows, live_bytes = known + 1, live_rows + tally.rows, live_bytes + tally.bytes
    segments = [listed.segment for listed in catalog.segments]
    rows, payload_bytes, stored_bytes = (
        sum(getattr(segment, name) for segment in segments) for name in ("rows", "payload_bytes", "size")
    )
    keys = [listed.key for listed in catalog.segments]
    return Totals(
        log_id=catalog.log_id,
        catalog_position=catalog.position,
        catalog_at=catalog.at,
        flushed_position=catalog.flushed,
        dropped_position=catalog.dropped,
        streams=known,
        forks=sum(not fork.deleted for fork in forks),
        tombstones=len(tombstones),
        segments=len(segments),
        rows=rows,
        live_rows=live_rows,
        needed_rows=sum(listed.live_rows for listed in catalog.segments),
        dead_rows=rows - live_rows,
        payload_bytes=payload_bytes,
        live_bytes=live_bytes,
        stored_bytes=stored_bytes,
        compression_ratio=round(payload_bytes / stored_bytes, 2) if stored_bytes else None,
        oldest_at=min((segment.first_at for segment in segments), default=None),
        newest_at=max((segment.last_at for segment in segments), default=None),
        oldest_segment=min(keys, default=None),
        newest_segment=max(keys, default=None),
    )


class TableTally(NamedTuple):
    """A table of a lake in numbers."""

    table: str
    version: int
    snapshots: int
    files: int
    rows: int
    position: int
    """The log position that the newest snapshot describes."""
    updated_ms: int


def tables(store: Store) -> list[TableTally]:
    """The tables that a lake has."""
    return [_tally(table) for name in TABLES if (table := newest_table(store, name)) is not None]


def _tally(table: Table) -> TableTally:
    summary = table.current.summary
    rows = int(summary["total-records"]) - int(summary.get("total-position-deletes", 0))
    files = int(summary["total-data-files"])
    at = table.current.at_ms
    return TableTally(table.name, table.version, len(table.snapshots), files, rows, table.current.position, at)


def objects(store: Store, catalog: Catalog, now_us: int) -> dict[str, Heap]:
    """The number and size of the objects of each kind in a store.

    A segment that the newest snapshot does not list is *retired* if an older snapshot lists it, *pending* if it may
    still be published, else an *orphan*. The server deletes retired segments and orphans after a while.
    """
    heaps = dict.fromkeys(("segments", "retired", "pending", "orphans", "deletes", "metadata", "other"), Heap())
    live = {listed.segment.id for listed in catalog.segments}
    older = _older(store, catalog)
    for item in store.items(""):
        segment = parse_segment_key(item.key)
        if segment is not None and segment.id in live:
            kind = "segments"
        elif segment is not None and segment.id in older:
            kind = "retired"
        elif segment is not None:
            kind = "pending" if deadline_us_of(segment.id) >= now_us else "orphans"
        else:
            kind = _KINDS.get("/".join(item.key.split("/")[:2]), "other")
        heaps[kind] = heaps[kind].plus(item.size)
    return heaps


_KINDS = {
    OWNER_KEY: "metadata",
    "messages/metadata": "metadata",
    "messages/deletes": "deletes",
    "pinned/metadata": "metadata",
    "pinned/deletes": "deletes",
    "forks/metadata": "metadata",
    "forks/data": "metadata",
    "streams/metadata": "metadata",
    "streams/data": "metadata",
}


def _older(store: Store, newest: Catalog) -> set[str]:
    """The segments in snapshots that are kept, but not the newest."""
    table = newest_table(store, NAME)
    ids: set[str] = set()
    seen: set[str] = set()
    for snapshot in () if table is None else table.snapshots:
        # It may have been deleted meanwhile. A damaged one is ignored: `verify` checks the newest.
        try:
            for manifest in of_content(manifests_of(store, snapshot), Content.DATA):
                if manifest.key not in seen and snapshot.id != newest.snapshot_id:
                    seen.add(manifest.key)
                    ids.update(entry.segment.id for entry in segments_in(store, manifest))
        except LakeDamaged:
            continue
    return ids
