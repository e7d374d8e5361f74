"""Streaming from the lake: an offset is a position per shard, and a batch is the rows between two positions.

An offset also carries the log that its position belongs to, because a restored server has another one; the name under
which the query is registered as a consumer; and where the query began. When Spark repeats the first batch it asks for
the beginning again, and the answer may be different by that time.

    {"beginning": {"dropped": 0, "shards": {"0": 40}, "since": null, "until": null},
     "log": "9f2c41d07be3a856", "reader": "spark-5f2a", "shards": {"0": 57}, "v": 2}

A batch includes dead rows. The lake keeps them for registered consumers, so that a batch has the same rows however
often it is read.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.lake.catalog import Catalog, CatalogReader, ListedSegment
from headwater.lake.scanning import EVER, RowFilter, live_rows
from headwater.spark.failures import other_log
from headwater.spark.link import Link
from headwater.spark.options.source import DataLost, LogPosition, Selection, SourceOptions, report_loss
from headwater.spark.positions import by_shard, position_in
from headwater.spark.source.filters import NO_CONDITIONS, RowQuery
from headwater.spark.source.lake.keeping import Registrar, is_temporary
from headwater.spark.source.lake.plan import (
    LakePartition,
    LakePlanner,
    LakeUnusable,
    SegmentSlice,
    heading_up_to,
    matching,
    newest_heading,
    row_filter_for,
)
from headwater.spark.source.lake.reader import SliceReader
from headwater.spark.source.portions import UNLIMITED, TriggerLimits
from headwater.storage.store import Store

# -- Admission control -------------------------------------------------------------------------------------------------
#
# A batch ends at a position. Segments whose positions overlap form a group. As long as whole groups fit, the numbers in
# the catalog suffice. Where a limit falls inside a group, columns of that group alone are read, without payloads.


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


# -- Offsets and batches -----------------------------------------------------------------------------------------------


VERSION = 2
"""The version of the form that offsets have in a checkpoint."""
REGISTER_SECONDS = 600.0
"""How often a query without commits renews its registration, and releases what it does not need."""


class Beginning(NamedTuple):
    """Where a query began: after a position, and between which times."""

    position: int
    dropped: int | None
    """Rows up to this position had been dropped when the query was registered; unknown until it is."""
    since: int | None
    until: int | None

    @property
    def plain(self) -> dict[str, Any]:
        return {
            "dropped": self.dropped,
            "shards": by_shard(self.position),
            "since": self.since,
            "until": self.until,
        }


class LakeOffset(NamedTuple):
    """How far a query has read."""

    log_id: str
    position: int
    consumer: str
    beginning: Beginning

    @property
    def plain(self) -> dict[str, Any]:
        """The form for Spark's checkpoint. Spark compares texts, so equal offsets must have equal texts."""
        return {
            "beginning": self.beginning.plain,
            "log": self.log_id,
            "reader": self.consumer,
            "shards": by_shard(self.position),
            "v": VERSION,
        }


def parse_offset(plain: dict[str, Any]) -> LakeOffset:
    """An offset as Spark returns it from the checkpoint."""
    try:
        began = plain["beginning"]
        if plain["v"] != VERSION:
            raise KeyError("v")
        beginning = Beginning(position_in(began["shards"]), began["dropped"], began["since"], began["until"])
        return LakeOffset(plain["log"], position_in(plain["shards"]), plain["reader"], beginning)
    except (KeyError, TypeError, AttributeError):
        raise LakeUnusable(
            "The checkpoint does not belong to a query on the lake; a query cannot change its path (option via), so "
            "set via=live or use another checkpoint."
        ) from None


class LakeStream:
    """The driver's side of one query."""

    def __init__(
        self, options: SourceOptions, link: Link, store: Store, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options, self._link, self._store, self._clock = options, link, store, clock
        self._registrar = Registrar(link, options.link, options.consumer_silence_seconds)
        self._may_be_ad_hoc = options.consumer_name is None and options.consumer_silence_seconds is None
        self._admission = LakeAdmission(store, options.selection)
        self._catalogs = CatalogReader(store)
        self._target: int | None = None
        self._flushed_at = self._registered_at = float("-inf")
        self._committed_at = clock()
        self._lapsed = False
        self._newest: Catalog | None = None
        self._without_rows: RowFilter | None = None
        """What the newest catalog is known to have no rows of."""

    # -- How far a batch reaches ------------------------------------------------------------------------------------

    def initial(self) -> dict[str, Any]:
        """Where a new query begins. Registers nothing: Spark also asks when it only repeats a first batch."""
        options, starting = self._options, self._options.starting
        log_id = self._link.log_id()
        self._link.expect_log(log_id)
        if isinstance(starting, LogPosition):
            position = starting.position
        elif starting == "earliest" or (starting is None and options.since is not None):
            position = 0
        else:
            position = self._target if self._target is not None else self._flush()
        consumer = options.consumer_name or f"spark-{secrets.token_hex(8)}"
        return LakeOffset(log_id, position, consumer, Beginning(position, None, options.since, options.until)).plain

    def prepare(self) -> None:
        """Make the current end of the log the end of the query."""
        self._target = self._flush()

    def latest(self, start: dict[str, Any], limits: TriggerLimits = UNLIMITED) -> dict[str, Any]:
        """The end of the next batch; equal to `start` if there is nothing new."""
        offset = self._of_this_log(start)
        self._ensure_registered(offset)
        if offset.beginning.dropped is None:
            offset = self._begun(offset)
        self._newest = catalog = _of_log(self._current_catalog(), offset)
        up_to = self._target if self._target is not None else (0 if catalog is None else catalog.flushed)
        if catalog is None or up_to <= offset.position:
            return offset.plain
        row_filter = self._row_filter(offset, up_to)
        if self._without_rows == row_filter and not self._is_empty_batch_due():
            return offset.plain
        listed = matching(self._catalogs, row_filter)
        if not listed.segments and not self._needs_empty_batch(offset):
            self._without_rows = row_filter
            return offset.plain
        end = self._admission.end_of_batch(listed, row_filter, limits)
        return offset._replace(position=end).plain

    def _of_this_log(self, plain: dict[str, Any]) -> LakeOffset:
        """An offset of a checkpoint; a server with another log refuses every request that follows."""
        offset = parse_offset(plain)
        self._link.expect_log(offset.log_id)
        return offset

    def _begun(self, offset: LakeOffset) -> LakeOffset:
        """A new query's offset with what had been dropped when it was registered; the flush ensures a catalog."""
        catalog = heading_up_to(self._link, self._store, self._flush(), self._catalogs)
        dropped = 0 if catalog is None else catalog.dropped
        return offset._replace(beginning=offset.beginning._replace(dropped=dropped))

    def report(self) -> dict[str, Any] | None:
        """The newest known end of the lake, for Spark's progress report."""
        return None if self._newest is None else {"shards": by_shard(self._newest.flushed), "v": VERSION}

    def _is_empty_batch_due(self) -> bool:
        return self._target is None and self._clock() - self._committed_at >= REGISTER_SECONDS

    def _needs_empty_batch(self, offset: LakeOffset) -> bool:
        """Whether an empty batch is due, so that the lake can release rows of streams that are not selected."""
        if not self._is_empty_batch_due():
            return False
        newest_heading(self._store, self._catalogs)
        return bool(matching(self._catalogs, RowFilter(after=offset.position)).segments)

    def _current_catalog(self) -> Catalog | None:
        """The newest catalog, after a flush if the last one was longer ago than the flush interval.

        Spark asks a hundred times a second. Until the next flush the catalog after the last one is new enough, and also
        after it if it finds nothing new. So a query without new rows makes one request per interval.
        """
        if self._target is not None:
            return heading_up_to(self._link, self._store, self._target, self._catalogs)
        newest = self._newest
        if self._clock() - self._flushed_at < self._options.flush_interval_seconds:
            return newest or newest_heading(self._store, self._catalogs)
        position = self._flush()
        if newest is not None and newest.flushed >= position:
            return newest
        return heading_up_to(self._link, self._store, position, self._catalogs)

    def _flush(self) -> int:
        self._flushed_at = self._clock()
        return position_in(self._link.flush())

    # -- What a batch contains --------------------------------------------------------------------------------------

    def plan(self, start: dict[str, Any], end: dict[str, Any]) -> list[LakePartition]:
        """The partitions of a batch; however often it is planned, they contain the same rows."""
        first, last = parse_offset(start), self._of_this_log(end)
        if (first.log_id, first.consumer, first.beginning) != (last.log_id, last.consumer, last.beginning):
            # Spark repeats the first batch from a new initial offset; the end knows where the query really began.
            first = last._replace(position=last.beginning.position)
        self._ensure_registered(first)
        self._let_go_with_the_query(first)
        if first.position >= last.position:
            return []
        catalog = _of_log(heading_up_to(self._link, self._store, last.position, self._catalogs), last)
        assert catalog is not None, "there is a catalog of every position above 0"
        self._check_loss(first, catalog)
        return LakePlanner(self._options, self._store, self._catalogs).stream(self._row_filter(first, last.position))

    def _row_filter(self, offset: LakeOffset, up_to: int) -> RowFilter:
        beginning = offset.beginning
        row_filter = row_filter_for(self._options.selection, beginning.since, beginning.until)
        return row_filter._replace(after=offset.position, up_to=min(up_to, EVER))

    def _check_loss(self, offset: LakeOffset, catalog: Catalog) -> None:
        """Report a loss if rows were dropped after the query began.

        A query whose registration lapsed cannot tell drops before its beginning from later ones, so all count.
        """
        before = 0 if self._lapsed else offset.beginning.dropped or 0
        if catalog.dropped <= max(offset.position, before):
            return
        try:
            report_loss(
                self._options,
                f"Rows up to position {catalog.dropped} were dropped from the lake, but the consumer "
                f"{offset.consumer!r} has read only up to {offset.position}, because its registration expired",
            )
        except DataLost:
            if self._lapsed:
                # Otherwise the next start would find the registration and assume that it never lapsed.
                self._registrar.forget(offset.consumer)
            raise

    # -- Registration -----------------------------------------------------------------------------------------------

    def commit(self, end: dict[str, Any]) -> None:
        """Release everything up to here: this query does not need it any more."""
        self._renew(self._of_this_log(end))
        self._committed_at = self._clock()

    def _ensure_registered(self, offset: LakeOffset) -> None:
        """Register before the first read, so that nothing more is dropped, and renew from time to time."""
        if self._registrar.consumer != offset.consumer:
            if offset.beginning.dropped is None:
                self._register(offset)
            else:
                self._renew(offset)
        elif self._clock() - self._registered_at >= REGISTER_SECONDS:
            self._renew(offset)

    def _renew(self, offset: LakeOffset) -> None:
        """Renew the registration. If the server says that it has lapsed, check for losses and register again."""
        if self._registrar.renew(offset.log_id, offset.consumer, offset.position):
            self._registered_at = self._clock()
            return
        self._lapsed = True
        # Before registering, so that a driver that is killed here leaves no registration; and after it, when nothing
        # more can be dropped.
        self._check_lapse(offset)
        self._register(offset)
        self._check_lapse(offset)

    def _check_lapse(self, offset: LakeOffset) -> None:
        """Check for losses in a catalog that is no older than a flush now, and so includes all drops so far."""
        catalog = heading_up_to(self._link, self._store, self._flush(), self._catalogs)
        if catalog is not None:
            self._check_loss(offset, catalog)

    def _register(self, offset: LakeOffset) -> None:
        self._registrar.register(offset.log_id, offset.consumer, offset.position)
        self._registered_at = self._clock()

    def _let_go_with_the_query(self, offset: LakeOffset) -> None:
        """If nothing can resume this query, let its registration end soon after it."""
        if self._may_be_ad_hoc and is_temporary(offset.consumer):
            self._registrar.shorten(offset.log_id, offset.consumer, offset.position)
        self._may_be_ad_hoc = False

    def stop(self) -> None:
        """Give no more signs of life; the registration stays for a restart until it lapses."""
        self._registrar.stop()


def _of_log(catalog: Catalog | None, offset: LakeOffset) -> Catalog | None:
    """A catalog that describes the log of an offset; it may have been read without asking the server."""
    if catalog is not None and catalog.log_id != offset.log_id:
        raise other_log()
    return catalog
