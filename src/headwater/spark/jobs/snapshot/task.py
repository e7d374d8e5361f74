"""Folding on an executor: messages come in order, stream after stream; each that is whole is published.

Nothing but the state of one stream is in memory. A stream that does not come as it was planned, because it was trimmed,
deleted or given another snapshot meanwhile, is left as it is: the next run finds it as it is then.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

import pyarrow as pa

from headwater.lake.format import name_of
from headwater.protocol.limits import SNAPSHOT_BYTES_MAX
from headwater.protocol.refusals import Code
from headwater.spark.jobs.snapshot.folds import Reducer, advance
from headwater.spark.jobs.snapshot.plan import Want
from headwater.spark.jobs.snapshot.reducers import Fold, Unfoldable
from headwater.spark.jobs.snapshot.store import Left, SnapshotStore, Stale
from headwater.spark.link import Link, LinkRefused, Range, ScanBroken

COLUMNS = ("bucket", "stream", "offset", "next_offset", "payload")
"""What a fold needs to know of a message."""
SLICE_STREAMS = 1_000
"""Streams that are asked for at a time; one that is gone is asked for no more."""
ATTEMPTS_MAX = 5
"""How often the rest of a slice is asked for without anything new."""
PROBLEMS_MAX = 10
"""How many streams of a task are named whose fold failed; all of them are counted."""


T = TypeVar("T")


class Told(NamedTuple):
    """Something that a task has to tell: how many of what, or what is wrong with one."""

    what: str
    number: int
    detail: str | None = None


class Folder:
    """Folds what it is given, and counts what became of it."""

    def __init__(self, reducer: Reducer, snapshots: SnapshotStore) -> None:
        self._reducer, self._snapshots = reducer, snapshots
        self._fold: Fold | None = None
        self._reached = self._messages = 0
        self._problems: list[str] = []
        self._counts: Counter[str] = Counter()
        self.want: Want | None = None

    def begin(self, want: Want) -> None:
        """Messages of another stream come."""
        self.end()
        self.want, self._reached, self._messages = want, want.start, 0
        self._fold = self._judged(lambda: self._reducer.begin(self._earlier(want)))

    def add(self, offset: int, next_offset: int, message: bytes) -> None:
        """The next message of the stream."""
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
        """The stream is whole, or will never be."""
        want, fold = self.want, self._fold
        if want is not None and fold is not None:
            if self._reached == want.tail:
                self._judged(lambda: self._publish(want, fold))
            else:
                self._give_up("gone")
        self.forget()

    def forget(self) -> None:
        """Begin the stream anew another time."""
        self.want = self._fold = None

    def count(self, what: str) -> None:
        self._counts[what] += 1

    def told(self) -> list[Told]:
        """All counts, and some of the problems."""
        problems = [Told("problem", 1, problem) for problem in self._problems]
        return [Told(what, count) for what, count in self._counts.items()] + problems

    def _earlier(self, want: Want) -> bytes | None:
        return self._snapshots.read(want, self._reducer) if want.goes_on else None

    def _publish(self, want: Want, fold: Fold) -> None:
        data = fold.result()
        if len(data) > SNAPSHOT_BYTES_MAX:
            raise Unfoldable(f"It comes to {len(data)} bytes, and a snapshot has at most {SNAPSHOT_BYTES_MAX}.")
        self._snapshots.publish(want, data, self._reducer)
        self._counts.update(
            published=1, messages=self._messages, bytes_folded=want.tail - want.start, bytes_published=len(data)
        )

    def _judged(self, step: Callable[[], T]) -> T | None:
        """Take a step; if it cannot be taken, the stream is given up."""
        try:
            return step()
        except Unfoldable as error:
            self._fail(error)
        except Stale:
            self._give_up("stale")
        except Left:
            self._give_up("gone")
        return None

    def _fail(self, error: Unfoldable) -> None:
        self._give_up("failed")
        if len(self._problems) < PROBLEMS_MAX and self.want is not None:
            self._problems.append(f"{self.want.stream}: {error}")

    def _give_up(self, why: str) -> None:
        self._fold = None
        self.count(why)


# -- Where messages come from ------------------------------------------------------------------------------------------


def fold_sorted(batches: Iterable[pa.RecordBatch], folder: Folder) -> None:
    """Rows by stream and offset, each with what is wanted of its stream beside it."""
    for batch in batches:
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        names = list(map(name_of, columns["bucket"], columns["stream"]))
        messages = zip(columns["offset"], columns["next_offset"], columns["payload"], strict=True)
        for row, (name, message) in enumerate(zip(names, messages, strict=True)):
            if folder.want is None or folder.want.stream != name:
                life = (columns[part][row] for part in ("incarnation", "start", "tail", "goes_on"))
                folder.begin(Want(name, *life))
            folder.add(*message)
    folder.end()


def fold_live(wants: Iterable[Want], link: Link, folder: Folder) -> None:
    """Ask a server for the messages, some streams at a time."""
    asked = iter(wants)
    while left := {want.stream: want for want in islice(asked, SLICE_STREAMS)}:
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


def _fold_slice(left: dict[str, Want], link: Link, folder: Folder) -> None:
    """Fold what is left; a stream that is done is not left any more."""
    ranges = [Range(want.stream, want.incarnation, want.start, want.tail) for want in left.values()]
    with link.scan(ranges, COLUMNS) as batches:
        for name, message in _messages(batches):
            if folder.want is None or folder.want.stream != name:
                _finish(left, folder)
                folder.begin(left[name])
            folder.add(*message)
    _finish(left, folder)
    for _ in left:
        folder.count("gone")
    left.clear()


def _finish(left: dict[str, Want], folder: Folder) -> None:
    if folder.want is not None:
        del left[folder.want.stream]
        folder.end()


def _messages(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, tuple[int, int, bytes]]]:
    for batch in batches:
        bucket, stream, offset, next_offset, payload = (batch.column(name).to_pylist() for name in COLUMNS)
        yield from zip(map(name_of, bucket, stream), zip(offset, next_offset, payload, strict=True), strict=True)
