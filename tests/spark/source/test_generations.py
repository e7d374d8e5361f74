"""A checkpoint from before a restore: its positions and incarnations are numbers of another log."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.backup.create import Origin, create_backup
from headwater.backup.restore import restore_backup
from headwater.client import Client
from headwater.spark.failures import LogChanged
from headwater.spark.link import Link, LinkSettings
from headwater.spark.options.source import parse_source
from headwater.spark.source.filters import NO_CONDITIONS, RowQuery
from headwater.spark.source.lake.plan import lake_url, open_lake
from headwater.spark.source.lake.stream import LakeStream
from headwater.spark.source.live.reader import LiveReader
from headwater.spark.source.live.stream import LiveStream
from headwater.storage.folder import FolderStore
from headwater.testing import running_server

Open = Callable[[Link], LakeStream | LiveStream]
Checkpoint = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


def open_lake_query(link: Link) -> LakeStream:
    given = {"url": link.settings.url, "bucket": "team", "startingOffsets": "earliest", "consumerName": "job"}
    options = parse_source({**given, "flushInterval": "0s"})
    url = lake_url(options, link)
    assert url is not None
    return LakeStream(options, link, open_lake(url))


def open_live_query(link: Link) -> LiveStream:
    given = {"url": link.settings.url, "bucket": "team", "startingOffsets": "earliest", "via": "live"}
    return LiveStream(parse_source(given), link)


def append(link: Link, *payloads: bytes) -> None:
    with Client(f"{link.settings.url}/ds") as client:
        stream = client.bucket("team").stream("s")
        if not payloads:
            stream.create(content_type="text/plain")
        for payload in payloads:
            stream.append(payload)


@pytest.fixture(params=[open_lake_query, open_live_query], ids=["lake", "live"])
def query(request: pytest.FixtureRequest) -> Open:
    found: Open = request.param
    return found


@pytest.fixture
def restored(query: Open, tmp_path: Path) -> Iterator[tuple[Link, Checkpoint]]:
    """A restored server, and what a query's checkpoint had when its last batch, from after the backup, was planned."""
    data, place = tmp_path / "data", FolderStore(tmp_path / "backup")
    with running_server(data=data) as server, Link(LinkSettings(server.url)) as link:
        with Client(f"{server.url}/ds") as client:
            client.bucket("team").create()
        append(link)
        append(link, b"in the backup,")
        one = query(link)
        start = one.initial()
        middle = one.latest(start)
        create_backup(Origin(data, FolderStore(data / "lake")), place, lambda *_: None)
        append(link, b" lost")
        end = one.latest(middle)
        assert one.plan(middle, end)
    again = tmp_path / "again"
    restore_backup(place, again, FolderStore(again / "lake"), lambda *_: None)
    with running_server(data=again) as server, Link(LinkSettings(server.url)) as link:
        append(link, b" other")
        yield link, (start, middle, end)


def test_a_query_does_not_continue_on_a_restored_server(query: Open, restored: tuple[Link, Checkpoint]) -> None:
    link, (start, middle, end) = restored
    one = query(link)
    with pytest.raises(LogChanged, match=r"restored from a backup, or replaced, .* start a new query"):
        one.latest(end)
    with pytest.raises(LogChanged, match="restored from a backup"):
        one.plan(middle, end)
    with pytest.raises(LogChanged, match="restored from a backup"):
        one.plan(one.initial(), middle)
    if isinstance(one, LakeStream):
        with pytest.raises(LogChanged, match="restored from a backup"):
            one.commit(end)
    assert link.status()["lake"]["consumers"] == {}, "what is refused must not register anything"
    assert query(link).latest(one.initial())["log"] == link.log_id() != start["log"]


def test_a_task_that_was_planned_before_a_restore_is_refused_after_it(restored: tuple[Link, Checkpoint]) -> None:
    link, (_, _, end) = restored
    one = open_live_query(link)
    partitions = one.plan({**(fresh := one.initial()), "beginning": {}}, one.latest(fresh))
    stale = partitions[0]._replace(log_id=end["log"])
    options = parse_source({"url": link.settings.url, "bucket": "team", "via": "live"})
    reader = LiveReader(link, options, RowQuery(frozenset({"payload"}), options.selection, NO_CONDITIONS))
    with pytest.raises(LogChanged):
        list(reader.read(stale))
