"""The table `messages`: every segment of the lake, and the rows in them that are dead.

The state of a server says what the table must list; this class knows what it lists, and commits the difference. What it
keeps in memory for a dead life is 32 bytes for each segment that has rows of it.
"""

from array import array
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from headwater.lake.format import SCHEMA
from headwater.lake.iceberg.deletes import DeadLife, deletes_file
from headwater.lake.iceberg.index import Change, Rewritten
from headwater.lake.iceberg.manifests import (
    DeletesEntry,
    SegmentEntry,
    Stamp,
    Status,
    TableLocation,
)
from headwater.lake.iceberg.segment_tables import SegmentTable
from headwater.storage.store import Store
from headwater.streams.cold import Held, Tombstone

NAME = "messages"
UPLOADS = 8
"""How many files of deleted rows are stored at the same time."""


class Heading(NamedTuple):
    """What a snapshot says about itself, beside its files."""

    position: int
    """The log position of the state that it describes."""
    flushed: int
    """Every live row up to this position is in one of its segments."""
    dropped: int
    """The highest position of any row that was ever dropped from the lake."""
    at: int
    """The shard's time."""
    forks: str = ""
    """The file of the forks that belong to it: key and CRC-32C."""
    pinned: str = ""
    """The snapshot of `pinned` that belongs to it."""


class _Due(NamedTuple):
    """A segment whose file of deleted rows is to be written."""

    number: int
    held: Held
    lives: list[DeadLife]
    since_ms: int


class MessagesTable(SegmentTable):
    """The table and what it must list; for one thread at a time."""

    def __init__(
        self, store: Store, url: str, shard: int, log_id: str, *, history_ms: int, now_ms: Callable[[], int]
    ) -> None:
        location = TableLocation(url, shard, SCHEMA)
        super().__init__(store, NAME, location, log_id, history_ms=history_ms, now_ms=now_ms)
        self._held: dict[int, Held] = {}
        self._dead: dict[int, array[int]] = {}
        """The dead lives of each segment, as consecutive numbers."""
        self._rows = self._dead_rows = 0
        """The sums over all segments."""

    def _known(self) -> Iterable[int]:
        return self._held

    def _wanted(self, number: int) -> Held | None:
        return self._held.get(number)

    def held(self, number: int) -> Held | None:
        """A segment of the lake."""
        return self._held.get(number)

    @property
    def flushed(self) -> int:
        """The position up to which the newest snapshot declares every row flushed."""
        return 0 if self.current is None else int(self.current.summary["headwater.flushed"])

    def dead_since(self, before_ms: int) -> list[int]:
        """The numbers of the segments that have had dead rows since before a time."""
        return [number for number, entry in self._deletes.entries.items() if entry.since_ms < before_ms]

    # -- What it must list --------------------------------------------------------------------------------------------

    def update(
        self, segments: Iterable[tuple[int, Held | None]], tombstones: Iterable[tuple[int, Tombstone | None]]
    ) -> None:
        """Take over what has changed in the state."""
        for number, held in segments:
            self._touched.add(number)
            before = self._held.pop(number, None)
            self._rows += (held.segment.rows if held else 0) - (before.segment.rows if before else 0)
            if held is not None:
                self._held[number] = held
            elif number in self._dead:
                self._dead_rows -= sum(life.rows for life in _unpacked(self._dead.pop(number)))
        changed: dict[int, list[DeadLife]] = {}
        for incarnation, tombstone in tombstones:
            for dead in () if tombstone is None else tombstone.dead:
                changed.setdefault(dead.segment, []).append(
                    DeadLife(incarnation, tombstone.below if tombstone else 0, dead.row, dead.rows)
                )
        for number, lives in changed.items():
            if number in self._held:
                self._mark(number, lives)

    def _mark(self, number: int, lives: list[DeadLife]) -> None:
        known = {life.incarnation: life for life in _unpacked(self._dead.get(number))}
        more = [life for life in lives if _grew(known.get(life.incarnation), life)]
        if more:
            self._dead_rows += sum(life.rows for life in more)
            self._dead_rows -= sum(known[life.incarnation].rows for life in more if life.incarnation in known)
            known |= {life.incarnation: life for life in more}
            self._dead[number] = array("q", (value for life in known.values() for value in life))
            self._touched.add(number)

    # -- Committing ---------------------------------------------------------------------------------------------------

    def commit(self, heading: Heading, keep: Collection[int] = ()) -> bool:
        """Bring the table up to the state; return whether it took a snapshot.

        After any exception the table must be loaded again, and the next commit compares everything.
        """
        stamp, segments, deletes = self._begin(heading.position)
        is_new = bool(segments.removed or segments.written or deletes.removed or deletes.written)
        if is_new or self._says_other(heading):
            self._commit(stamp, segments, deletes, partial(self._summary, heading), keep=keep)
        self._end()
        return is_new

    def _says_other(self, heading: Heading) -> bool:
        """Whether the heading of the newest snapshot is out of date."""
        if self.current is None:
            return True
        summary = self.current.summary
        said = [summary.get(f"headwater.{name}") for name in ("flushed", "dropped", "forks", "pinned")]
        says = [str(heading.flushed), str(heading.dropped), heading.forks, heading.pinned]
        return said != says or self.position < heading.position

    def _deletes_change(self, stamp: Stamp) -> Change[DeletesEntry]:
        removed: list[int] = []
        written: list[DeletesEntry] = []
        due: list[_Due] = []
        for number in self._touched:
            held, entry = self._held.get(number), self._deletes.entries.get(number)
            lives = list(_unpacked(self._dead.get(number))) if held is not None else []
            rows = sum(life.rows for life in lives)
            if held is None or not rows:
                if entry is not None:
                    removed.append(number)
            elif entry is None or entry.rows != rows or entry.data_key != self._data_key(held):
                due.append(_Due(number, held, lives, self._now_ms() if entry is None else entry.since_ms))
            elif entry.live_rows != held.live_rows:
                written.append(msgspec.structs.replace(entry, status=int(Status.EXISTING), live_rows=held.live_rows))
        written += self._stored(partial(self._store_deletes, stamp), due)
        return Change(removed, written)

    def _store_deletes(self, stamp: Stamp, due: "_Due") -> DeletesEntry:
        number, held, lives, since = due
        data_key = self._data_key(held)
        data = deletes_file(self._location.path(data_key), lives)
        key = self._deletes_key(held, stamp)
        self.commits.put(key, data)
        rows, crc = sum(life.rows for life in lives), crc32c(data)
        return DeletesEntry(Status.ADDED, *stamp, number, data_key, key, len(data), crc, rows, held.live_rows, since)

    def clean(self, heading: Heading) -> None:
        """Take a snapshot without entries that say what was removed from the table; right after a commit."""
        self._clean(partial(self._summary, heading))

    def _summary(
        self, heading: Heading, segments: Rewritten[SegmentEntry], deletes: Rewritten[DeletesEntry]
    ) -> dict[str, str]:
        added = [one for _, entries in segments.manifests for one in entries if one.status == Status.ADDED]
        return {
            "operation": self._operation(heading, segments, deletes, added),
            "added-data-files": str(len(added)),
            "deleted-data-files": str(len(segments.removed)),
            "added-records": str(sum(one.segment.rows for one in added)),
            "deleted-records": str(sum(one.segment.rows for one in segments.removed)),
            "total-records": str(self._rows),
            "total-data-files": str(len(self._held)),
            "total-position-deletes": str(self._dead_rows),
            "headwater.position": str(heading.position),
            "headwater.flushed": str(heading.flushed),
            "headwater.dropped": str(heading.dropped),
            "headwater.at": str(heading.at),
            "headwater.log-id": self._log_id,
            "headwater.shard": str(self._location.shard),
            "headwater.forks": heading.forks,
            "headwater.pinned": heading.pinned,
        }

    def _operation(
        self,
        heading: Heading,
        segments: Rewritten[SegmentEntry],
        deletes: Rewritten[DeletesEntry],
        added: list[SegmentEntry],
    ) -> str:
        """What Iceberg calls such a change: a rewrite of rows that were there before replaces, and adds none."""
        before = self.flushed
        is_flush = any(one.segment.last_position > before for one in added)
        if segments.removed:
            return "overwrite" if is_flush else "replace"
        changed = deletes.removed or any(
            one.status == Status.ADDED for _, entries in deletes.manifests for one in entries
        )
        if not changed:
            return "append"
        return "overwrite" if added else "delete"


def _unpacked(packed: "array[int] | None") -> Iterable[DeadLife]:
    if packed is None:
        return ()
    numbers = iter(packed)
    return map(DeadLife._make, zip(numbers, numbers, numbers, numbers, strict=True))


def _grew(known: DeadLife | None, life: DeadLife) -> bool:
    return known is None or (known.row, known.rows) != (life.row, life.rows)
