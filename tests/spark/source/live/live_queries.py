"""Queries on live streams, as Spark would run them."""

import json
from collections.abc import Iterator
from typing import Any

from headwater.spark.link import Link
from headwater.spark.options.source import SourceOptions, parse_source
from headwater.spark.schemas import SourceSchema
from headwater.spark.source.filters import NO_CONDITIONS, RowQuery
from headwater.spark.source.live.reader import SCAN_RANGES, LivePartition, LiveReader
from headwater.spark.source.live.stream import LiveAdmission, LiveStream
from headwater.spark.source.portions import UNLIMITED, TriggerLimits

Found = list[tuple[str, bytes]]


class LiveQuery:
    """A query on the streams of one bucket, as Spark would run it."""

    def __init__(self, link: Link, bucket: str, admission: LiveAdmission | None = None, /, **given: str) -> None:
        self.options: SourceOptions = parse_source({"url": link.settings.url, "bucket": bucket, "via": "live", **given})
        self.link, self.stream = link, LiveStream(self.options, link, admission)
        self.schema = SourceSchema(self.options)

    def reader(self, scan_ranges: int = SCAN_RANGES) -> LiveReader:
        query = RowQuery(self.schema.sources, self.options.selection, NO_CONDITIONS)
        return LiveReader(self.link, self.options, query, scan_ranges=scan_ranges)

    def read(self, partitions: list[LivePartition], scan_ranges: int = SCAN_RANGES) -> Found:
        reader = self.reader(scan_ranges)
        batches = [batch for partition in partitions for batch in self.schema.batches(reader.read(partition))]
        return [
            (row["stream"] + ("!" if row.get("kind") == "snapshot" else ""), row["payload"])
            for batch in batches
            for row in batch.to_pylist()
        ]

    def batch(self, start: dict[str, Any], end: dict[str, Any]) -> Found:
        # Spark keeps offsets as JSON.
        return self.read(self.stream.plan(json.loads(json.dumps(start)), json.loads(json.dumps(end))))

    def batches(self, start: dict[str, Any], limits: TriggerLimits = UNLIMITED) -> Iterator[Found]:
        while (end := self.stream.latest(start, limits)) != start:
            yield self.batch(start, end)
            start = end
