"""The data source: `spark.read.format("headwater")`, `spark.readStream`, and the entry to the sink.

Spark pickles readers and sends them to executors, so they hold only options; the driver's state is created on first
use. Each partition knows whether it is read from the lake or from the server.
"""

import gc
import logging
from collections.abc import Iterator
from functools import cache
from importlib import import_module

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from headwater.lake.catalog import CatalogReader
from headwater.lake.scanning import EVER
from headwater.spark.link import Link
from headwater.spark.options.source import LogPosition, SourceOptions, StreamOffsets, parse_source
from headwater.spark.options.values import OptionRefused
from headwater.spark.positions import position_in
from headwater.spark.schemas import SourceSchema
from headwater.spark.sink.sink import batch_writer, stream_writer
from headwater.spark.source.filters import NO_CONDITIONS, Conditions, RowQuery, accept
from headwater.spark.source.lake.keeping import renewing, take_lease
from headwater.spark.source.lake.plan import (
    LakePartition,
    LakePlanner,
    LakeUnusable,
    heading_up_to,
    lake_url,
    open_lake,
    row_filter_for,
)
from headwater.spark.source.lake.reader import read_lake
from headwater.spark.source.live.reader import LivePartition, LiveReader, batch_ranges, describe, pack_ranges
from headwater.storage.store import Store

log = logging.getLogger(__name__)


class Headwater(DataSource):
    """Streams as tables."""

    @classmethod
    def name(cls) -> str:
        return "headwater"

    def schema(self) -> StructType:
        return SourceSchema(parse_source(self.options)).spark

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._parsed(schema)
        options.check_batch()
        return PushdownReader(options) if options.pushdown else BatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._parsed(schema)
        options.check_stream()
        try:
            streaming = import_module("headwater.spark.source.streaming")
        except ModuleNotFoundError as missing:
            raise OptionRefused(
                f"Streaming reads need PySpark 4.2, and this is {pyspark.__version__}; batch reads work."
            ) from missing
        reader: DataSourceStreamReader = streaming.StreamReader(options)
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return stream_writer(self.options, schema, overwrite)

    def _parsed(self, schema: StructType) -> SourceOptions:
        options = parse_source(self.options)
        SourceSchema(options).check(schema)
        return options


def read_partition(partition: InputPartition, options: SourceOptions, pushed: Conditions) -> Iterator[pa.RecordBatch]:
    """The rows of a partition, in the schema that Spark expects."""
    keep_imports()
    schema, work = SourceSchema(options), partition.value
    query = RowQuery(schema.sources, options.selection, pushed)
    if isinstance(work, LakePartition):
        with renewing(options.link, work.lease):
            yield from schema.batches(read_lake(work, query))
    elif isinstance(work, LivePartition):
        with Link(options.link) as link:
            yield from schema.batches(LiveReader(link, options, query).read(work))


def choose_lake(options: SourceOptions, link: Link) -> Store | None:
    """The lake to read from, or None to read from the server."""
    boundaries = options.starting, options.ending
    by_position = any(isinstance(boundary, LogPosition) for boundary in boundaries)
    by_stream = any(isinstance(boundary, StreamOffsets) for boundary in boundaries)
    needs_lake = options.via == "lake" or by_position
    prefers_live = options.via == "live" or options.selection.names is not None or by_stream or options.bootstraps
    if prefers_live and not needs_lake:
        return None
    try:
        return open_lake(lake_url(options, link))
    except LakeUnusable as problem:
        if needs_lake:
            raise
        log.warning("%s The streams are read from the server instead.", problem)
        return None


# -- Batches -----------------------------------------------------------------------------------------------------------


class BatchReader(DataSourceReader):
    """Reads all rows that exist now."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pushed = NO_CONDITIONS

    def partitions(self) -> list[InputPartition]:
        keep_imports()
        with Link(self._options.link) as link:
            store = choose_lake(self._options, link)
            works = self._live(link) if store is None else self._lake(link, store)
            return [InputPartition(work) for work in works]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, self._pushed)

    def _lake(self, link: Link, store: Store) -> list[LakePartition]:
        options, starting, ending = self._options, self._options.starting, self._options.ending
        row_filter = row_filter_for(options.selection, options.since, options.until, self._pushed)
        if isinstance(starting, LogPosition):
            row_filter = row_filter._replace(after=max(row_filter.after, starting.position))
        lease = take_lease(link)
        # After the lease: the flush ensures a catalog that is no older than it.
        end = position_in(link.flush())
        if isinstance(ending, LogPosition):
            end = ending.position
            row_filter = row_filter._replace(up_to=min(row_filter.up_to, end))
        catalogs = CatalogReader(store)
        if heading_up_to(link, store, end, catalogs) is None:
            return []
        planned = LakePlanner(options, store, catalogs).batch(row_filter, self._pushed)
        return [partition._replace(lease=lease) for partition in planned]

    def _live(self, link: Link) -> list[LivePartition]:
        options = self._options
        times = row_filter_for(options.selection, options.since, options.until, self._pushed)
        ranges = batch_ranges(options, describe(link, options.selection), self._pushed)
        since = times.since if times.since > 0 else None
        return pack_ranges(options, ranges, since, times.until if times.until < EVER else None)


class PushdownReader(BatchReader):
    """Also accepts filters. Separate, because Spark rejects readers that do unless the session enables pushdown."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        columns = SourceSchema(self._options).columns
        self._pushed, left = accept(filters, columns, never_null=not self._options.bootstraps)
        return iter(left)


@cache
def keep_imports() -> None:
    """Exempt what this process has loaded from garbage collection, once.

    Spark collects garbage after every task. To look through the modules of Spark and of this package takes 50 ms of CPU
    time, as much as to read half a million rows of two columns.
    """
    gc.freeze()
