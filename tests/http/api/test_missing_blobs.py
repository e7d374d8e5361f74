"""Snapshots whose bytes are gone when they are to be sent: replaced meanwhile, lost, or out of reach."""

from collections.abc import Callable
from errno import EREMOTEIO

import pytest
from msgspec.structs import replace

from headwater.http.server import Server
from headwater.log.seam import Reached
from headwater.storage.blobs import BlobReader

from ...node.lake.lakes import Bench
from ..processes import eventually
from ..sockets import refused
from .inside import against, wire_to

TEXT = {"Content-Type": "text/plain"}

PLACES = ["/bucket/stream/snapshot/{}", "/bucket/stream/bootstrap"]


def with_snapshot(work: Callable[[str, Bench, Server, str], None]) -> None:
    """Run a client against a server whose stream has a snapshot; `work` is given its offset."""

    def run(url: str, node: Bench, server: Server) -> None:
        with wire_to(url) as wire:
            assert wire.ask("PUT", "/bucket").status == 201
            assert wire.ask("PUT", "/bucket/stream", TEXT).status == 201
            tail = wire.ask("POST", "/bucket/stream", TEXT, b"abc").next_offset
            assert wire.ask("PUT", f"/bucket/stream/snapshot/{tail}", TEXT, b"first").status == 204
        work(url, node, server, tail)
        assert eventually(lambda: server.context.blobs.used == 0), "a transfer is still counted"

    against(run)


def lose(node: Bench) -> None:
    for name in node.shard.blobs.names():
        node.shard.blobs.remove(name)


@pytest.mark.parametrize("place", PLACES)
def test_a_snapshot_that_was_replaced_while_it_was_opened_leads_to_the_new_one(place: str) -> None:
    def work(url: str, node: Bench, server: Server, tail: str) -> None:
        lose(node)
        writer = node.shard.blobs.create(1)
        writer.write(b"again")
        again = writer.finish()
        asked = []

        def barrier(reached: Reached) -> None:
            # Another node has published it, and this one learns of it only now.
            asked.append(reached)
            stream = node.state.streams["bucket/stream"]
            assert stream.snapshot is not None
            stream.snapshot = replace(stream.snapshot, blob=again.id, digest=again.digest)
            reached(True)

        node.shard.barrier = barrier  # type: ignore[method-assign]
        with wire_to(url) as wire:
            response = wire.ask("GET", place.format(tail))
            assert (response.status, b"again" in response.body) == (200, True)
        assert len(asked) == 1

    with_snapshot(work)


@pytest.mark.parametrize("place", PLACES)
def test_a_snapshot_that_was_dropped_while_it_was_opened_is_not_found(place: str) -> None:
    def work(url: str, node: Bench, server: Server, tail: str) -> None:
        lose(node)

        def barrier(reached: Reached) -> None:
            node.state.streams["bucket/stream"].snapshot = None
            reached(True)

        node.shard.barrier = barrier  # type: ignore[method-assign]
        with wire_to(url) as wire:
            response = wire.ask("GET", place.format(tail))
            assert response.status == (200 if "bootstrap" in place else 404)

    with_snapshot(work)


@pytest.mark.parametrize("place", PLACES)
def test_a_snapshot_that_is_lost_is_a_failure_of_the_server(place: str, caplog: pytest.LogCaptureFixture) -> None:
    def work(url: str, node: Bench, server: Server, tail: str) -> None:
        lose(node)
        with wire_to(url) as wire:
            refused(wire.ask("GET", place.format(tail)), 500, "internal")
            assert wire.ask("GET", "/healthz").status == 200, "the connection goes on"

    with_snapshot(work)
    assert "FileNotFoundError" in caplog.text


@pytest.mark.parametrize("place", PLACES)
def test_while_the_log_cannot_tell_a_missing_snapshot_is_not_called_lost(place: str) -> None:
    def work(url: str, node: Bench, server: Server, tail: str) -> None:
        lose(node)
        node.shard.barrier = lambda reached: reached(False)  # type: ignore[method-assign]
        with wire_to(url) as wire:
            refused(wire.ask("GET", place.format(tail)), 503, "log_unavailable")

    with_snapshot(work)


@pytest.mark.parametrize("place", PLACES)
def test_a_store_that_cannot_be_reached_is_a_reason_to_try_again(place: str) -> None:
    def work(url: str, node: Bench, server: Server, tail: str) -> None:
        def away(blob: str) -> BlobReader:
            raise OSError(EREMOTEIO, "the secret bucket is away")

        node.shard.blobs.open = away  # type: ignore[method-assign]
        with wire_to(url) as wire:
            response = wire.ask("GET", place.format(tail))
            refused(response, 503, "overloaded")
            assert b"secret" not in response.body

    with_snapshot(work)
