"""The source without a session: which path is chosen, what readers report, and what is sent to executors."""

import pickle
from pathlib import Path

import pytest
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from headwater.spark.link import Link, LinkSettings
from headwater.spark.options.source import parse_source
from headwater.spark.options.values import OptionRefused
from headwater.spark.source.lake.plan import LakeUnusable
from headwater.spark.source.source import BatchReader, Headwater, PushdownReader, choose_lake
from headwater.spark.source.streaming import StreamReader
from headwater.testing import RunningServer, running_server
from pyspark_headwater import DefaultSource

URL = "http://127.0.0.1:1"


def source(**options: str) -> Headwater:
    return Headwater({"url": URL, "bucket": "team", **options})


def test_spark_finds_the_source_by_its_package() -> None:
    assert DefaultSource is Headwater and Headwater.name() == "headwater"


@pytest.mark.parametrize(
    ("options", "from_lake"),
    [
        ({"bucket": "team"}, True),
        ({"prefix": "team/a"}, True),
        ({"streamsPattern": ".*"}, True),
        ({"streams": "team/a"}, False),
        ({"streams": "team/a", "via": "lake"}, True),
        ({"streams": "team/a", "startingOffsets": '{"shards": {"0": 1}}'}, True),
        ({"bucket": "team", "via": "live"}, False),
        ({"bucket": "team", "onTrimmed": "bootstrap"}, False),
        ({"bucket": "team", "startingOffsets": '{"a": 1}'}, False),
    ],
)
def test_the_path_follows_from_the_options(
    lake_server: RunningServer, options: dict[str, str], from_lake: bool
) -> None:
    with Link(LinkSettings(lake_server.url)) as link:
        assert (choose_lake(parse_source({"url": URL, **options}), link) is not None) == from_lake


def test_without_a_reachable_lake_the_server_is_read(
    lake_server: RunningServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"url": URL, "bucket": "team", "lake": str(tmp_path / "elsewhere")}
    with Link(LinkSettings(lake_server.url)) as link:
        assert choose_lake(parse_source(given), link) is None
        assert "cannot be reached from this machine. The streams are read from the server instead." in caplog.text
        with pytest.raises(LakeUnusable, match="cannot be reached"):
            choose_lake(parse_source({**given, "via": "lake"}), link)
        with pytest.raises(LakeUnusable, match="cannot be reached"):
            choose_lake(parse_source({**given, "startingOffsets": '{"shards": {"0": 1}}'}), link)


def test_a_server_in_memory_has_no_lake() -> None:
    with running_server() as server, Link(LinkSettings(server.url)) as link:
        assert choose_lake(parse_source({"url": URL, "bucket": "team"}), link) is None
        with pytest.raises(LakeUnusable, match="has no lake, because it runs in memory only; use via=live"):
            choose_lake(parse_source({"url": URL, "bucket": "team", "via": "lake"}), link)


def test_only_a_reader_with_pushdown_accepts_filters() -> None:
    plain, pushing = source(), source(pushdown="true")
    reader = plain.reader(plain.schema())
    assert isinstance(reader, BatchReader) and type(reader).pushFilters is DataSourceReader.pushFilters
    assert isinstance(pushing.reader(pushing.schema()), PushdownReader)


def test_options_that_do_not_fit_are_refused_when_a_reader_is_made() -> None:
    one = source(maxBytesPerTrigger="5", endingOffsets="latest")
    with pytest.raises(OptionRefused, match="maxBytesPerTrigger"):
        one.reader(one.schema())
    with pytest.raises(OptionRefused, match="endingOffsets"):
        one.streamReader(one.schema())
    with pytest.raises(OptionRefused, match="leave schema"):
        source().reader(source(columns="stream").schema())


def test_limits_are_reported_to_spark() -> None:
    def limit(**options: str) -> object:
        one = source(**options)
        return one.streamReader(one.schema()).getDefaultReadLimit()

    assert limit() == ReadAllAvailable()
    assert limit(maxRecordsPerTrigger="5") == ReadMaxRows(5)
    assert limit(maxRecordsPerTrigger="5", maxBytesPerTrigger="1k") == ReadMaxBytes(1024)


def test_readers_can_be_pickled_and_contact_no_server_before_they_must() -> None:
    one = source()
    for reader in (one.reader(one.schema()), one.streamReader(one.schema())):
        copy = pickle.loads(pickle.dumps(reader))
        assert isinstance(copy, BatchReader | StreamReader)
        assert list(copy.read(InputPartition(None))) == [], "Spark makes such a partition where there is none"
    StreamReader(parse_source({"url": URL, "bucket": "team"})).stop()
