"""The tables of a lake together: `messages`, and what belongs to its snapshots, the forks and the pinned rows."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from headwater.lake.catalog import FORKS, ForkRow, forks_table
from headwater.lake.iceberg.manifests import TableLocation
from headwater.lake.iceberg.messages import Heading, MessagesTable
from headwater.lake.iceberg.metadata import Snapshot
from headwater.lake.iceberg.pinned import PinnedTable
from headwater.lake.iceberg.pinned_rows import PinnedRows, Source
from headwater.lake.iceberg.schemas import with_ids
from headwater.lake.iceberg.small_tables import SmallTable
from headwater.storage.store import Store
from headwater.streams.cold import Held, Tombstone

NAMESPACE = "headwater"
TABLES = ("messages", "pinned", "forks", "streams")
"""What catalogs of other engines call them."""


class Changes(NamedTuple):
    """What to list from now on, by number or incarnation; None is listed no longer."""

    segments: list[tuple[int, Held | None]]
    tombstones: list[tuple[int, Tombstone | None]]
    forks: list[tuple[int, ForkRow | None]]
    sources: Sequence[tuple[int, Source | None]] = ()
    """Lives with dead rows that forks hold; None for those that are no longer such."""


class LakeTables:
    """The tables of one shard's lake; for one thread at a time."""

    def __init__(
        self, store: Store, shard: int, log_id: str, *, history_seconds: float, now_ms: Callable[[], int]
    ) -> None:
        url, history_ms = table_url(store.url), int(history_seconds * 1000)
        self.messages = MessagesTable(store, url, shard, log_id, history_ms=history_ms, now_ms=now_ms)
        self.pinned = PinnedTable(store, url, shard, log_id, self.messages.held, history_ms=history_ms, now_ms=now_ms)
        self._pinned_rows = PinnedRows()
        self._pinned_rows_changed = False
        self._heading: Heading | None = None
        """That of the last commit."""
        location = TableLocation(url, shard, with_ids(FORKS))
        self._forks = SmallTable(store, location, "forks", log_id, history_ms=history_ms, now_ms=now_ms)
        self._fork_rows: dict[int, ForkRow] = {}
        self._forks_file: str | None = None
        """The file of the forks; None if they have changed since."""

    def update(self, changes: Changes) -> None:
        """Take over what has changed in the state."""
        self.messages.update(changes.segments, changes.tombstones)
        for incarnation, row in changes.forks:
            before = self._fork_rows.pop(incarnation, None)
            if row is not None:
                self._fork_rows[incarnation] = row
            if row != before:
                self._forks_file, self._pinned_rows_changed = None, True
        if changes.sources:
            self._pinned_rows.update(changes.sources)
            self._pinned_rows_changed = True

    def commit(self, heading: Heading, keep: Collection[int]) -> None:
        """Bring all tables up to the state; snapshots in `keep` stay, whatever their age.

        `messages` is the last one: a row that dies is for a moment in both tables, but never in neither.
        """
        if self._forks_file is None:
            self._forks_file = self._forks.commit(forks_table(self._fork_rows.values()), heading.position)
        if self._pinned_rows_changed:
            self.pinned.update(self._pinned_rows, self._pinned_rows.settle(self._fork_rows))
            self._pinned_rows_changed = False
        pinned = self.pinned.commit(heading, self._pinned_snapshots())
        self.messages.commit(heading._replace(forks=self._forks_file, pinned=pinned), keep)
        self._heading = heading

    def _pinned_snapshots(self) -> set[int]:
        """The snapshots of `pinned` that belong to those of `messages`."""
        return {int(one.summary.get("headwater.pinned", 0)) for one in self.snapshots}

    def load(self) -> None:
        """Find the newest commits in the store."""
        self._forks_file = None
        self.messages.load()
        self.pinned.load()

    def tidy(self, keep: Collection[int]) -> None:
        """Drop the snapshots whose time has come, and delete what only they needed."""
        self.messages.tidy(keep)
        if self._heading is not None and self.pinned.is_overtaken:
            # By a server that is no longer in charge: its next commit to `messages` will fail, this one stays.
            self.pinned.load()
            self.pinned.commit(self._heading, self._pinned_snapshots())
        self.pinned.tidy(self._pinned_snapshots())
        self._forks.tidy({one.summary["headwater.forks"].partition(" ")[0] for one in self.snapshots})

    def forget_history(self, heading: Heading) -> None:
        """Keep the current snapshot of every table alone, and delete all that only others needed; after a commit."""
        assert self._forks_file is not None, "only right after a commit"
        self.pinned.clean(heading)
        assert self.pinned.current is not None
        self.messages.clean(heading._replace(forks=self._forks_file, pinned=str(self.pinned.current.id)))
        self.messages.forget_history()
        self.pinned.forget_history()
        self._forks.forget_history({self._forks_file.partition(" ")[0]})

    def needs(self, segment_id: str, retired_at: int) -> bool:
        """Whether a snapshot lists a segment that was replaced at a position."""
        return self.messages.needs(segment_id, retired_at) or self.pinned.needs(segment_id, retired_at)

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """The snapshots of `messages`, the oldest first."""
        table = self.messages.commits.table
        return () if table is None else table.snapshots


def table_url(url: str) -> str:
    """The URL of a store as table formats record it: paths of files are not percent-encoded there.

    >>> table_url("file:///data/my%20lake"), table_url("s3://bucket/prefix")
    ('file:///data/my lake', 's3://bucket/prefix')
    """
    return unquote(url) if url.startswith("file:") else url
