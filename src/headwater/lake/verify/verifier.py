"""Verifying: whether a lake holds what its catalog says, byte by byte and row by row, without a server.

    catalog     its position matches its key, its fields are consistent, its tables have the right columns
    segment     every checksum, the schema, the order and continuity of rows, and the catalog's description of it
    lives       across all segments: no gap and no overlap in the bytes that a stream or a fork of it still needs

A life may have gaps among its dead rows: bytes that were trimmed before they were flushed never reached the lake. Nor
does a lake show where a life should begin. Only a fork does: its source must have everything that was flushed before
the fork was created.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.lake.catalog import (
    TOMBSTONES,
    Catalog,
    ForkRow,
    ListedSegment,
    read_catalog,
    read_forks,
    read_tombstones,
)
from headwater.lake.damage import LakeDamaged
from headwater.lake.format import SCHEMA, parse_segment_key, segment_key
from headwater.lake.iceberg.deletes import dead_lives
from headwater.lake.iceberg.pinned_rows import merged
from headwater.lake.scanning import Inherited, inheritance
from headwater.lake.segments.reader import Footer, SegmentDamaged, read_footer, read_group
from headwater.lake.verify.rows import RowChecks
from headwater.lake.verify.spans import LifeRows, Spans, spans_of
from headwater.lake.verify.tables import PinnedChecks, pinned_spans, streams_problems
from headwater.storage.store import KeyMissing, Store, StoreFailed


class Problem(NamedTuple):
    """Something in a lake that is wrong."""

    key: str
    row: int | None
    what: str

    def __str__(self) -> str:
        row = "" if self.row is None else f" row {self.row}:"
        return f"{self.key}:{row} {self.what}"


class Verifier:
    """Verifies one shard of a lake. `problems` may be iterated once; afterwards the counts are complete."""

    def __init__(
        self,
        store: Store,
        *,
        json_values: bool = False,
        progress: Callable[[int, int], None] = lambda done, total: None,
        shard: int = 0,
    ) -> None:
        self._store, self._shard, self._json_values, self._progress = store, shard, json_values, progress
        self.found = self.segments = self.rows = self.live_rows = self.bytes = self.streams = 0
        self._bytes, self._tombstones_known = 0, False
        self.whole = True
        """Whether everything could be read; if not, gaps are not reported."""

    def problems(self) -> Iterator[Problem]:
        """Every problem, as soon as it is found."""
        for problem in self._problems():
            self.found += 1
            yield problem

    def _problems(self) -> Iterator[Problem]:
        try:
            catalog = read_catalog(self._store)
        except LakeDamaged as damage:
            yield Problem(damage.key, None, damage.problem)
            return
        if catalog is None:
            return
        self._catalog, self._tombstones, self._forks, self._inherited = catalog, TOMBSTONES.empty_table(), [], []
        try:
            self._forks = read_forks(self._store, catalog)
            self._inherited = inheritance(self._forks)
            self._tombstones = read_tombstones(self._store, catalog)
            self._tombstones_known = True
        except LakeDamaged as damage:
            self.whole = False
            yield Problem(damage.key, None, damage.problem)
        except ValueError as problem:
            self.whole = False
            yield Problem(catalog.forks_key, None, str(problem))
        yield from catalog_problems(catalog)
        yield from fork_problems(catalog, self._forks)
        self._dead_below = dict(zip(*(self._tombstones[name].to_pylist() for name in TOMBSTONES.names), strict=True))
        self._pieces: dict[int, list[Inherited]] = {}
        for piece in self._inherited:
            self._pieces.setdefault(piece.source_incarnation, []).append(piece)
        self._pinned = PinnedChecks(self._store, catalog)
        try:
            self._pinned.read()
        except LakeDamaged as damage:
            yield Problem(damage.key, None, damage.problem)
        self.bytes = sum(listed.segment.size for listed in catalog.segments)
        with Spans() as spans:
            for number, listed in enumerate(catalog.segments):
                found: list[Problem] = []
                spans.add(self._segment(number, listed, found))
                yield from found
            yield from self._lives(spans.in_order())
        yield from (Problem(key, None, what) for key, what in self._pinned.rest())
        yield from (Problem(key, None, what) for key, what in streams_problems(self._store))

    # -- One segment --------------------------------------------------------------------------------------------------

    def _segment(self, number: int, listed: ListedSegment, found: list[Problem]) -> Iterator[LifeRows]:
        """The spans of a segment; its problems are added to `found`."""
        done, rows, live_rows = self._bytes, 0, 0
        self._spans: list[tuple[int, int]] = []
        if not 0 < listed.segment.footer_bytes < listed.segment.size:
            # Reported with the catalog; a footer cannot be read with such numbers.
            self.whole = False
            return
        try:
            footer = read_footer(partial(self._store.read, listed.key), listed.segment)
            found += [Problem(listed.key, None, what) for what in footer_problems(footer)]
            for span in self._groups(number, listed, footer, found):
                rows, live_rows = rows + span.rows, live_rows + span.live_rows
                yield span
            if self._tombstones_known and rows == listed.segment.rows:
                found += [Problem(listed.key, None, what) for what in count_problems(listed, live_rows)]
                found += deletes_problems(self._store, listed)
                pinned = self._pinned.segment(listed.key, rows, merged(self._spans))
                found += [Problem(key, None, what) for key, what in pinned]
            self.segments, self.live_rows = self.segments + 1, self.live_rows + live_rows
        except (KeyMissing, StoreFailed, SegmentDamaged) as damage:
            if isinstance(damage, StoreFailed) and self._is_whole(listed):
                raise
            self.whole = False
            if self._is_listed(listed):
                what = "the object is missing" if isinstance(damage, KeyMissing) else str(damage)
                found.append(Problem(listed.key, None, what))
        self._advance(done + listed.segment.size)

    def _groups(self, number: int, listed: ListedSegment, footer: Footer, found: list[Problem]) -> Iterator[LifeRows]:
        key = listed.key
        checks = RowChecks(listed.segment, json_values=self._json_values)
        damaged = False
        for index, group in enumerate(footer.groups):
            self._advance(self._bytes + group.size)
            try:
                table = read_group(partial(self._store.read, key), footer, index)
                if not table.schema.equals(SCHEMA):
                    raise SegmentDamaged(f"Row group {index} does not have the columns of a segment.")
            except SegmentDamaged as damage:
                damaged, self.whole = True, False
                checks.skip()
                found.append(Problem(key, group.row, str(damage)))
                continue
            found += [Problem(key, group.row + row, what) for row, what in checks.inspect(table)]
            self._spans += pinned_spans(table, group.row, self._dead_below, self._pieces)
            yield from spans_of(table, self._tombstones, number, group.row)
        self.rows += checks.rows
        if not damaged:
            found += [Problem(key, None, what) for what in checks.facts()]

    def _advance(self, done: int) -> None:
        self._bytes = done
        self._progress(done, self.bytes)

    def _is_whole(self, listed: ListedSegment) -> bool:
        """Whether the store lists the object in its full size: then the store failed, not the object."""
        sizes = {item.key: item.size for item in self._store.items(listed.key)}
        return sizes.get(listed.key) == listed.segment.size

    def _is_listed(self, listed: ListedSegment) -> bool:
        """Whether the lake still needs a segment that cannot be read: a running server may have replaced it."""
        newest = read_catalog(self._store)
        return newest is None or any(other.key == listed.key for other in newest.segments)

    # -- All segments -------------------------------------------------------------------------------------------------

    def _lives(self, spans: Iterator[LifeRows]) -> Iterator[Problem]:
        """Gaps and overlaps between the spans of each life, and inherited bytes that are missing."""
        pieces, dead_below = dict(self._pieces), self._dead_below
        named = ""
        for (name, incarnation), life in groupby(spans, key=lambda span: (span.name, span.incarnation)):
            held = pieces.pop(incarnation, [])
            needed = min([dead_below.get(incarnation, 0), *(piece.start for piece in held)])
            begin = end = live_rows = 0
            before: LifeRows | None = None
            for span in life:
                if before is None or before.end <= needed:
                    begin = span.start
                else:
                    for what in _follows(before, span, gaps=self.whole):
                        yield Problem(self._catalog.segments[span.segment].key, span.row, what)
                before, end, live_rows = span, span.end, live_rows + span.live_rows
            if live_rows and name != named:
                named = name
                self.streams += 1
            for piece in held:
                yield from self._missing(piece, begin, end)
        for held in pieces.values():
            for piece in held:
                yield from self._missing(piece, 0, 0)

    def _missing(self, piece: Inherited, begin: int, end: int) -> Iterator[Problem]:
        """The bytes that a fork inherits must exist, if it was created before the last flush."""
        if self.whole and piece.incarnation <= self._catalog.flushed and not begin <= piece.start <= piece.to <= end:
            what = f"the fork {piece.name!r} needs bytes {piece.start} to {piece.to} of {piece.source!r}"
            yield Problem(self._catalog.forks_key, None, f"{what}, of which the lake has {begin} to {end}")


def _follows(before: LifeRows, span: LifeRows, *, gaps: bool) -> Iterator[str]:
    """What is wrong between two consecutive spans of a life."""
    life = f"{span.name!r} (incarnation {span.incarnation})"
    if span.start < before.end:
        yield f"the bytes of {life} from {span.start} to {min(span.end, before.end)} are in two places"
    elif span.start > before.end:
        if gaps:
            yield f"the bytes of {life} from {before.end} to {span.start} are missing"
    elif span.record != before.record + before.rows:
        yield f"the records of {life} continue with {span.record}, not with {before.record + before.rows}"
    elif span.first_position < before.last_position:
        yield f"the positions of {life} go back from {before.last_position} to {span.first_position}"
    elif span.first_at < before.last_at:
        yield f"the times of {life} go back"


# -- The catalog -------------------------------------------------------------------------------------------------------


def catalog_problems(catalog: Catalog) -> Iterator[Problem]:
    """What is wrong with a catalog, judged by the catalog alone."""
    for listed in catalog.segments:
        segment = listed.segment
        key = segment_key(catalog.shard, segment.first_position, segment.last_position, segment.id)
        for wrong, what in (
            (key != listed.key or parse_segment_key(listed.key) is None, "its key does not match its description"),
            (segment.first_position > segment.last_position, "its positions end before they begin"),
            (segment.last_position > catalog.position, "it has positions above the catalog's own"),
            (segment.first_at > segment.last_at, "its times end before they begin"),
            (segment.last_at > catalog.at, "it has rows that are newer than the catalog"),
            (segment.first_name > segment.last_name, "its names end before they begin"),
            (
                not 0 <= listed.live_rows <= segment.rows,
                f"{listed.live_rows} of its {segment.rows} rows are listed as live",
            ),
            (not 0 < segment.footer_bytes < segment.size, "its footer has an impossible size"),
        ):
            if wrong:
                yield Problem(listed.key, None, what)
    key = catalog.key
    if len({listed.key for listed in catalog.segments}) < len(catalog.segments):
        yield Problem(key, None, "it lists a segment twice")
    if max(catalog.flushed, catalog.dropped) > catalog.position:
        yield Problem(key, None, "it describes positions above its own")


def fork_problems(catalog: Catalog, forks: list[ForkRow]) -> Iterator[Problem]:
    """What is wrong with the forks of a catalog."""
    seen: set[int] = set()
    for row, fork in enumerate(forks):
        if fork.incarnation in seen or not 0 <= fork.start <= fork.to or fork.incarnation > catalog.position:
            what = f"the fork {fork.name!r} (incarnation {fork.incarnation}) from {fork.start} to {fork.to}"
            yield Problem(catalog.forks_key, row, f"{what} is invalid")
        seen.add(fork.incarnation)


def footer_problems(footer: Footer) -> Iterator[str]:
    """What is wrong with a footer."""
    if not footer.metadata.schema.to_arrow_schema().remove_metadata().equals(SCHEMA):
        yield "its columns are not those of a segment"
    row = at = 0
    for index, group in enumerate(footer.groups):
        if (group.row, group.start) != (row, at):
            yield f"row group {index} does not follow the one before"
        row, at = group.row_end, group.start + group.size
    if (row, at) != (footer.segment.rows, footer.segment.size - footer.segment.footer_bytes):
        yield "its row groups do not end where its footer begins"


def count_problems(listed: ListedSegment, live_rows: int) -> Iterator[str]:
    """Where the counts of a segment's rows in the catalog are wrong."""
    if live_rows > listed.live_rows:
        yield f"{live_rows} rows are live, but the catalog counts {listed.live_rows}"
    deleted = 0 if listed.deletes is None else listed.deletes.rows
    if listed.segment.rows - live_rows != deleted:
        yield f"{listed.segment.rows - live_rows} rows are dead, but its file of deleted rows has {deleted}"


def deletes_problems(store: Store, listed: ListedSegment) -> Iterator[Problem]:
    """What other engines would read wrongly in a segment's file of deleted rows."""
    if listed.deletes is None:
        return
    key = listed.deletes.key
    data = store.read(key)
    table = pq.read_table(pa.BufferReader(data), use_threads=False)
    expected = [row for life in dead_lives(data) for row in range(life.row, life.row + life.rows)]
    if table["pos"].to_pylist() != expected:
        yield Problem(key, None, "its rows are not those of its lives")
    if not all(path.endswith(f"/{listed.key}") for path in table["file_path"].unique().to_pylist()):
        yield Problem(key, None, "it is about another segment")
