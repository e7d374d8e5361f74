"""Folding on an executor: messages arrive in order, stream by stream, and each complete stream is published.

Only the state of one stream is in memory. A stream that was trimmed, deleted or given another snapshot since it was
planned is skipped; the next run plans it again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

import pyarrow as pa

from headwater.client import Conflict, Forbidden, Gone, NotFound, ScanRange, Stream, Unauthorized
from headwater.lake.format import name_of
from headwater.protocol import incarnations
from headwater.protocol.limits import SNAPSHOT_BYTES_MAX
from headwater.protocol.offsets import Form, render
from headwater.protocol.refusals import Code
from headwater.spark.failures import LinkRefused, ScanBroken, translated
from headwater.spark.jobs.snapshot.folds import Fold, Reducer, Unfoldable, advance, result_of
from headwater.spark.jobs.snapshot.plan import Pending
from headwater.spark.link import Link

# -- Reading and publishing snapshots, each for one incarnation of its stream ------------------------------------------


T = TypeVar("T")


class Stale(Exception):
    """The stream has a newer snapshot."""


class StreamChanged(Exception):
    """The stream was deleted, recreated or trimmed, so its plan is void."""


class SnapshotStore:
    """Snapshots of streams on one server; not thread-safe."""

    def __init__(self, link: Link, log_id: str) -> None:
        self._link, self._log_id = link, log_id

    def read(self, pending: Pending, reducer: Reducer) -> bytes:
        """The snapshot that a fold starts from; Unfoldable if another reducer has made it."""
        found = self._request(lambda: self._stream(pending).snapshot(render(pending.start, Form.PLAIN)))
        if not reducer.has_made(found.content_type):
            raise Unfoldable(
                f"Its snapshot has the content type {found.content_type!r}, not {reducer.content_type!r}; use the "
                "reducer that made it, or publish a snapshot of this reducer first."
            )
        return found.data

    def publish(self, pending: Pending, data: bytes, reducer: Reducer) -> None:
        """Publish a snapshot at the planned tail of a stream."""
        stream, offset = self._stream(pending), render(pending.tail, Form.PLAIN)
        self._request(lambda: stream.publish_snapshot(data, offset=offset, content_type=reducer.content_type))

    def _stream(self, pending: Pending) -> Stream:
        return self._link.stream(pending.stream, incarnations.render(self._log_id, pending.incarnation))

    def _request(self, send: Callable[[], T]) -> T:
        try:
            return send()
        except NotFound as refused:
            raise (Stale if refused.code == Code.SNAPSHOT_NOT_FOUND else StreamChanged) from refused
        except Conflict as refused:
            raise Stale from refused
        except Gone as refused:
            raise StreamChanged from refused
        except (Unauthorized, Forbidden):
            with translated():
                raise


# -- Folding -----------------------------------------------------------------------------------------------------------


COLUMNS = ("bucket", "stream", "offset", "next_offset", "payload")
"""The columns that a fold needs."""
SLICE_STREAMS = 1_000
"""Streams in a request; one that is gone is not requested again."""
ATTEMPTS_MAX = 5
"""Consecutive attempts at a slice without progress."""
PROBLEMS_MAX = 10
"""Failed streams that a task names; all of them are counted."""


class TaskResult(NamedTuple):
    """A count of a task, or with `detail` one of its problems."""

    what: str
    number: int
    detail: str | None = None


class Folder:
    """Folds stream after stream, publishes the results and counts the outcomes."""

    def __init__(self, reducer: Reducer, snapshots: SnapshotStore) -> None:
        self._reducer, self._snapshots = reducer, snapshots
        self._fold: Fold | None = None
        self._reached = self._messages = 0
        self._problems: list[str] = []
        self._counts: Counter[str] = Counter()
        self.pending: Pending | None = None

    def begin(self, pending: Pending) -> None:
        """Start with another stream."""
        self.end()
        self.pending, self._reached, self._messages = pending, pending.start, 0
        self._fold = self._attempt(lambda: self._reducer.begin(self._earlier(pending)))

    def add(self, offset: int, next_offset: int, message: bytes) -> None:
        """Add the next message of the stream."""
        fold = self._fold
        if fold is None:
            return
        if offset != self._reached:
            self._give_up("gone")
            return
        self._reached, self._messages = next_offset, self._messages + 1
        try:
            advance(fold, message)
        except Unfoldable as error:
            self._fail(error)

    def end(self) -> None:
        """Publish the stream if it is complete."""
        pending, fold = self.pending, self._fold
        if pending is not None and fold is not None:
            if self._reached == pending.tail:
                self._attempt(lambda: self._publish(pending, fold))
            else:
                self._give_up("gone")
        self.forget()

    def forget(self) -> None:
        """Discard the current stream, to begin it again later."""
        self.pending = self._fold = None

    def count(self, what: str) -> None:
        self._counts[what] += 1

    def results(self) -> list[TaskResult]:
        """All counts, and some of the problems."""
        problems = [TaskResult("problem", 1, problem) for problem in self._problems]
        return [TaskResult(what, count) for what, count in self._counts.items()] + problems

    def _earlier(self, pending: Pending) -> bytes | None:
        return self._snapshots.read(pending, self._reducer) if pending.resumes else None

    def _publish(self, pending: Pending, fold: Fold) -> None:
        data = result_of(fold)
        if len(data) > SNAPSHOT_BYTES_MAX:
            raise Unfoldable(f"The result has {len(data)} bytes, the limit of a snapshot is {SNAPSHOT_BYTES_MAX}.")
        self._snapshots.publish(pending, data, self._reducer)
        self._counts.update(
            published=1, messages=self._messages, bytes_folded=pending.tail - pending.start, bytes_published=len(data)
        )

    def _attempt(self, step: Callable[[], T]) -> T | None:
        """Take a step; give the stream up if it fails."""
        try:
            return step()
        except Unfoldable as error:
            self._fail(error)
        except Stale:
            self._give_up("stale")
        except StreamChanged:
            self._give_up("gone")
        return None

    def _fail(self, error: Unfoldable) -> None:
        self._give_up("failed")
        if len(self._problems) < PROBLEMS_MAX and self.pending is not None:
            self._problems.append(f"{self.pending.stream}: {error}")

    def _give_up(self, why: str) -> None:
        self._fold = None
        self.count(why)


# -- Reading messages --------------------------------------------------------------------------------------------------


def fold_sorted(batches: Iterable[pa.RecordBatch], folder: Folder) -> None:
    """Fold rows that are sorted by stream and offset, each with the columns of its `Pending`."""
    for batch in batches:
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        names = list(map(name_of, columns["bucket"], columns["stream"]))
        messages = zip(columns["offset"], columns["next_offset"], columns["payload"], strict=True)
        for row, (name, message) in enumerate(zip(names, messages, strict=True)):
            if folder.pending is None or folder.pending.stream != name:
                rest = (columns[part][row] for part in Pending._fields[1:])
                folder.begin(Pending(name, *rest))
            folder.add(*message)
    folder.end()


def fold_live(pending: Iterable[Pending], link: Link, folder: Folder, slice_streams: int = SLICE_STREAMS) -> None:
    """Fold messages that are read from the server, some streams at a time."""
    rest = iter(pending)
    while left := {one.stream: one for one in islice(rest, slice_streams)}:
        attempts = 0
        while left:
            before = len(left)
            try:
                _fold_slice(left, link, folder)
            except ScanBroken:
                folder.forget()
                attempts = 0 if len(left) < before else attempts + 1
                if attempts == ATTEMPTS_MAX:
                    raise
            except LinkRefused as refused:
                if refused.code != Code.RANGES_UNAVAILABLE:
                    raise
                names = list(left)
                for problem in refused.problem["problems"]:
                    del left[names[problem["index"]]]
                    folder.count("gone")


def _fold_slice(left: dict[str, Pending], link: Link, folder: Folder) -> None:
    """Fold the streams that are left, and remove each that is done."""
    ranges = [ScanRange(one.stream, one.incarnation, one.start, one.tail) for one in left.values()]
    with link.scan(ranges, COLUMNS) as batches:
        for name, message in _messages(batches):
            if folder.pending is None or folder.pending.stream != name:
                _finish(left, folder)
                folder.begin(left[name])
            folder.add(*message)
    _finish(left, folder)
    for _ in left:
        folder.count("gone")
    left.clear()


def _finish(left: dict[str, Pending], folder: Folder) -> None:
    if folder.pending is not None:
        del left[folder.pending.stream]
        folder.end()


def _messages(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, tuple[int, int, bytes]]]:
    for batch in batches:
        bucket, stream, offset, next_offset, payload = (batch.column(name).to_pylist() for name in COLUMNS)
        yield from zip(map(name_of, bucket, stream), zip(offset, next_offset, payload, strict=True), strict=True)
