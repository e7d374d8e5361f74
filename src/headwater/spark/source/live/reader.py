"""Reading live streams in a task: ranges by scans of the server, gone on with where an answer broke off."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from headwater.lake.format import SCHEMA, name_of, split_name
from headwater.spark.link import Link, LinkRefused, Range, ScanBroken, Snapshot
from headwater.spark.options.reading import SourceOptions
from headwater.spark.schemas import SNAPSHOT
from headwater.spark.source.lake.reader import Asked
from headwater.spark.source.live.plan import LiveRange, LiveWork
from headwater.spark.source.losses import lose, trimmed

SCAN_RANGES = 20_000
"""Ranges of one scan: what a server judges at one instant, and what is asked for again after a refusal."""
SETTLES_MAX = 100
"""How often the ranges of one scan are put right; each time some are gone or shorter, so it ends by itself."""
TRACKED = ("bucket", "stream", "offset")
"""The columns that tell how far an answer has come."""
PAUSE_SECONDS_MAX = 10.0


class LiveReader:
    """Reads one partition."""

    def __init__(self, link: Link, options: SourceOptions, asked: Asked) -> None:
        self._link, self._options, self._asked = link, options, asked
        needed = asked.columns | asked.conditions.columns | {*TRACKED}
        self._columns = [name for name in SCHEMA.names if name in needed]

    def read(self, work: LiveWork) -> Iterator[pa.Table]:
        """The rows of all ranges, in order within each; a snapshot comes before the rows that follow on it."""
        for at in range(0, len(work.ranges), SCAN_RANGES):
            for table in self._scanned(work.ranges[at : at + SCAN_RANGES], work.since, work.until):
                met = self._asked.conditions.met_by(table)
                if len(met):
                    yield met

    def _scanned(self, ranges: Sequence[LiveRange], since: int | None, until: int | None) -> Iterator[pa.Table]:
        left: list[LiveRange] = []
        for one in ranges:
            if one.bootstraps:
                yield from self._bootstrap(one, one.start, left)
            else:
                left.append(one)
        failures = settles = 0
        while left:
            try:
                with self._link.scan([Range(*one[:4]) for one in left], self._columns, since, until) as batches:
                    for batch in _ahead(batches):
                        table = pa.Table.from_batches([batch])
                        if len(table):
                            left, failures = behind(left, table), 0
                            yield table
                return
            except ScanBroken:
                failures += 1
                if failures > self._link.settings.retries:
                    raise
                time.sleep(min(self._link.settings.retry_interval_seconds * 2**failures, PAUSE_SECONDS_MAX))
            except LinkRefused as refused:
                settles += 1
                if refused.code != "ranges_unavailable" or settles > SETTLES_MAX:
                    raise
                wrong = {problem["index"]: problem for problem in refused.problem["problems"]}
                asked, left = left, []
                for index, one in enumerate(asked):
                    if index in wrong:
                        yield from self._settle(one, wrong[index], left)
                    else:
                        left.append(one)

    def _settle(self, one: LiveRange, problem: dict[str, Any], left: list[LiveRange]) -> Iterator[pa.Table]:
        """A range that cannot be read any more: what is read in its place is added to what is left."""
        if problem["code"] != "offset_trimmed":
            lose(self._options, f"The stream {one.stream!r} is not there any more ({problem['code']})")
        elif self._options.bootstraps:
            yield from self._bootstrap(one, problem["earliest"], left)
        elif self._options.on_trimmed == "fail":
            raise trimmed(one.stream, one.start, problem["earliest"])
        elif problem["earliest"] < one.end:
            left.append(one._replace(start=max(problem["earliest"], one.start)))

    def _bootstrap(self, one: LiveRange, earliest: int, left: list[LiveRange]) -> Iterator[pa.Table]:
        """The newest snapshot of a stream; what is behind it is added to what is left, or all there is without one."""
        found = self._link.snapshot(one.stream)
        start = earliest
        if found is not None:
            start = max(found.offset, earliest)
            yield _row(one, found)
        if start < one.end:
            left.append(one._replace(start=start, bootstraps=False))


def behind(ranges: list[LiveRange], table: pa.Table) -> list[LiveRange]:
    """What is left of ranges when the rows of a table have come, which are the next ones."""
    bucket, stream, offset = (table[name][-1].as_py() for name in TRACKED)
    name = name_of(bucket, stream)
    index = next(index for index, one in enumerate(ranges) if one.stream == name)
    rest = ranges[index]._replace(start=offset + 1)
    return [*([rest] if rest.start < rest.end else []), *ranges[index + 1 :]]


def _row(one: LiveRange, snapshot: Snapshot) -> pa.Table:
    """A snapshot as a row: it stands at its offset and is no message, so there is no more to say of it."""
    bucket, stream = split_name(one.stream)
    said = {
        "bucket": bucket,
        "stream": stream,
        "incarnation": one.incarnation,
        "offset": snapshot.offset,
        "next_offset": snapshot.offset,
        "content_type": snapshot.content_type,
        "payload": snapshot.data,
    }
    columns = [pa.array([said.get(field.name)], field.type) for field in SCHEMA]
    return pa.table([*columns, pa.array([SNAPSHOT])], [*SCHEMA.names, "kind"])


def _ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches, of which the next one is fetched while one is looked at."""
    with ThreadPoolExecutor(1, "live-ahead") as ahead:
        coming = ahead.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = ahead.submit(next, batches, None)
            yield batch
