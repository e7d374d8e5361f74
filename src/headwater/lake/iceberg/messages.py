"""The table `messages`: every segment of the lake, and the rows in them that are dead.

The state of a server says what the table must list; this class knows what it lists, and commits the difference. What it
keeps in memory for a dead life is 32 bytes for each segment that has rows of it.
"""

from array import array
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from headwater.lake.damage import LakeDamaged
from headwater.lake.format import SCHEMA, segment_key
from headwater.lake.iceberg.commits import Commits, Leftover
from headwater.lake.iceberg.deletes import DeadLife, deletes_file
from headwater.lake.iceberg.index import Change, Index, Rewritten
from headwater.lake.iceberg.manifests import (
    Content,
    DeletesEntry,
    Manifest,
    Place,
    SegmentEntry,
    Stamp,
    Status,
    deletes_manifest,
    segments_manifest,
)
from headwater.lake.iceberg.metadata import Snapshot
from headwater.lake.iceberg.reading import deletes_in, manifests_of, segments_in
from headwater.storage.store import KeyExists, Store
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


class Outdated(KeyExists):
    """The table describes a later state than this server has: another server has taken over."""


class _Due(NamedTuple):
    """A segment whose file of deleted rows is to be written."""

    number: int
    held: Held
    lives: list[DeadLife]
    since_ms: int


class Messages:
    """The table and what it must list; for one thread at a time."""

    def __init__(
        self, store: Store, url: str, shard: int, log_id: str, *, history_ms: int, now_ms: Callable[[], int]
    ) -> None:
        self._store, self._log_id, self._now_ms = store, log_id, now_ms
        self._place = Place(url, shard, SCHEMA)
        self.commits = Commits(store, NAME, self._place, log_id, history_ms=history_ms, now_ms=now_ms)
        self._held: dict[int, Held] = {}
        self._dead: dict[int, array[int]] = {}
        """The dead lives of each segment, as consecutive numbers."""
        self._rows = self._dead_rows = 0
        """The sums over all segments."""
        self._touched: set[int] = set()
        self._segments = Index[SegmentEntry](Content.DATA, segments_manifest)
        self._deletes = Index[DeletesEntry](Content.DELETES, deletes_manifest)
        self._loaded = False
        self._loaded_position = 0
        self._spans: dict[str, tuple[int, int]] = {}
        """The first snapshot with each segment that is gone, and the first without it; by id."""

    # -- What the table lists -----------------------------------------------------------------------------------------

    def load(self) -> None:
        """Find out what the newest snapshot in the store lists; all of it will be compared."""
        self._loaded = False
        self.commits.load()
        self._segments = Index(Content.DATA, segments_manifest)
        self._deletes = Index(Content.DELETES, deletes_manifest)
        if self.commits.table is not None:
            try:
                self._take(self.commits.table.current)
            except LakeDamaged:
                # Everything is listed anew, in manifests of its own.
                self._segments = Index(Content.DATA, segments_manifest)
                self._deletes = Index(Content.DELETES, deletes_manifest)
        self._touched = {*self._held, *self._segments.entries, *self._deletes.entries}
        self._loaded_position = self.position
        self._loaded = True

    def _take(self, snapshot: Snapshot) -> None:
        for manifest in manifests_of(self._store, snapshot):
            if manifest.content == Content.DATA:
                self._segments.add(manifest, segments_in(self._store, manifest))
            else:
                self._deletes.add(manifest, deletes_in(self._store, manifest))

    @property
    def current(self) -> Snapshot | None:
        """The newest snapshot; None before the first commit."""
        return None if self.commits.table is None else self.commits.table.current

    @property
    def position(self) -> int:
        """The log position that the newest snapshot describes."""
        return 0 if self.current is None else self.current.position

    @property
    def flushed(self) -> int:
        """The position up to which the newest snapshot declares every row flushed."""
        return 0 if self.current is None else int(self.current.summary["headwater.flushed"])

    def needs(self, segment_id: str, retired_at: int) -> bool:
        """Whether a snapshot lists a segment that was replaced at a position."""
        table = self.commits.table
        if table is None or retired_at > table.current.position:
            return True
        if (span := self._spans.get(segment_id)) is not None:
            return self.commits.needs(*span)
        # Before this process began, or never in a snapshot.
        return retired_at <= self._loaded_position and table.snapshots[0].position < retired_at

    def dead_since(self, before_ms: int) -> list[int]:
        """The numbers of the segments that have had dead rows since before a time."""
        return [number for number, entry in self._deletes.entries.items() if entry.since_ms < before_ms]

    def tidy(self, keep: Collection[int]) -> None:
        """Drop the snapshots whose time has come, and delete what only they needed."""
        if self._loaded:
            self.commits.expire(keep)
            self.commits.find_leftovers(self._files_in)
            self.commits.sweep()
            self._spans = {id_: span for id_, span in self._spans.items() if self.commits.needs(*span)}

    def _files_in(self, manifest: Manifest) -> list[str]:
        if manifest.content == Content.DATA:
            return []
        return [entry.key for entry in deletes_in(self._store, manifest)]

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
        """Bring the table up to the state; whether it took a snapshot.

        After any exception the table must be loaded again, and the next commit compares everything.
        """
        if not self._loaded:
            self.load()
        if heading.position < self.position:
            raise Outdated(f"The table describes position {self.position}, this server is at {heading.position}.")
        self._loaded = False
        stamp = self.commits.new_stamp()
        segments, deletes = self._segments_change(stamp), self._deletes_change(stamp)
        is_new = bool(segments.removed or segments.written or deletes.removed or deletes.written)
        if is_new or self._says_other(heading):
            self._commit(heading, stamp, segments, deletes, keep=keep)
        self._touched.clear()
        self._loaded = True
        return is_new

    def _says_other(self, heading: Heading) -> bool:
        """Whether the heading of the newest snapshot is not up to date."""
        if self.current is None:
            return True
        summary = self.current.summary
        said = int(summary["headwater.flushed"]), int(summary["headwater.dropped"]), summary["headwater.forks"]
        return said != (heading.flushed, heading.dropped, heading.forks) or self.position < heading.position

    def _segments_change(self, stamp: Stamp) -> Change[SegmentEntry]:
        removed, written = [], []
        for number in self._touched:
            held, entry = self._held.get(number), self._segments.entries.get(number)
            if held is None:
                if entry is not None:
                    removed.append(number)
            elif entry is None or entry.segment != held.segment:
                written.append(SegmentEntry(Status.ADDED, *stamp, number, held.segment))
            elif entry.segment is not held.segment:
                # Read from the store: one copy of it is enough.
                self._segments.entries[number] = msgspec.structs.replace(entry, segment=held.segment)
        return Change(removed, written)

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
            elif entry is None or entry.rows != rows or entry.data_key != self._key(held):
                due.append(_Due(number, held, lives, self._now_ms() if entry is None else entry.since_ms))
            elif entry.live_rows != held.live_rows:
                written.append(msgspec.structs.replace(entry, status=int(Status.EXISTING), live_rows=held.live_rows))

        store = partial(self._store_deletes, stamp)
        if len(due) > 1:
            with ThreadPoolExecutor(UPLOADS, "deletes") as threads:
                written += threads.map(store, due)
        else:
            written += map(store, due)
        return Change(removed, written)

    def _store_deletes(self, stamp: Stamp, due: "_Due") -> DeletesEntry:
        number, held, lives, since = due
        data_key = self._key(held)
        data = deletes_file(self._place.path(data_key), lives)
        key = f"{NAME}/deletes/{stamp.sequence:010}-{stamp.snapshot_id:016x}-{held.segment.id}.parquet"
        self.commits.put(key, data)
        rows, crc = sum(life.rows for life in lives), crc32c(data)
        return DeletesEntry(Status.ADDED, *stamp, number, data_key, key, len(data), crc, rows, held.live_rows, since)

    def _key(self, held: Held) -> str:
        segment = held.segment
        return segment_key(self._place.shard, segment.first_position, segment.last_position, segment.id)

    def _commit(
        self,
        heading: Heading,
        stamp: Stamp,
        segments: Change[SegmentEntry],
        deletes: Change[DeletesEntry],
        *,
        keep: Collection[int],
    ) -> None:
        commits, place = self.commits, self._place
        rewritten = (
            self._segments.rewrite(segments, place, stamp, put=commits.put, new_key=lambda: commits.new_key("data")),
            self._deletes.rewrite(deletes, place, stamp, put=commits.put, new_key=lambda: commits.new_key("deletes")),
        )
        manifests = [*self._segments.after(rewritten[0]), *self._deletes.after(rewritten[1])]
        commits.commit(stamp, manifests, self._summary(heading, *rewritten), keep)
        self._segments.accept(rewritten[0])
        self._deletes.accept(rewritten[1])
        replaced = [manifest for one in rewritten for manifest in one.replaced]
        commits.leave(Leftover(manifest.key, manifest.sequence, stamp.sequence) for manifest in replaced)
        commits.leave(Leftover(entry.key, entry.sequence, stamp.sequence) for entry in rewritten[1].removed)
        self._spans |= {entry.segment.id: (entry.sequence, stamp.sequence) for entry in rewritten[0].removed}

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
            "headwater.shard": str(self._place.shard),
            "headwater.forks": heading.forks,
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
