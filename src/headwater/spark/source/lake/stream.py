"""Streaming from the lake: the offset is a position per shard, and a batch is the rows between two of them.

An offset also carries the name under which the query is registered, and where the query began: Spark asks for the
beginning anew when it repeats the first batch, and by then it may be another one.

    {"beginning": {"dropped": 0, "shards": {"0": 40}, "since": null, "until": null},
     "reader": "spark-5f2a", "shards": {"0": 57}, "v": 1}

Dead rows are in a batch too: the registration keeps them, so that a batch is the same however often it is read.
"""

import secrets
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from headwater.lake.catalog import Catalog
from headwater.lake.scanning import EVER, RowFilter, live_rows
from headwater.protocol.limits import CONSUMER_IDLE_US
from headwater.spark.link import Link
from headwater.spark.options.places import Positions
from headwater.spark.options.reading import SourceOptions
from headwater.spark.source.lake.admission import UNLIMITED, Admission, Limits
from headwater.spark.source.lake.plan import (
    SHARD,
    LakeUnusable,
    LakeWork,
    catalog_up_to,
    newest_catalog,
    plan_stream,
    position_of,
    wanted_of,
)
from headwater.spark.source.losses import DataLost, lose
from headwater.storage.store import Store

REGISTER_SECONDS = 600.0
"""How often a query that has nothing to commit says that it is still there, and lets go of what it does not need."""


class Beginning(NamedTuple):
    """Where a query began: behind a position, when rows up to another had been dropped; and between which times."""

    position: int
    dropped: int | None
    """Not known before the query is registered: until then more may be dropped."""
    since: int | None
    until: int | None

    @property
    def plain(self) -> dict[str, Any]:
        return {
            "dropped": self.dropped,
            "shards": {SHARD: self.position},
            "since": self.since,
            "until": self.until,
        }


class LakeOffset(NamedTuple):
    """How far a query has come."""

    position: int
    reader: str
    beginning: Beginning

    @property
    def plain(self) -> dict[str, Any]:
        """In the form that Spark keeps: it compares texts, so there is one for each offset."""
        return {"beginning": self.beginning.plain, "reader": self.reader, "shards": {SHARD: self.position}, "v": 1}


def parse_offset(plain: dict[str, Any]) -> LakeOffset:
    """An offset as Spark gives it back."""
    try:
        told = plain["beginning"]
        if plain["v"] != 1:
            raise KeyError("v")
        beginning = Beginning(position_of(told["shards"]), told["dropped"], told["since"], told["until"])
        return LakeOffset(position_of(plain["shards"]), plain["reader"], beginning)
    except (KeyError, TypeError, AttributeError):
        raise LakeUnusable(
            "The checkpoint is not of a query on the lake; a query stays on the path that it began on (option via)."
        ) from None


class LakeStream:
    """What the driver does for one query."""

    def __init__(
        self, options: SourceOptions, link: Link, store: Store, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options, self._link, self._store, self._clock = options, link, store, clock
        self._admission = Admission(store, options.selection)
        self._target: int | None = None
        self._flushed_at = self._registered_at = float("-inf")
        self._committed_at = clock()
        self._known_reader: str | None = None
        self._lapsed = False
        self._newest: Catalog | None = None

    # -- How far ----------------------------------------------------------------------------------------------------

    def initial(self) -> dict[str, Any]:
        """Where a new query begins. Nothing is registered yet: Spark may ask only to repeat a first batch."""
        options, starting = self._options, self._options.starting
        if isinstance(starting, Positions):
            position = position_of(starting.shards)
        elif starting == "earliest" or (starting is None and options.since is not None):
            position = 0
        else:
            position = self._target if self._target is not None else self._flush()
        reader = options.reader_name or f"spark-{secrets.token_hex(8)}"
        return LakeOffset(position, reader, Beginning(position, None, options.since, options.until)).plain

    def prepare(self) -> None:
        """End at what there is now."""
        self._target = self._flush()

    def latest(self, start: dict[str, Any], limits: Limits = UNLIMITED) -> dict[str, Any]:
        """The end of the next batch; where it starts, if there is nothing new."""
        offset = parse_offset(start)
        self._register_first(offset)
        if offset.beginning.dropped is None:
            offset = self._begun(offset)
        self._newest = catalog = self._look()
        up_to = self._target if self._target is not None else (0 if catalog is None else catalog.flushed)
        if catalog is None or up_to <= offset.position:
            return offset.plain
        wanted = self._wanted(offset, up_to)
        if not live_rows(catalog, None, (), wanted, inherited=False).segments and not self._is_behind(offset, catalog):
            return offset.plain
        end = self._admission.end_of_batch(catalog, wanted, limits)
        return offset._replace(position=end).plain

    def _begun(self, offset: LakeOffset) -> LakeOffset:
        """A new query's offset, with what had been dropped when it was registered; a flush makes sure of a catalog."""
        catalog = catalog_up_to(self._link, self._store, self._flush())
        dropped = 0 if catalog is None else catalog.dropped
        return offset._replace(beginning=offset.beginning._replace(dropped=dropped))

    def report(self) -> dict[str, Any] | None:
        """How far there is something to read, as far as is known."""
        return None if self._newest is None else {"shards": {SHARD: self._newest.flushed}, "v": 1}

    def _is_behind(self, offset: LakeOffset, catalog: Catalog) -> bool:
        """Whether it is time for an empty batch, so that nothing is kept any longer that others have written."""
        if self._target is not None or self._clock() - self._committed_at < REGISTER_SECONDS:
            return False
        return any(listed.segment.last_position > offset.position for listed in catalog.segments)

    def _look(self) -> Catalog | None:
        """The newest catalog; a flush comes first where none was asked for in a while."""
        if self._target is not None:
            return catalog_up_to(self._link, self._store, self._target)
        if self._clock() - self._flushed_at < self._options.flush_interval_seconds:
            return newest_catalog(self._store)
        return catalog_up_to(self._link, self._store, self._flush())

    def _flush(self) -> int:
        self._flushed_at = self._clock()
        return position_of(self._link.flush())

    # -- What -------------------------------------------------------------------------------------------------------

    def plan(self, start: dict[str, Any], end: dict[str, Any]) -> list[LakeWork]:
        """The partitions of a batch, the same rows however often it is asked for."""
        first, last = parse_offset(start), parse_offset(end)
        if (first.reader, first.beginning) != (last.reader, last.beginning):
            # The first batch is repeated, and where it began was made up anew.
            first = last._replace(position=last.beginning.position)
        self._register_first(first)
        if first.position >= last.position:
            return []
        catalog = catalog_up_to(self._link, self._store, last.position)
        assert catalog is not None, "there is a catalog of every position above 0"
        self._check_loss(first, catalog)
        return plan_stream(self._options, self._store, catalog, self._wanted(first, last.position))

    def _wanted(self, offset: LakeOffset, up_to: int) -> RowFilter:
        beginning = offset.beginning
        wanted = wanted_of(self._options.selection, beginning.since, beginning.until)
        return wanted._replace(after=offset.position, up_to=min(up_to, EVER))

    def _check_loss(self, offset: LakeOffset, catalog: Catalog) -> None:
        """What was dropped before the query began is not missed; what was dropped later is.

        One that was not registered all the time cannot tell the two apart.
        """
        before = 0 if self._lapsed else offset.beginning.dropped or 0
        if catalog.dropped <= max(offset.position, before):
            return
        try:
            lose(
                self._options,
                f"Rows up to position {catalog.dropped} were dropped from the lake, and the reader {offset.reader!r} "
                f"has read up to {offset.position} only, because it was not heard of for too long",
            )
        except DataLost:
            if self._lapsed:
                # Its next start would take it for one that was registered all the time, and miss nothing.
                self._link.forget(offset.reader)
                self._known_reader = None
            raise

    # -- Registration -----------------------------------------------------------------------------------------------

    def commit(self, end: dict[str, Any]) -> None:
        """All up to here is done with: the lake need not keep it for this query."""
        self._register(parse_offset(end))
        self._committed_at = self._clock()

    def _register_first(self, offset: LakeOffset) -> None:
        """Register before anything is looked at: from then on nothing is dropped; and again from time to time."""
        if self._known_reader != offset.reader:
            if offset.beginning.dropped is not None:
                heard_ms = self._link.heard_of(offset.reader)
                self._lapsed = heard_ms is None or heard_ms < time.time() * 1000 - CONSUMER_IDLE_US / 1000
            if self._lapsed:
                # Before, so that one that is killed here is not registered; and after, since now nothing is dropped.
                self._check_lapse(offset)
            self._register(offset)
            if self._lapsed:
                self._check_lapse(offset)
        elif self._clock() - self._registered_at >= REGISTER_SECONDS:
            self._register(offset)

    def _check_lapse(self, offset: LakeOffset) -> None:
        """Whatever was dropped by now is in the catalog that a flush makes sure of."""
        catalog = catalog_up_to(self._link, self._store, self._flush())
        if catalog is not None:
            self._check_loss(offset, catalog)

    def _register(self, offset: LakeOffset) -> None:
        self._link.register(offset.reader, {SHARD: offset.position})
        self._known_reader, self._registered_at = offset.reader, self._clock()
