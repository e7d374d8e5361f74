"""Requests that are admitted, wait for something, and are judged again before they do anything."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from headwater.protocol.limits import BULK_APPENDS_MAX
from headwater.testing.clusters import running_cluster

from ..api.bulk.requests import ARROW, encode, row, table_of
from ..guarded import Guarded, guarded
from ..processes import eventually
from ..sockets import Wire, refused, request

pytestmark = pytest.mark.attack

TEXT = {"Content-Type": "text/plain"}
BULK = "/__headwater/append"
STREAM = "/v1/stream/mine/late"


def test_a_bulk_append_that_waited_in_line_is_judged_by_the_rules_of_now(tmp_path: Path) -> None:
    grants = {"bob": ["pipeline,append,create mine/*"]}
    with guarded(tmp_path, grants) as guard, ExitStack() as open_wires:
        root, bob = guard.bearer("root"), {**guard.bearer("bob"), **ARROW}
        inside = [open_wires.enter_context(guard.wire()) for _ in range(BULK_APPENDS_MAX)]
        for wire in inside:
            wire.send(request("POST", BULK, {**bob, "Expect": "100-continue", "Content-Length": "200000"}))
            assert wire.receive().status == 100
        waiting = open_wires.enter_context(guard.wire())
        body = encode(table_of([row("mine/late", b"late", create=True, content_type="text/plain")]))
        waiting.send(request("POST", BULK, bob, body))
        assert waiting.silent_for(0.3)
        guard.write({"root": ["* *"]})
        guard.reload()
        inside[0].close()
        refused(waiting.receive(), 401, "unauthorized")
        with guard.wire() as wire:
            assert wire.ask("GET", STREAM, root).status == 404


def test_a_read_that_waited_for_the_log_of_a_cluster_is_judged_by_the_rules_of_now(tmp_path: Path) -> None:
    guard = Guarded(tmp_path)
    guard.write({"root": ["* *"], "bob": ["read mine/*"]})
    with running_cluster(tmp_path, "--auth", str(guard.file), nodes=1, nats=1) as cluster:
        [guard.server], [nats] = cluster.nodes, cluster.nats.servers
        root = guard.bearer("root")
        with guard.wire() as wire, guard.wire() as reader:
            assert eventually(lambda: _is_created(wire, root), 30)
            nats.pause()
            try:
                assert eventually(lambda: _waits(reader, guard.bearer("bob")))
                guard.write({"root": ["* *"]})
                guard.reload()
            finally:
                nats.resume()
            refused(reader.receive(), 401, "unauthorized")


def _waits(wire: Wire, bearer: dict[str, str]) -> bool:
    """Send a read; whether it waits for the log, which may have answered before it was paused."""
    wire.send(request("GET", f"{STREAM}?offset=-1", bearer))
    if wire.silent_for(0.5):
        return True
    wire.receive()
    return False


def _is_created(wire: Wire, root: dict[str, str]) -> bool:
    return wire.ask("PUT", STREAM, {**TEXT, **root}, b"secret").status in (200, 201)
