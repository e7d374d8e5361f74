"""The data source: `spark.read.format("headwater")`, `readStream`, and the way to the sink.

Readers go to executors as they are, so they hold options only; what the driver does is made when it is first needed.
Partitions say by themselves which path they are on.
"""

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headwater.lake.scanning import EVER
from headwater.spark.link import Link
from headwater.spark.options.places import Offsets, Positions
from headwater.spark.options.reading import SourceOptions, parse_source
from headwater.spark.schemas import Shape
from headwater.spark.sink.sink import batch_writer, stream_writer
from headwater.spark.source.filters import ANY, Conditions, conditions
from headwater.spark.source.lake.admission import UNLIMITED, Limits
from headwater.spark.source.lake.plan import (
    LakeUnusable,
    LakeWork,
    catalog_up_to,
    find_lake,
    plan_batch,
    position_of,
    reach,
    wanted_of,
)
from headwater.spark.source.lake.reader import Asked, read_work
from headwater.spark.source.lake.stream import LakeStream
from headwater.spark.source.live.plan import LiveWork, batch_ranges, describe, packed
from headwater.spark.source.live.reader import LiveReader
from headwater.spark.source.live.stream import LiveStream
from headwater.storage.store import Store

log = logging.getLogger(__name__)


class Headwater(DataSource):
    """Streams as tables."""

    @classmethod
    def name(cls) -> str:
        return "headwater"

    def schema(self) -> StructType:
        return Shape(parse_source(self.options)).spark

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._parsed(schema)
        options.check_batch()
        return PushdownReader(options) if options.pushdown else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._parsed(schema)
        options.check_stream()
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return stream_writer(self.options, schema, overwrite)

    def _parsed(self, schema: StructType) -> SourceOptions:
        options = parse_source(self.options)
        Shape(options).check(schema)
        return options


def read_partition(partition: InputPartition, options: SourceOptions, given: Conditions) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, as Spark wants them."""
    shape, work = Shape(options), partition.value
    asked = Asked(shape.sources, options.selection, given)
    if isinstance(work, LakeWork):
        yield from shape.batches(read_work(work, asked))
    elif isinstance(work, LiveWork):
        with Link(options.link) as link:
            yield from shape.batches(LiveReader(link, options, asked).read(work))


def lake_of(options: SourceOptions, link: Link) -> Store | None:
    """The lake to read from; None to read from the server."""
    places = options.starting, options.ending
    by_position = any(isinstance(place, Positions) for place in places)
    by_stream = options.selection.names is not None or any(isinstance(place, Offsets) for place in places)
    wants_lake = options.via == "lake" or by_position
    if not wants_lake and (options.via == "live" or by_stream or options.bootstraps):
        return None
    try:
        url = find_lake(options, link)
        if url is None:
            raise LakeUnusable(f"The server at {link.settings.url} keeps nothing, so it has no lake; use via=live.")
        return reach(url)
    except LakeUnusable as problem:
        if wants_lake:
            raise
        log.warning("%s The streams are read from the server instead.", problem)
        return None


# -- Batches -----------------------------------------------------------------------------------------------------------


class BatchReader(DataSourceReader):
    """Reads what there is."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._given = ANY

    def partitions(self) -> list[InputPartition]:
        with Link(self._options.link) as link:
            store = lake_of(self._options, link)
            works = self._live(link) if store is None else self._lake(link, store)
            return [InputPartition(work) for work in works]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, self._given)

    def _lake(self, link: Link, store: Store) -> list[LakeWork]:
        options, given = self._options, self._given
        wanted = wanted_of(options.selection, options.since, options.until, given)
        if isinstance(options.starting, Positions):
            wanted = wanted._replace(after=max(wanted.after, position_of(options.starting.shards)))
        if isinstance(options.ending, Positions):
            end = position_of(options.ending.shards)
            wanted = wanted._replace(up_to=min(wanted.up_to, end))
        else:
            end = position_of(link.flush())
        catalog = catalog_up_to(link, store, end)
        return [] if catalog is None else plan_batch(options, store, catalog, wanted, given)

    def _live(self, link: Link) -> list[LiveWork]:
        options, given = self._options, self._given
        times = wanted_of(options.selection, options.since, options.until, given)
        ranges = batch_ranges(options, describe(link, options.selection), given)
        since = times.since if times.since > 0 else None
        return packed(options, ranges, since, times.until if times.until < EVER else None)


class PushdownReader(BatchReader):
    """Takes filters from Spark; one that can would fail where the session does not allow it."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        columns = Shape(self._options).columns
        self._given, left = conditions(filters, columns, never_null=not self._options.bootstraps)
        return iter(left)


# -- Streams -----------------------------------------------------------------------------------------------------------


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what there is, and then what comes."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._made: LakeStream | LiveStream | None = None
        self._link: Link | None = None

    @property
    def _stream(self) -> LakeStream | LiveStream:
        if self._made is None:
            self._link = Link(self._options.link)
            store = lake_of(self._options, self._link)
            self._made = (
                LiveStream(self._options, self._link) if store is None else LakeStream(self._options, self._link, store)
            )
        return self._made

    def initialOffset(self) -> dict[str, Any]:
        return self._stream.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        # There is no limit of both kinds; whichever Spark gives back, both of ours count.
        if self._options.trigger_bytes_max is not None:
            return ReadMaxBytes(self._options.trigger_bytes_max)
        if self._options.trigger_records_max is not None:
            return ReadMaxRows(self._options.trigger_records_max)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if isinstance(limit, ReadAllAvailable):
            return self._stream.latest(start, UNLIMITED)
        limits = Limits(self._options.trigger_bytes_max or EVER, self._options.trigger_records_max or EVER)
        return self._stream.latest(start, limits)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._stream.report()

    def prepareForTriggerAvailableNow(self) -> None:
        self._stream.prepare()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(work) for work in self._stream.plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, ANY)

    def commit(self, end: dict[str, Any]) -> None:
        if isinstance(self._stream, LakeStream):
            self._stream.commit(end)

    def stop(self) -> None:
        # The registration stays: a restart needs what it keeps.
        if self._link is not None:
            self._link.close()
