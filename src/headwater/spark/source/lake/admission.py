"""Admission control on the lake: how far a micro-batch may reach without exceeding the limits of its trigger.

A batch ends at a position. Segments whose positions overlap form a group. As long as whole groups fit, the numbers in
the catalog suffice. Where a limit falls inside a group, columns of that group alone are read, without payloads.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.lake.catalog import Catalog, ListedSegment
from headwater.lake.scanning import EVER, RowFilter, live_rows
from headwater.spark.options.source import Selection
from headwater.spark.source.filters import NO_CONDITIONS
from headwater.spark.source.lake.plan import SegmentSlice
from headwater.spark.source.lake.reader import SliceReader
from headwater.spark.source.limits import UNLIMITED, TriggerLimits
from headwater.spark.source.row_query import RowQuery
from headwater.storage.store import Store

COUNTED = frozenset({"position", "offset", "next_offset"})


class Profile(NamedTuple):
    """Cumulative bytes and rows of a group, at each of its positions, in order."""

    positions: npt.NDArray[np.int64]
    bytes: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]

    def between(self, after: int, up_to: int) -> "Profile":
        """The part above `after`, up to and including `up_to`, counted from its beginning."""
        first, stop = np.searchsorted(self.positions, [after, up_to], side="right")
        before_bytes, before_rows = (self.bytes[first - 1], self.rows[first - 1]) if first else (0, 0)
        window = slice(first, stop)
        return Profile(self.positions[window], self.bytes[window] - before_bytes, self.rows[window] - before_rows)

    def fitting(self, limits: TriggerLimits) -> int:
        """How many of the positions are within the limits."""
        by_bytes = np.searchsorted(self.bytes, limits.bytes_max, side="right")
        by_rows = np.searchsorted(self.rows, limits.records_max, side="right")
        return int(min(by_bytes, by_rows))


class LakeAdmission:
    """Ends one batch after another on a lake that grows; caches the profile of the group that the last one ended in."""

    def __init__(self, store: Store, selection: Selection) -> None:
        self._store, self._selection = store, selection
        self._cached: tuple[tuple[str, ...], int, Profile] | None = None

    def end_of_batch(self, catalog: Catalog, row_filter: RowFilter, limits: TriggerLimits) -> int:
        """The last position of a batch that begins after `row_filter.after` and may reach up to `row_filter.up_to`.

        A batch contains at least one position with rows, even if that alone exceeds the limits.
        """
        if limits == UNLIMITED:
            return row_filter.up_to
        after, up_to = row_filter.after, row_filter.up_to
        left, end, empty = limits, after, True
        for group in groups(live_rows(catalog, None, (), row_filter, inherited=False).segments):
            last = max(listed.segment.last_position for listed in group)
            size = sum(listed.segment.payload_bytes for listed in group)
            rows = sum(listed.segment.rows for listed in group)
            inside = all(listed.segment.first_position > after for listed in group) and last <= up_to
            if inside and left.are_reached:
                return end
            if not inside or not left.fit(size, rows):
                profile = self._profile(group, row_filter).between(after, up_to)
                fitting = profile.fitting(left)
                if fitting < len(profile.positions):
                    fitting = max(fitting, 1) if empty else fitting
                    return int(profile.positions[fitting - 1]) if fitting else end
                size, rows = (int(profile.bytes[-1]), int(profile.rows[-1])) if fitting else (0, 0)
            left = left.less(size, rows)
            end, empty = min(last, up_to), empty and not rows
        return up_to

    def _profile(self, group: list[ListedSegment], row_filter: RowFilter) -> Profile:
        ids = tuple(listed.segment.id for listed in group)
        if self._cached is None or self._cached[0] != ids or self._cached[1] > row_filter.after:
            # Unbounded above, so that the next batch can use the profile too.
            profile = profile_of(self._store, group, row_filter._replace(up_to=EVER), self._selection)
            self._cached = ids, row_filter.after, profile
        return self._cached[2]


def groups(segments: Iterable[ListedSegment]) -> Iterator[list[ListedSegment]]:
    """Groups of segments whose positions overlap, in the order of positions."""
    group: list[ListedSegment] = []
    last = -1
    for listed in sorted(segments, key=lambda listed: listed.segment.first_position):
        if group and listed.segment.first_position > last:
            yield group
            group = []
        group.append(listed)
        last = max(last, listed.segment.last_position)
    if group:
        yield group


def profile_of(store: Store, group: list[ListedSegment], row_filter: RowFilter, selection: Selection) -> Profile:
    """The profile of the selected rows in some segments."""
    query = RowQuery(COUNTED, selection, NO_CONDITIONS)
    positions, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for listed in group:
        for table in SliceReader(store, SegmentSlice(listed, 0, 1), row_filter, query).tables():
            positions.append(table["position"].to_numpy())
            sizes.append(table["next_offset"].to_numpy() - table["offset"].to_numpy())
    position, size = np.concatenate(positions), np.concatenate(sizes)
    order = np.argsort(position, kind="stable")
    position, total = position[order], np.cumsum(size[order])
    last_rows = np.flatnonzero(np.append(position[1:] != position[:-1], np.ones(min(len(position), 1), bool)))
    return Profile(position[last_rows], total[last_rows], last_rows + 1)
