"""Tables of segments: which segments a table lists, and which rows in them it leaves out.

A subclass says what the table must list. This class knows what it lists, and commits the difference.
"""

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from headwater.lake.damage import LakeDamaged
from headwater.lake.format import segment_key
from headwater.lake.iceberg.commits import Commits, Leftover, Outdated
from headwater.lake.iceberg.index import Change, E, Index, Rewritten
from headwater.lake.iceberg.manifests import (
    Content,
    DeletesEntry,
    Manifest,
    SegmentEntry,
    Stamp,
    Status,
    TableLocation,
    deletes_manifest,
    segments_manifest,
)
from headwater.lake.iceberg.metadata import Snapshot
from headwater.lake.iceberg.reading import deletes_in, manifests_of, segments_in
from headwater.storage.store import Store
from headwater.streams.cold import Held

UPLOADS = 8
"""How many files of deleted rows are stored at the same time."""

T = TypeVar("T")

Summary = Callable[[Rewritten[SegmentEntry], Rewritten[DeletesEntry]], dict[str, str]]
"""What a snapshot says about itself, given the manifests that it rewrites."""


class SegmentTable:
    """A table and what it lists; for one thread at a time."""

    def __init__(
        self,
        store: Store,
        name: str,
        location: TableLocation,
        log_id: str,
        *,
        history_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._store, self._name, self._location, self._log_id, self._now_ms = store, name, location, log_id, now_ms
        self.commits = Commits(store, name, location, log_id, history_ms=history_ms, now_ms=now_ms)
        self._touched: set[int] = set()
        """The numbers of the segments for which the table may have to change."""
        self._segments = Index[SegmentEntry](Content.DATA, segments_manifest)
        self._deletes = Index[DeletesEntry](Content.DELETES, deletes_manifest)
        self._loaded = False
        self._loaded_position = 0
        self._spans: dict[str, tuple[int, int]] = {}
        """The first snapshot with each segment that is gone, and the first without it; by id."""

    # -- What a subclass says -----------------------------------------------------------------------------------------

    def _known(self) -> Iterable[int]:
        """The numbers of all segments that the table must list."""
        raise NotImplementedError

    def _wanted(self, number: int) -> Held | None:
        """A segment, if the table must list it."""
        raise NotImplementedError

    def _deletes_change(self, stamp: Stamp) -> Change[DeletesEntry]:
        """What changes in the deleted rows of the touched segments; new files of them are stored."""
        raise NotImplementedError

    @property
    def _reached(self) -> int:
        """The log position up to which the table is known to be right."""
        return self.position

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
        self._touched = {*self._known(), *self._segments.entries, *self._deletes.entries}
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

    def needs(self, segment_id: str, retired_at: int) -> bool:
        """Whether a snapshot lists a segment that was replaced at a position."""
        table = self.commits.table
        if table is None or retired_at > self._reached:
            return True
        if (span := self._spans.get(segment_id)) is not None:
            return self.commits.needs(*span)
        # Before this process began, or never in a snapshot.
        return retired_at <= self._loaded_position and table.snapshots[0].position < retired_at

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
        return [entry.key for entry in deletes_in(self._store, manifest) if entry.status != Status.REMOVED]

    # -- Purges -------------------------------------------------------------------------------------------------------

    def _clean(self, summary: Summary) -> None:
        """Take a snapshot without entries that say what was removed from the table."""
        assert self._loaded, "only right after a commit"
        self._loaded = False
        segments = Change([], _beside_removed(self._segments, partial(segments_in, self._store)))
        deletes = Change([], _beside_removed(self._deletes, partial(deletes_in, self._store)))
        self._commit(self.commits.new_stamp(), segments, deletes, summary, keep=())
        self._loaded = True

    def forget_history(self) -> None:
        """Keep the current snapshot alone, and delete what only others needed."""
        self._loaded = False
        self.commits.expire_all()
        self._loaded = True
        self.tidy(())

    # -- Committing ---------------------------------------------------------------------------------------------------

    def _segments_change(self, stamp: Stamp) -> Change[SegmentEntry]:
        removed, written = [], []
        for number in self._touched:
            held, entry = self._wanted(number), self._segments.entries.get(number)
            if held is None:
                if entry is not None:
                    removed.append(number)
            elif entry is None or entry.segment != held.segment:
                written.append(SegmentEntry(Status.ADDED, *stamp, number, held.segment))
            elif entry.segment is not held.segment:
                # Read from the store: one copy of it is enough.
                self._segments.entries[number] = replace(entry, segment=held.segment)
        return Change(removed, written)

    def _stored(self, store: Callable[[T], DeletesEntry], due: list[T]) -> list[DeletesEntry]:
        """Store files of deleted rows, several at a time."""
        if len(due) < 2:
            return list(map(store, due))
        with ThreadPoolExecutor(UPLOADS, "deletes") as threads:
            return list(threads.map(store, due))

    def _data_key(self, held: Held) -> str:
        segment = held.segment
        return segment_key(self._location.shard, segment.first_position, segment.last_position, segment.id)

    def _deletes_key(self, held: Held, stamp: Stamp) -> str:
        return f"{self._name}/deletes/{stamp.sequence:010}-{stamp.snapshot_id:016x}-{held.segment.id}.parquet"

    def _begin(self, position: int) -> tuple[Stamp, Change[SegmentEntry], Change[DeletesEntry]]:
        """What a commit as of a log position changes.

        From here until `_end` the table counts as unknown: after any exception the next commit compares everything.
        """
        if not self._loaded:
            self.load()
        if position < self.position:
            raise Outdated(f"The table describes position {self.position}, this server is at {position}.")
        self._loaded = False
        stamp = self.commits.new_stamp()
        return stamp, self._segments_change(stamp), self._deletes_change(stamp)

    def _end(self) -> None:
        """The table lists what it must."""
        self._touched.clear()
        self._loaded = True

    def _commit(
        self,
        stamp: Stamp,
        segments: Change[SegmentEntry],
        deletes: Change[DeletesEntry],
        summary: Summary,
        *,
        keep: Collection[int],
    ) -> None:
        commits, location = self.commits, self._location
        rewritten = (
            self._segments.rewrite(segments, location, stamp, put=commits.put, new_key=lambda: commits.new_key("data")),
            self._deletes.rewrite(
                deletes, location, stamp, put=commits.put, new_key=lambda: commits.new_key("deletes")
            ),
        )
        manifests = [*self._segments.after(rewritten[0]), *self._deletes.after(rewritten[1])]
        commits.commit(stamp, manifests, summary(*rewritten), keep)
        self._segments.accept(rewritten[0])
        self._deletes.accept(rewritten[1])
        replaced = [manifest for one in rewritten for manifest in one.replaced]
        commits.leave(Leftover(manifest.key, manifest.sequence, stamp.sequence) for manifest in replaced)
        commits.leave(Leftover(entry.key, entry.sequence, stamp.sequence) for entry in rewritten[1].removed)
        self._spans |= {entry.segment.id: (entry.sequence, stamp.sequence) for entry in rewritten[0].removed}


def _beside_removed(index: Index[E], entries_in: Callable[[Manifest], Iterable[E]]) -> list[E]:
    """One entry of each manifest that has entries of removed files: a change that writes it leaves the others out."""
    found = []
    for manifest in index.manifests:
        if manifest.files[Status.REMOVED]:
            number = next(entry.number for entry in entries_in(manifest) if entry.status != Status.REMOVED)
            found.append(replace(index.entries[number], status=int(Status.EXISTING)))
    return found
