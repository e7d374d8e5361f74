"""The tables of a lake together: `messages`, and the forks that belong to it."""

from collections.abc import Callable, Collection
from typing import NamedTuple
from urllib.parse import unquote

from headwater.lake.catalog import FORKS, ForkRow, forks_table
from headwater.lake.iceberg.manifests import Place
from headwater.lake.iceberg.messages import Heading, Messages
from headwater.lake.iceberg.metadata import Snapshot
from headwater.lake.iceberg.schemas import with_ids
from headwater.lake.iceberg.small_tables import SmallTable
from headwater.storage.store import Store
from headwater.streams.cold import Held, Tombstone

NAMESPACE = "headwater"
TABLES = ("messages", "forks", "streams")
"""What catalogs of other engines call them."""


class Changes(NamedTuple):
    """What to list from now on, by number or incarnation; None is listed no longer."""

    segments: list[tuple[int, Held | None]]
    tombstones: list[tuple[int, Tombstone | None]]
    forks: list[tuple[int, ForkRow | None]]


class LakeTables:
    """The tables of one shard's lake; for one thread at a time."""

    def __init__(
        self, store: Store, shard: int, log_id: str, *, history_seconds: float, now_ms: Callable[[], int]
    ) -> None:
        url, history_ms = table_url(store.url), int(history_seconds * 1000)
        self.messages = Messages(store, url, shard, log_id, history_ms=history_ms, now_ms=now_ms)
        place = Place(url, shard, with_ids(FORKS))
        self._forks = SmallTable(store, place, "forks", log_id, history_ms=history_ms, now_ms=now_ms)
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
                self._forks_file = None

    def commit(self, heading: Heading, keep: Collection[int]) -> None:
        """Bring all tables up to the state; snapshots in `keep` stay, whatever their age."""
        if self._forks_file is None:
            self._forks_file = self._forks.commit(forks_table(self._fork_rows.values()), heading.position)
        self.messages.commit(heading._replace(forks=self._forks_file), keep)

    def load(self) -> None:
        """Find the newest commits in the store."""
        self._forks_file = None
        self.messages.load()

    def tidy(self, keep: Collection[int]) -> None:
        """Drop the snapshots whose time has come, and delete what only they needed."""
        self.messages.tidy(keep)
        self._forks.tidy({one.summary["headwater.forks"].partition(" ")[0] for one in self.snapshots})

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
