"""Reading live streams in tasks: a scan that breaks off is resumed, and only needed columns are fetched."""

import pytest

from headwater.client import Client
from headwater.spark.link import Link, LinkSettings
from headwater.spark.options.source import parse_source
from headwater.spark.schemas import SourceSchema
from headwater.spark.source.live.reader import LiveRange, remaining
from headwater.testing import RunningServer

from ...cut_proxy import cut_proxy
from ...streams import Streams
from .live_queries import LiveQuery


def test_what_remains_of_ranges_follows_the_last_row() -> None:
    schema = SourceSchema(parse_source({"url": "http://x", "bucket": "a", "columns": "bucket,stream,offset"}))
    ranges = [LiveRange("a/x", 1, 0, 10), LiveRange("a/y", 1, 0, 10), LiveRange("a/z", 1, 0, 10)]

    def left(name: str, offset: int) -> list[tuple[str, int]]:
        plain = [{"bucket": "a", "stream": name, "offset": offset}]
        found = remaining(ranges, schema.arrow.empty_table().from_pylist(plain, schema.arrow))
        return [(one.stream, one.start) for one in found]

    assert left("x", 4) == [("a/x", 5), ("a/y", 0), ("a/z", 0)]
    assert left("y", 9) == [("a/z", 0)]
    assert left("z", 9) == []


@pytest.mark.parametrize("scan_ranges", [2, 100])
def test_a_scan_that_breaks_off_is_resumed(lake_server: RunningServer, bucket: str, scan_ranges: int) -> None:
    with Client(lake_server.url) as client:
        client.bucket(bucket).create()
        expected = []
        for name in ("a", "b", "c"):
            stream = client.bucket(bucket).stream(name, content_type="text/plain")
            stream.create()
            payloads = [b"%s%04d" % (name.encode(), number) * 400 for number in range(300)]
            stream.append_batch(payloads)
            expected += [(name, payload) for payload in payloads]
    with cut_proxy(lake_server.url) as proxy, Link(LinkSettings(proxy.url, retry_interval_seconds=0.0)) as link:
        query = LiveQuery(link, bucket, startingOffsets="earliest")
        start = query.stream.initial()
        partitions = query.stream.plan(start, query.stream.latest(start))
    with cut_proxy(lake_server.url) as proxy, Link(LinkSettings(proxy.url, retry_interval_seconds=0.0)) as link:
        proxy.plan = [500_000, 1, 3_000, 300_000]
        query = LiveQuery(link, bucket)
        assert query.read(partitions, scan_ranges) == expected
        assert proxy.cuts >= 3, "whether the last cut is reached depends on the size of batches"


def test_unselected_columns_are_not_fetched(link: Link, streams: Streams) -> None:
    streams.make("x", b"one")
    query = LiveQuery(link, streams.bucket, startingOffsets="earliest", columns="record")
    start = query.stream.initial()
    [partition] = query.stream.plan(start, query.stream.latest(start))
    [table] = query.reader().read(partition)
    assert set(table.column_names) == {"record", "bucket", "stream", "offset"}
    [batch] = query.schema.batches(iter([table]))
    assert batch.to_pylist() == [{"record": 0}]
