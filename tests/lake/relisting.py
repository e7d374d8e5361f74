"""Catalogs that say whatever a test wants, with every checksum right."""

from headwater.lake.catalog import Catalog
from headwater.lake.format import SCHEMA
from headwater.lake.iceberg.commits import Commits
from headwater.lake.iceberg.manifests import (
    Content,
    DeletesEntry,
    SegmentEntry,
    Status,
    TableLocation,
    deletes_manifest,
    described,
    segments_manifest,
)
from headwater.lake.iceberg.metadata import MINUTE_MS
from headwater.lake.iceberg.reading import newest_table
from headwater.storage.store import Store


def relist(store: Store, catalog: Catalog) -> None:
    """Make this catalog the newest snapshot of a lake that has one."""
    table = newest_table(store, "messages")
    assert table is not None
    location = TableLocation(table.url, catalog.shard, SCHEMA)
    commits = Commits(
        store, "messages", location, table.log_id, history_ms=MINUTE_MS, now_ms=lambda: table.updated_ms + 1
    )
    commits.load()
    stamp = commits.new_stamp()
    segments = [SegmentEntry(Status.ADDED, *stamp, one.number, one.segment) for one in catalog.segments]
    deletes = [
        DeletesEntry(
            Status.ADDED,
            *stamp,
            one.number,
            one.key,
            one.deletes.key,
            one.deletes.size,
            one.deletes.crc,
            one.deletes.rows,
            one.live_rows,
            0,
        )
        for one in catalog.segments
        if one.deletes is not None
    ]
    manifests = []
    for content, data, entries in (
        (Content.DATA, segments_manifest(segments, location), segments),
        (Content.DELETES, deletes_manifest(deletes, location), deletes),
    ):
        key = commits.new_key("forged")
        store.create(key, data)
        manifests.append(described(key, data, content, entries, stamp))
    summary = {
        "operation": "overwrite",
        "headwater.position": str(catalog.position),
        "headwater.flushed": str(catalog.flushed),
        "headwater.dropped": str(catalog.dropped),
        "headwater.at": str(catalog.at),
        "headwater.shard": str(catalog.shard),
        "headwater.forks": f"{catalog.forks_key} {catalog.forks_crc}",
        "headwater.pinned": str(catalog.pinned_id),
        "total-records": str(sum(one.segment.rows for one in catalog.segments)),
        "total-data-files": str(len(catalog.segments)),
    }
    commits.commit(stamp, manifests, summary)
