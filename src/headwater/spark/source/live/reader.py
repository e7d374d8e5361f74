"""Reading live streams in a task: the server scans ranges, and a scan that breaks off is resumed."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from headwater.client import ScanRange
from headwater.lake.format import SCHEMA, name_of, split_name
from headwater.spark.failures import LinkRefused, ScanBroken
from headwater.spark.link import Link, Snapshot
from headwater.spark.options.source import SourceOptions, report_loss, trimmed
from headwater.spark.schemas import SNAPSHOT
from headwater.spark.source.filters import RowQuery
from headwater.spark.source.live.plan import LivePartition, LiveRange
from headwater.spark.source.portions import read_ahead

SCAN_RANGES = 20_000
"""Ranges in one scan: what the server checks at one instant, and what is requested again after a refusal."""
REFUSALS_MAX = 100
"""How often the ranges of one scan are corrected. Each time some disappear or shrink, so it ends by itself."""
PROGRESS = frozenset({"bucket", "stream", "offset"})
"""The columns that show how far a scan has come."""


class LiveReader:
    """Reads one partition."""

    def __init__(self, link: Link, options: SourceOptions, query: RowQuery, *, scan_ranges: int = SCAN_RANGES) -> None:
        self._link, self._options, self._query = link, options, query
        self._scan_ranges = scan_ranges
        self._columns = query.columns_with(PROGRESS)

    def read(self, partition: LivePartition) -> Iterator[pa.Table]:
        """The rows of all ranges, in order within each; a snapshot comes before the messages that follow it."""
        if partition.log_id is not None:
            self._link.expect_log(partition.log_id)
        for at in range(0, len(partition.ranges), self._scan_ranges):
            some = partition.ranges[at : at + self._scan_ranges]
            for table in self._scanned(some, partition.since, partition.until):
                matching = self._query.conditions.matching(table)
                if len(matching):
                    yield matching

    def _scanned(self, ranges: Sequence[LiveRange], since: int | None, until: int | None) -> Iterator[pa.Table]:
        left: list[LiveRange] = []
        for one in ranges:
            if one.bootstraps:
                yield from self._bootstrap(one, one.start, left)
            else:
                left.append(one)
        failures = refusals = 0
        while left:
            try:
                with self._link.scan([ScanRange(*one[:4]) for one in left], self._columns, since, until) as batches:
                    for batch in read_ahead(batches):
                        table = pa.Table.from_batches([batch])
                        if len(table):
                            left, failures = remaining(left, table), 0
                            yield table
                return
            except ScanBroken:
                failures += 1
                if failures > self._link.settings.retries:
                    raise
                time.sleep(self._link.settings.retry.delay_seconds(failures))
            except LinkRefused as refused:
                refusals += 1
                if refused.code != "ranges_unavailable" or refusals > REFUSALS_MAX:
                    raise
                problems = {problem["index"]: problem for problem in refused.problem["problems"]}
                requested, left = left, []
                for index, one in enumerate(requested):
                    if index in problems:
                        yield from self._replace(one, problems[index], left)
                    else:
                        left.append(one)

    def _replace(self, one: LiveRange, problem: dict[str, Any], left: list[LiveRange]) -> Iterator[pa.Table]:
        """Add what is read instead of a range that is no longer available to `left`; yield its snapshot, if any."""
        if problem["code"] != "offset_trimmed":
            report_loss(self._options, f"The stream {one.stream!r} no longer exists ({problem['code']})")
        elif self._options.bootstraps:
            yield from self._bootstrap(one, problem["earliest"], left)
        elif self._options.on_trimmed == "fail":
            raise trimmed(one.stream, one.start, problem["earliest"])
        elif problem["earliest"] < one.end:
            left.append(one._replace(start=max(problem["earliest"], one.start)))

    def _bootstrap(self, one: LiveRange, earliest: int, left: list[LiveRange]) -> Iterator[pa.Table]:
        """Yield the newest snapshot, if there is one, and add the messages after it to `left`."""
        found = self._link.snapshot(one.stream)
        start = earliest
        if found is not None:
            start = max(found.offset, earliest)
            yield _row(one, found)
        if start < one.end:
            left.append(one._replace(start=start, bootstraps=False))


def remaining(ranges: list[LiveRange], table: pa.Table) -> list[LiveRange]:
    """What is left of the ranges after the rows of a table, which are the next ones in order."""
    bucket, stream, offset = (table[name][-1].as_py() for name in ("bucket", "stream", "offset"))
    name = name_of(bucket, stream)
    index = next(index for index, one in enumerate(ranges) if one.stream == name)
    rest = ranges[index]._replace(start=offset + 1)
    return [*([rest] if rest.start < rest.end else []), *ranges[index + 1 :]]


def _row(one: LiveRange, snapshot: Snapshot) -> pa.Table:
    """A snapshot as a row; columns that only messages have, such as the record and the position, are null."""
    bucket, stream = split_name(one.stream)
    values = {
        "bucket": bucket,
        "stream": stream,
        "incarnation": one.incarnation,
        "offset": snapshot.offset,
        "next_offset": snapshot.offset,
        "content_type": snapshot.content_type,
        "payload": snapshot.data,
    }
    columns = [pa.array([values.get(field.name)], field.type) for field in SCHEMA]
    return pa.table([*columns, pa.array([SNAPSHOT])], [*SCHEMA.names, "kind"])
