"""The table `pinned`: rows that are deleted in `messages`, but that forks inherit.

It lists the same segments, and deletes all other rows of them. Together with `messages` it has every row that a stream
or a fork can read, and no row is in both tables.
"""

from array import array
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import NamedTuple

from crc32c import crc32c

from headwater.lake.format import SCHEMA
from headwater.lake.iceberg.deletes import positions_file
from headwater.lake.iceberg.index import Change, Rewritten
from headwater.lake.iceberg.manifests import DeletesEntry, SegmentEntry, Stamp, Status, TableLocation
from headwater.lake.iceberg.messages import Heading
from headwater.lake.iceberg.metadata import metadata_key
from headwater.lake.iceberg.pinned_rows import PinnedRows, Spans, complement
from headwater.lake.iceberg.segment_tables import SegmentTable
from headwater.storage.store import KeyMissing, Store
from headwater.streams.cold import Held

NAME = "pinned"


class _Due(NamedTuple):
    """A segment whose file of deleted rows is to be written."""

    number: int
    held: Held
    deleted: Spans
    digest: int


class PinnedTable(SegmentTable):
    """The table and what it must list; for one thread at a time."""

    def __init__(
        self,
        store: Store,
        url: str,
        shard: int,
        log_id: str,
        held: Callable[[int], Held | None],
        *,
        history_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__(store, NAME, TableLocation(url, shard, SCHEMA), log_id, history_ms=history_ms, now_ms=now_ms)
        self._held = held
        self._rows = PinnedRows()
        self._up_to = 0

    def _known(self) -> Iterable[int]:
        return self._rows.segments

    def _wanted(self, number: int) -> Held | None:
        return self._held(number) if self._rows.of(number) else None

    @property
    def _reached(self) -> int:
        return self._up_to

    def update(self, rows: PinnedRows, touched: Collection[int]) -> None:
        """Take over the pinned rows of all segments, which have changed for these."""
        self._rows = rows
        self._touched.update(touched)

    @property
    def is_overtaken(self) -> bool:
        """Whether another server has committed since; if so, what the table lists is unknown."""
        table = self.commits.table
        if table is None:
            return False
        try:
            self._store.read(metadata_key(table.name, table.version + 1, table.log_id), 0, 1)
        except KeyMissing:
            return False
        return True

    def commit(self, heading: Heading, keep: Collection[int] = ()) -> str:
        """Bring the table up to the state; the id of the snapshot that is current then.

        After any exception the table must be loaded again, and the next commit compares everything.
        """
        stamp, segments, deletes = self._begin(heading.position)
        if self.current is None or segments.removed or segments.written or deletes.removed or deletes.written:
            self._commit(stamp, segments, deletes, partial(self._summary, heading), keep=keep)
        self._end()
        self._up_to = heading.position
        assert self.current is not None
        return str(self.current.id)

    def _deletes_change(self, stamp: Stamp) -> Change[DeletesEntry]:
        removed: list[int] = []
        due: list[_Due] = []
        for number in self._touched:
            held, entry = self._wanted(number), self._deletes.entries.get(number)
            deleted = () if held is None else complement(self._rows.of(number), held.segment.rows)
            if held is None or not deleted:
                if entry is not None:
                    removed.append(number)
                continue
            digest = crc32c(array("q", (bound for span in deleted for bound in span)).tobytes())
            if entry is None or entry.digest != digest or entry.data_key != self._data_key(held):
                due.append(_Due(number, held, deleted, digest))
        return Change(removed, self._stored(partial(self._store_deletes, stamp), due))

    def _store_deletes(self, stamp: Stamp, due: _Due) -> DeletesEntry:
        data_key, key = self._data_key(due.held), self._deletes_key(due.held, stamp)
        data = positions_file(self._location.path(data_key), due.deleted, {})
        self.commits.put(key, data)
        rows = sum(last - first for first, last in due.deleted)
        return DeletesEntry(
            Status.ADDED,
            *stamp,
            due.number,
            data_key,
            key,
            len(data),
            crc32c(data),
            rows,
            due.held.segment.rows - rows,
            self._now_ms(),
            due.digest,
        )

    def clean(self, heading: Heading) -> None:
        """Take a snapshot without entries that say what was removed from the table; right after a commit."""
        self._clean(partial(self._summary, heading))

    def _summary(
        self, heading: Heading, segments: Rewritten[SegmentEntry], deletes: Rewritten[DeletesEntry]
    ) -> dict[str, str]:
        listed = [self._wanted(number) for number in self._rows.segments]
        rows = sum(held.segment.rows for held in listed if held is not None)
        kept = sum(last - first for number in self._rows.segments for first, last in self._rows.of(number))
        return {
            "operation": "append" if self.current is None else "overwrite",
            "total-records": str(rows),
            "total-data-files": str(len(listed)),
            "total-position-deletes": str(rows - kept),
            "headwater.position": str(heading.position),
            "headwater.flushed": str(heading.flushed),
            "headwater.at": str(heading.at),
            "headwater.log-id": self._log_id,
            "headwater.shard": str(self._location.shard),
        }
