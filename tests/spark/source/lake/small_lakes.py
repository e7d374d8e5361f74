"""A small lake on a real state, with catalogs; tests decide when it is flushed and compacted."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, cast

import pyarrow as pa
import pytest

from headwater.lake.catalog import Catalog, CatalogReader, read_catalog
from headwater.node.lake.cataloger import Cataloger
from headwater.protocol.limits import SECOND_US
from headwater.protocol.refusals import Code, Refusal
from headwater.spark.failures import other_log
from headwater.spark.link import Link, LinkSettings
from headwater.spark.options.source import Selection, SourceOptions, parse_source
from headwater.spark.source.filters import NO_CONDITIONS, Conditions, RowQuery
from headwater.spark.source.lake import reader
from headwater.spark.source.lake.plan import LakePartition
from headwater.spark.source.lake.reader import read_lake
from headwater.storage.store import Store
from headwater.streams.commands.consumers import DropConsumer, RegisterConsumer, RegisterConsumerFor
from headwater.streams.replies import Done

from ....node.lake.small_lake import Lake

COLUMNS = frozenset({"bucket", "stream", "incarnation", "offset", "next_offset", "record", "position", "payload"})
EVERYTHING = Selection()

Row = tuple[str, int, int, int, int, int, bytes]
"""Name, incarnation, offset, next offset, record, position, payload."""


class SmallLake(Lake):
    """A lake that writes catalogs, and answers a driver's requests."""

    def __init__(self) -> None:
        super().__init__()
        self._cataloger = Cataloger(self.parts)

    def catalog(self) -> Catalog:
        """Write a catalog of the present state."""
        heading = asyncio.run(self._cataloger._take_changes())
        self._cataloger._commit(heading, self._cataloger._taken_count)
        catalog = read_catalog(self.store.store)
        assert catalog is not None
        return catalog

    def catalogs(self) -> CatalogReader:
        """Write a catalog of the present state, and read its heading."""
        self.catalog()
        return read_heading(self.store)

    @property
    def link(self) -> Link:
        return cast(Link, _StateLink(self))


def read_heading(store: Store) -> CatalogReader:
    """A reader with the heading of a lake's catalog."""
    catalogs = CatalogReader(store)
    assert catalogs.heading() is not None
    return catalogs


class _StateLink:
    """Answers a link's requests from the state itself."""

    def __init__(self, lake: SmallLake) -> None:
        self._lake = lake
        self._expected: str | None = None
        self.settings = LinkSettings("http://127.0.0.1:1")

    def log_id(self) -> str:
        return self._lake.state.log_id

    def expect_log(self, log_id: str) -> None:
        self._expected = log_id

    def flush(self) -> dict[str, int]:
        self._check_log()
        self._lake.flush()
        position = self._lake.state.position
        self._lake.catalog()
        return {"0": position}

    def _check_log(self) -> None:
        if self._expected not in (None, self.log_id()):
            raise other_log()

    def register(self, consumer: str, positions: dict[str, int], silence_seconds: int | None = None) -> None:
        self._check_log()
        assert self._lake.do(registration(consumer, positions, silence_seconds, renews=False)) == Done()

    def renew(self, consumer: str, positions: dict[str, int], silence_seconds: int | None = None) -> bool:
        self._check_log()
        reply = self._lake.do(registration(consumer, positions, silence_seconds, renews=True))
        assert reply == Done() or (isinstance(reply, Refusal) and reply.code is Code.CONSUMER_LAPSED)
        return reply == Done()

    def forget(self, consumer: str) -> None:
        assert self._lake.do(DropConsumer(consumer)) == Done()


def registration(
    consumer: str, positions: dict[str, int], silence_seconds: int | None, *, renews: bool
) -> RegisterConsumer | RegisterConsumerFor:
    """The command that a server makes of a registration."""
    if silence_seconds is None:
        return RegisterConsumer(consumer, positions["0"], renews)
    return RegisterConsumerFor(consumer, positions["0"], silence_seconds * SECOND_US, renews)


@pytest.fixture
def small_lake(monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    return opened(SmallLake(), monkeypatch)


def opened(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    """Make tasks find a lake in memory, and clear their caches of other lakes."""

    def store(url: str) -> Store:
        assert url == lake.store.url
        return lake.store

    monkeypatch.setattr(reader, "cached_store", store)
    for cached in (reader.cached_footer, reader.cached_inheritance, reader._cached_tombstones):
        cached.cache_clear()
    return lake


def options(**given: str) -> SourceOptions:
    chosen = (
        given if {"bucket", "prefix", "streams", "streamsPattern"} & given.keys() else {"streamsPattern": ".*", **given}
    )
    return parse_source({"url": "http://127.0.0.1:1", **chosen})


def tables(
    partitions: Iterable[LakePartition],
    columns: frozenset[str] = COLUMNS,
    selection: Selection = EVERYTHING,
    conditions: Conditions = NO_CONDITIONS,
) -> Iterator[pa.Table]:
    """What all tasks return together."""
    for partition in partitions:
        yield from read_lake(partition, RowQuery(columns, selection, conditions))


def rows(found: Iterable[pa.Table]) -> list[Row]:
    """Rows sorted by name, incarnation and offset."""
    plain: list[dict[str, Any]] = [row for table in found for row in table.to_pylist()]
    return sorted(
        (
            f"{row['bucket']}/{row['stream']}",
            row["incarnation"],
            row["offset"],
            row["next_offset"],
            row["record"],
            row["position"],
            row["payload"],
        )
        for row in plain
    )


def stored(lake: SmallLake) -> list[Row]:
    """Every row in the files, dead or alive."""
    return sorted(
        (row.name, incarnation, row.offset, row.end, row.record, row.position, row.payload)
        for incarnation, row in lake.in_files()
    )


def alive(lake: SmallLake) -> list[Row]:
    """Every row in the files that its stream still has."""
    streams = {stream.incarnation: stream for stream in lake.state.streams.values() if not stream.deleted}
    return [row for row in stored(lake) if row[1] in streams and row[2] >= streams[row[1]].start]
