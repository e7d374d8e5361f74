"""Leases of batch reads: taken by the plan, renewed by tasks, and judged by the server."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.client import Admin
from headwater.node.lake.parts import LakeIntervals
from headwater.protocol.limits import LEASES_MAX
from headwater.spark.failures import LinkFailed, LinkRefused
from headwater.spark.link import Link, LinkSettings
from headwater.spark.options.source import parse_source
from headwater.spark.source.lake import keeping as leases
from headwater.spark.source.lake.keeping import renewing, take_lease
from headwater.spark.source.lake.plan import LakePartition
from headwater.spark.source.source import BatchReader
from headwater.testing import RunningServer, running_server

from ...streams import streams_in

LEASE = "spark-batch-1"
REFUSED_SECONDS_MAX = 30
"""Far less than a link waits for a server that is busy."""
SWEEP_SECONDS = LakeIntervals().sweep_check_seconds + 1


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    leases._renewed_at.clear()
    yield
    leases._renewed_at.clear()


def until(what: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.05)


# -- With a server -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, Path]]:
    """A server that keeps replaced objects for next to no time, and its lake."""
    data = tmp_path_factory.mktemp("hasty") / "data"
    with running_server("--lake-history-seconds", "0.01", data=data) as server:
        yield server, data / "lake"


def test_a_batch_that_outlives_the_grace_period_reads_everything_it_planned(hasty: tuple[RunningServer, Path]) -> None:
    server, lake = hasty
    with streams_in(server, "team") as streams, Admin(server.url) as admin:
        streams.make("s", b"one", b"two")
        reader = BatchReader(parse_source({"url": server.url, "bucket": "team", "via": "lake", "columns": "payload"}))
        (partition,) = reader.partitions()
        assert isinstance(partition.value, LakePartition)
        lease = partition.value.lease
        assert lease is not None
        (segment,) = lake.glob("segments/*/*.parquet")
        streams.stream("s").delete()
        # The segment has no live row, so that the server drops it, and another catalog replaces this one.
        until(lambda: admin.status()["lake"]["retired_segments"])
        streams.make("t", b"other")
        admin.flush()
        # Longer than the sweeper waits between two searches: without the lease, everything would be gone by now.
        time.sleep(SWEEP_SECONDS)
        rows = [row for batch in reader.read(partition) for row in batch.to_pylist()]
        assert [row["payload"] for row in rows] == [b"one", b"two"]
        admin.forget_consumer(lease)
        until(lambda: not segment.exists())


def test_a_lease_that_is_not_renewed_ends_by_itself(hasty: tuple[RunningServer, Path]) -> None:
    server, _ = hasty
    with Link(LinkSettings(server.url)) as link, Admin(server.url) as admin:
        link.lease(LEASE, 1)
        until(lambda: [one.lapsed for one in admin.consumers() if one.name == LEASE] == [True], 10)
        assert not link.renew_lease(LEASE, 1)


# -- Renewals ----------------------------------------------------------------------------------------------------------


class Renewals:
    """Stands in for links, and records what is renewed."""

    def __init__(self, *answers: bool) -> None:
        self._answers = list(answers)
        self.renewed: list[str] = []

    def __call__(self, settings: LinkSettings) -> "Renewals":
        return self

    def __enter__(self) -> "Renewals":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def renew_lease(self, lease: str, seconds: int) -> bool:
        assert seconds == leases.LEASE_SECONDS
        self.renewed.append(lease)
        return self._answers.pop(0) if self._answers else True

    def lease(self, lease: str, seconds: int) -> None:
        raise LinkRefused("The lease", 503, {"code": "overloaded"})


NOWHERE = LinkSettings("http://127.0.0.1:1")


def test_a_read_does_not_wait_for_one_of_too_many_leases(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running_server(data=tmp_path / "data") as server, Link(LinkSettings(server.url)) as link:
        for number in range(LEASES_MAX):
            link.lease(f"lease-{number}", 600)
        began = time.monotonic()
        assert take_lease(link) is None
        assert time.monotonic() - began < REFUSED_SECONDS_MAX
    assert "1000 leases are in force" in caplog.text


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "lake-lease"]


def test_a_task_renews_its_lease_for_as_long_as_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    links = Renewals()
    monkeypatch.setattr(leases, "Link", links)
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.01)
    with renewing(NOWHERE, LEASE):
        until(lambda: len(links.renewed) >= 3, 10)
    until(lambda: not running(), 10)
    assert set(links.renewed) == {LEASE}


def test_short_tasks_of_one_worker_share_a_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    links = Renewals()
    monkeypatch.setattr(leases, "Link", links)
    with renewing(NOWHERE, LEASE):
        until(lambda: links.renewed, 10)
    for _ in range(20):
        with renewing(NOWHERE, LEASE):
            pass
    until(lambda: not running(), 10)
    assert links.renewed == [LEASE]


def test_a_lapsed_lease_is_renewed_no_more_and_the_task_reads_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    links = Renewals(False)
    monkeypatch.setattr(leases, "Link", links)
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.01)
    with renewing(NOWHERE, LEASE):
        until(lambda: links.renewed and not running(), 10)
    assert links.renewed == [LEASE]
    assert "has lapsed" in caplog.text


def test_a_server_that_cannot_be_reached_for_a_while_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    links = Renewals()
    tries = iter([True, False])

    def unreachable_at_first(settings: LinkSettings) -> Renewals:
        if next(tries, False):
            raise LinkFailed("The server cannot be reached.")
        return links

    monkeypatch.setattr(leases, "Link", unreachable_at_first)
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.01)
    with renewing(NOWHERE, LEASE):
        until(lambda: links.renewed, 10)


def test_a_task_without_a_lease_renews_nothing() -> None:
    until(lambda: not running(), 10)  # The thread of an earlier task ends soon after it.
    with renewing(NOWHERE, None):
        assert not running()


def test_a_read_without_a_lease_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    assert take_lease(Renewals()) is None  # type: ignore[arg-type]
    assert "no lease" in caplog.text


def test_a_worker_remembers_a_limited_number_of_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    links = Renewals()
    monkeypatch.setattr(leases, "Link", links)
    monkeypatch.setattr(leases, "RENEWED_MAX", 3)
    for number in range(5):
        with renewing(NOWHERE, f"lease-{number}"):
            until(lambda: len(links.renewed) > number, 10)  # noqa: B023
    assert list(leases._renewed_at) == ["lease-2", "lease-3", "lease-4"]
