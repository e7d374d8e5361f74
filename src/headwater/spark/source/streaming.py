"""Streaming reads. They need a PySpark whose data sources can limit a batch, which versions before 4.2 cannot."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headwater.lake.scanning import EVER
from headwater.spark.link import Link
from headwater.spark.options.source import SourceOptions
from headwater.spark.source.filters import NO_CONDITIONS
from headwater.spark.source.lake.stream import LakeStream
from headwater.spark.source.live.stream import LiveStream
from headwater.spark.source.portions import UNLIMITED, TriggerLimits
from headwater.spark.source.source import choose_lake, read_partition


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads existing rows, then new ones as they arrive."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._opened: LakeStream | LiveStream | None = None
        self._link: Link | None = None

    @property
    def _stream(self) -> LakeStream | LiveStream:
        if self._opened is None:
            self._link = Link(self._options.link)
            store = choose_lake(self._options, self._link)
            self._opened = (
                LiveStream(self._options, self._link) if store is None else LakeStream(self._options, self._link, store)
            )
        return self._opened

    def initialOffset(self) -> dict[str, Any]:
        return self._stream.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark has no limit that combines bytes and rows. Whichever of them it passes back, both options apply.
        if self._options.trigger_bytes_max is not None:
            return ReadMaxBytes(self._options.trigger_bytes_max)
        if self._options.trigger_records_max is not None:
            return ReadMaxRows(self._options.trigger_records_max)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if isinstance(limit, ReadAllAvailable):
            return self._stream.latest(start, UNLIMITED)
        limits = TriggerLimits(self._options.trigger_bytes_max or EVER, self._options.trigger_records_max or EVER)
        return self._stream.latest(start, limits)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._stream.report()

    def prepareForTriggerAvailableNow(self) -> None:
        self._stream.prepare()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [InputPartition(work) for work in self._stream.plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options, NO_CONDITIONS)

    def commit(self, end: dict[str, Any]) -> None:
        if isinstance(self._stream, LakeStream):
            self._stream.commit(end)

    def stop(self) -> None:
        # The registration stays, because a restart needs the rows that it protects.
        if isinstance(self._opened, LakeStream):
            self._opened.stop()
        if self._link is not None:
            self._link.close()
