"""Admission: how far a batch may go so that it has no more rows or bytes than a trigger may have.

A batch ends at a position. Segments whose positions overlap are a group; as long as whole groups fit, what the catalog
says of them is enough. Only where the limit is reached inside of a group are columns read, of this group alone, and not
its payload.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.lake.catalog import Catalog, ListedSegment
from headwater.lake.scanning import EVER, RowFilter, live_rows
from headwater.spark.options.reading import Selection
from headwater.spark.source.filters import ANY
from headwater.spark.source.lake.plan import Slice
from headwater.spark.source.lake.reader import Asked, SliceReader
from headwater.storage.store import Store

COUNTED = frozenset({"position", "offset", "next_offset"})


class Limits(NamedTuple):
    """The most that a batch may have; a single position may have more."""

    bytes_max: int = EVER
    records_max: int = EVER


UNLIMITED = Limits()


class Profile(NamedTuple):
    """How many bytes and rows there are up to each of some positions, which are sorted."""

    positions: npt.NDArray[np.int64]
    bytes: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]

    def behind(self, after: int, up_to: int) -> "Profile":
        """The same from one position on, which does not count itself, up to another."""
        first, stop = np.searchsorted(self.positions, [after, up_to], side="right")
        before_bytes, before_rows = (self.bytes[first - 1], self.rows[first - 1]) if first else (0, 0)
        window = slice(first, stop)
        return Profile(self.positions[window], self.bytes[window] - before_bytes, self.rows[window] - before_rows)

    def admitted(self, left: Limits) -> int:
        """How many of the positions fit."""
        by_bytes = np.searchsorted(self.bytes, left.bytes_max, side="right")
        by_rows = np.searchsorted(self.rows, left.records_max, side="right")
        return int(min(by_bytes, by_rows))


class Admission:
    """Cuts one batch after the other off a lake that grows; the group it is in the middle of is kept."""

    def __init__(self, store: Store, selection: Selection) -> None:
        self._store, self._selection = store, selection
        self._kept: tuple[tuple[str, ...], int, Profile] | None = None

    def end_of_batch(self, catalog: Catalog, wanted: RowFilter, limits: Limits) -> int:
        """Up to which position a batch goes that begins behind `wanted.after`, if it may go up to `wanted.up_to`."""
        if limits == UNLIMITED:
            return wanted.up_to
        left, end, empty = limits, wanted.after, True
        for group in groups(live_rows(catalog, None, (), wanted, inherited=False).segments):
            last = max(listed.segment.last_position for listed in group)
            size = sum(listed.segment.payload_bytes for listed in group)
            rows = sum(listed.segment.rows for listed in group)
            inside = all(listed.segment.first_position > wanted.after for listed in group) and last <= wanted.up_to
            if inside and min(left) <= 0:
                return end
            if not inside or size > left.bytes_max or rows > left.records_max:
                profile = self._profile(group, wanted).behind(wanted.after, wanted.up_to)
                fit = profile.admitted(left)
                if fit < len(profile.positions):
                    fit = max(fit, 1) if empty else fit
                    return int(profile.positions[fit - 1]) if fit else end
                size, rows = (int(profile.bytes[-1]), int(profile.rows[-1])) if fit else (0, 0)
            left = Limits(left.bytes_max - size, left.records_max - rows)
            end, empty = min(last, wanted.up_to), empty and not rows
        return wanted.up_to

    def _profile(self, group: list[ListedSegment], wanted: RowFilter) -> Profile:
        ids = tuple(listed.segment.id for listed in group)
        if self._kept is None or self._kept[0] != ids or self._kept[1] > wanted.after:
            # However far this batch may go, the next one may go on behind it.
            profile = profile_of(self._store, group, wanted._replace(up_to=EVER), self._selection)
            self._kept = ids, wanted.after, profile
        return self._kept[2]


def groups(segments: Iterable[ListedSegment]) -> Iterator[list[ListedSegment]]:
    """Segments whose positions overlap, together; in the order of positions."""
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


def profile_of(store: Store, group: list[ListedSegment], wanted: RowFilter, selection: Selection) -> Profile:
    """What there is of what is asked for in some segments, by position."""
    asked = Asked(COUNTED, selection, ANY)
    positions, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for listed in group:
        for table in SliceReader(store, Slice(listed, 0, 1), wanted, asked, tombstones=None, pieces=()).tables():
            positions.append(table["position"].to_numpy())
            sizes.append(table["next_offset"].to_numpy() - table["offset"].to_numpy())
    position, size = np.concatenate(positions), np.concatenate(sizes)
    order = np.argsort(position, kind="stable")
    position, total = position[order], np.cumsum(size[order])
    last_rows = np.flatnonzero(np.append(position[1:] != position[:-1], np.ones(min(len(position), 1), bool)))
    return Profile(position[last_rows], total[last_rows], last_rows + 1)
