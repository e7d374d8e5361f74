"""Which stream and which object store belong together; a lost log is never begun anew."""

import asyncio
import threading

import pytest

from headwater.log.images.files import Images
from headwater.log.images.objects import ObjectImages
from headwater.log.jetstream import identity, replaying, streams, visiting
from headwater.log.jetstream.identity import Established, establish, record_key, recorded_log_id
from headwater.log.jetstream.opening import Opened, open_log
from headwater.log.jetstream.streams import ClusterConfig, LogRefused, judge_server, judge_stream
from headwater.log.jetstream.visiting import Visit
from headwater.log.jetstream.wire import ServerInfo
from headwater.node.clock import Clock
from headwater.storage.memory import MemoryStore
from headwater.streams.apply import apply
from headwater.streams.batches import Batch
from headwater.streams.commands.streams import Append, Create
from headwater.streams.images import Walk
from headwater.testing.nats import NatsServers

from .nodes import LOG_BYTES_MAX, Cluster, Node, fail, until


def found(cluster: Cluster) -> Established:
    return establish(cluster.config("n1"), cluster.store, log_bytes_max=LOG_BYTES_MAX)


def delete_stream(cluster: Cluster) -> None:
    with Visit(cluster.config("n1")) as visit:
        visit.call(streams.call(visit.client, f"STREAM.DELETE.{cluster.stream}"))


def write(cluster: Cluster, count: int = 1) -> Node:
    node = Node(cluster.open())

    async def main() -> None:
        node.start()
        for number in range(count):
            await node.append([Append("a", b"%d" % number)])
        await node.stop()

    asyncio.run(main())
    return node


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "MISSING_SECONDS", 0.3)
    monkeypatch.setattr(replaying, "STALE_SECONDS_MAX", 0.3)


def test_the_first_start_creates_the_stream_and_records_its_id(cluster: Cluster) -> None:
    first = found(cluster)
    assert recorded_log_id(cluster.store, 0) == first.log_id
    assert first.info.config.num_replicas == 1
    assert found(cluster).log_id == first.log_id


def test_on_three_servers_the_stream_has_three_replicas(cluster_of_three: Cluster) -> None:
    assert found(cluster_of_three).info.config.num_replicas == 3


def test_nodes_that_start_first_at_the_same_time_agree(cluster_of_three: Cluster) -> None:
    ids: list[str] = []
    threads = [threading.Thread(target=lambda: ids.append(found(cluster_of_three).log_id)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 5
    assert set(ids) == {recorded_log_id(cluster_of_three.store, 0)}


def test_a_start_that_was_killed_before_the_record_is_completed_by_the_next_one(cluster: Cluster) -> None:
    log_id = found(cluster).log_id
    cluster.store.delete(record_key(0))
    assert found(cluster).log_id == log_id
    assert recorded_log_id(cluster.store, 0) == log_id


def test_a_recorded_log_whose_stream_is_missing_is_refused_and_not_created(cluster: Cluster) -> None:
    found(cluster)
    delete_stream(cluster)
    for _ in range(2):
        with pytest.raises(LogRefused, match=f"NATS has no stream {cluster.stream}"):
            found(cluster)


def test_a_stream_in_use_is_refused_with_an_empty_lake(cluster: Cluster) -> None:
    write(cluster)
    cluster.store = MemoryStore()
    with pytest.raises(LogRefused, match="in use by a cluster with another lake"):
        found(cluster)
    assert recorded_log_id(cluster.store, 0) is None


def test_a_lake_of_another_log_is_refused(cluster: Cluster, nats: NatsServers) -> None:
    found(cluster)
    other = Cluster(nats, cluster.store)
    config = other.config("n1")
    with Visit(config) as visit:
        visit.call(streams.create(visit.client, config, streams.configuration(config, "other", LOG_BYTES_MAX, 1)))
    with pytest.raises(LogRefused, match=f"but the stream {other.stream} holds log other"):
        found(other)


def test_a_damaged_record_and_one_of_another_format_are_refused(cluster: Cluster) -> None:
    found(cluster)
    for data, reason in ((b"{", "is damaged"), (b'{"version":9,"log_id":"x"}', "has format 9")):
        cluster.store.delete(record_key(0))
        cluster.store.create(record_key(0), data)
        with pytest.raises(LogRefused, match=reason):
            found(cluster)


def test_a_stream_that_headwater_did_not_create_or_that_was_changed_is_refused(cluster: Cluster) -> None:
    config = cluster.config("n1")
    request = streams.configuration(config, "9f2c", LOG_BYTES_MAX, 1)
    for change, reason in (
        ({"metadata": {}}, "was not created by Headwater"),
        ({"discard": "old"}, "was changed"),
        ({"republish": None}, "was changed"),
    ):
        with Visit(config) as visit:
            visit.call(streams.create(visit.client, config, request | change))
        with pytest.raises(LogRefused, match=reason):
            found(cluster)
        delete_stream(cluster)


@pytest.mark.parametrize("servers", ["cluster", "cluster_of_three"])
def test_a_log_that_does_not_fit_is_refused(servers: str, request: pytest.FixtureRequest) -> None:
    cluster: Cluster = request.getfixturevalue(servers)
    with pytest.raises(LogRefused, match=r"no room for a log of .* bytes"):
        establish(cluster.config("n1"), cluster.store, log_bytes_max=1 << 50)


def test_servers_that_cannot_be_used_are_named(nats: NatsServers) -> None:
    assert judge_server(ServerInfo("a", "2.15.0", jetstream=True)) is None
    assert "has version 2.14.9" in str(judge_server(ServerInfo("a", "2.14.9", jetstream=True)))
    assert "without JetStream" in str(judge_server(ServerInfo("a", "2.15.1-beta")))
    with (
        pytest.raises(LogRefused, match=r"No NATS server can be reached at 127\.0\.0\.1:1 "),
        Visit(ClusterConfig(["nats://127.0.0.1:1"]), 0.2),
    ):
        pass
    assert judge_stream(streams.StreamInfo(), ClusterConfig(nats.urls)) is not None


def test_a_start_that_waits_for_nats_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(visiting, "REPORT_SECONDS", 0.1)
    with pytest.raises(LogRefused), Visit(ClusterConfig(["nats://127.0.0.1:1"]), 0.5):
        pass
    assert [message for message in caplog.messages if message.startswith("waiting for a NATS server: 127.0.0.1:1")]


# -- Opening -----------------------------------------------------------------------------------------------------------


def open_it(cluster: Cluster) -> Opened:
    def images_of(log_id: str) -> Images:
        return ObjectImages(cluster.store, log_id, 0)

    return open_log(
        cluster.config("n1"),
        cluster.store,
        images_of,
        clock=Clock().now,
        log_bytes_max=LOG_BYTES_MAX,
        on_failure=fail,
    )


def serve(opened: Opened, *, images: int = 0) -> None:
    """Append some commands, apply them, and take images between them."""

    async def main() -> None:
        log, state = opened.log, opened.state
        delivered: list[int] = []

        def deliver(batch: Batch, ticket: int | None) -> None:
            apply(state, batch)
            delivered.append(ticket or 0)

        log.start(deliver, lambda ticket: None)
        for number in range(max(images, 1)):
            log.append(Clock().now(), [Create(f"s{state.position}", "text/plain", payload=b"%d" % number)], number + 1)
            await until(lambda: len(delivered) == number + 1)  # noqa: B023
            if images:
                walk = Walk(state)
                writer = opened.images.begin(walk.position, log.mark())
                writer.write(walk.pieces())
                walk.end()
                writer.finish()
                log.forget(opened.images.drop_old())
        await until(lambda: not log._housekeeping)
        await asyncio.sleep(0.05)
        await until(lambda: not log._housekeeping)
        log.close()
        assert log.closing is not None
        await log.closing

    asyncio.run(main())


def test_a_new_cluster_opens_with_an_empty_state(cluster: Cluster) -> None:
    opened = open_it(cluster)
    assert opened.state.position == 0
    assert opened.state.log_id == opened.log.log_id


def test_a_node_opens_with_everything_that_was_logged_with_and_without_images(cluster: Cluster) -> None:
    for images in (0, 3, 0):
        before = open_it(cluster)
        serve(before, images=images)
        again = open_it(cluster)
        assert again.state.position == before.state.position > 0
        assert sorted(again.state.streams) == sorted(before.state.streams)
        assert again.log.applied == before.log.applied


def test_a_log_that_is_purged_beyond_the_newest_good_image_is_refused(cluster: Cluster) -> None:
    serve(open_it(cluster), images=4)
    for item in list(cluster.store.items("images/")):
        cluster.store.delete(item.key)
    with pytest.raises(LogRefused, match="No good image"):
        open_it(cluster)


def test_a_log_that_ends_before_an_image_is_refused(cluster: Cluster) -> None:
    opened = open_it(cluster)
    serve(opened, images=2)
    delete_stream(cluster)
    config = cluster.config("n1")
    with Visit(config) as visit:
        visit.call(
            streams.create(visit.client, config, streams.configuration(config, opened.log.log_id, LOG_BYTES_MAX, 1))
        )
    with pytest.raises(LogRefused, match="NATS has lost acknowledged messages"):
        open_it(cluster)
