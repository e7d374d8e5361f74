"""Swaps over HTTP: rewrites are made from the files of the lake, as a job on another machine would make them."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headwater.lake.catalog import Catalog, read_catalog
from headwater.lake.compaction.rewriting import Cuts, Keep, rewrite
from headwater.lake.format import new_segment_id, segment_key
from headwater.lake.segments.reader import Read
from headwater.lake.segments.writer import Written
from headwater.lake.verify.verifier import Verifier
from headwater.protocol.limits import MINUTE_US
from headwater.storage.folder import FolderStore
from headwater.streams.segments import Segment
from headwater.testing import RunningServer, running_server

from ..sockets import Response, Wire, refused
from .bulk.requests import PATIENCE_SECONDS

PATH = "/__headwater/swap"
TEXT = {"Content-Type": "text/plain"}
STREAMS = ("swaps/a", "swaps/b", "swaps/c")
CONTENTS = {name: b"".join(b"%d of %b; " % (number, name.encode()) for number in range(3)) for name in STREAMS}
NEVER = ("--flush-seconds", "100000", "--flush-bytes-max", "1000000000")

_ids = count()


class Lake(NamedTuple):
    """A server with three segments, too few for automatic compaction, and their folder."""

    wire: Wire
    store: FolderStore

    @property
    def catalog(self) -> Catalog:
        assert self.wire.ask("POST", "/__headwater/flush").status == 200
        catalog = read_catalog(self.store)
        assert catalog is not None
        return catalog

    def contents(self) -> dict[str, bytes]:
        """The contents of the streams; read only once, since the server has the pages in memory afterwards."""
        return {name: self.wire.ask("GET", f"/v1/stream/{name}?offset=-1").body for name in STREAMS}

    def hand_in(self, keep: Keep) -> dict[str, Any]:
        """Rewrite everything into new objects, and return the request for the swap."""
        listed, deadline = self.catalog.segments, time.time_ns() // 1000 + MINUTE_US
        written: list[Written] = []
        rewritten = rewrite(
            self._read_of,
            [one.segment for one in listed],
            keep,
            Cuts(1 << 30, 10_000),
            new_id=lambda: new_segment_id(deadline, f"w{next(_ids)}"),
            put=written.append,
        )
        for one in written:
            self.store.create(key_of(one.segment), one.data)
        return {
            "shard": 0,
            "replaced": [one.number for one in listed],
            "keys": [key_of(one.segment) for one in written],
            "dropped": rewritten.dropped,
            "deadline": deadline,
        }

    def _read_of(self, segment: Segment) -> Read:
        return lambda start, size: self.store.read(key_of(segment), start, size)


def key_of(segment: Segment) -> str:
    return segment_key(0, segment.first_position, segment.last_position, segment.id)


KEEP_ALL = Keep(lambda name, incarnation: 0, 2**63 - 1)


@contextmanager
def making_a_lake(data: Path) -> Iterator[tuple[RunningServer, Lake]]:
    with running_server(*NEVER, data=data) as server, Wire(server.url, timeout_seconds=PATIENCE_SECONDS) as wire:
        for name in STREAMS:
            assert wire.ask("PUT", f"/v1/stream/{name}", TEXT).status == 201
        for number in range(3):
            for name in STREAMS:
                body = b"%d of %b; " % (number, name.encode())
                assert wire.ask("POST", f"/v1/stream/{name}", TEXT, body).status == 204
            assert wire.ask("POST", "/__headwater/flush").status == 200
        yield server, Lake(wire, FolderStore(data / "lake"))


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with making_a_lake(tmp_path) as (_, lake):
        yield lake


def ask(lake: Lake, body: object) -> Response:
    return lake.wire.ask("POST", PATH, {"Content-Type": "application/json"}, json.dumps(body).encode())


def test_a_rewrite_that_is_handed_in_takes_its_place_and_no_reader_notices(lake: Lake) -> None:
    handed = lake.hand_in(KEEP_ALL)
    response = ask(lake, handed)
    assert response.status == 200, response.body
    assert response.headers["cache-control"] == "no-store"
    position = json.loads(response.body)["position"]
    assert lake.contents() == CONTENTS
    catalog = lake.catalog
    assert catalog.position >= position
    assert [one.key for one in catalog.segments] == handed["keys"]
    verifier = Verifier(lake.store)
    assert list(verifier.problems()) == []
    assert verifier.live_rows == 9
    refused(ask(lake, handed), 409, "swap_refused")


def test_what_was_swapped_is_still_there_when_the_server_comes_back(tmp_path: Path) -> None:
    with making_a_lake(tmp_path) as (server, lake):
        handed = lake.hand_in(KEEP_ALL)
        assert ask(lake, handed).status == 200
        server.kill()
    with running_server(*NEVER, data=tmp_path) as server, Wire(server.url, timeout_seconds=PATIENCE_SECONDS) as wire:
        again = Lake(wire, lake.store)
        assert again.contents() == CONTENTS
        assert [one.key for one in again.catalog.segments] == handed["keys"]


def test_a_rewrite_that_is_wrong_is_refused_and_changes_nothing(lake: Lake) -> None:
    catalog = lake.catalog
    handed = lake.hand_in(KEEP_ALL)
    needed = lake.hand_in(Keep(lambda name, incarnation: 2**62 if name == STREAMS[1] else 0, 2**63 - 1))
    for body, reason in (
        (handed | {"dropped": 1}, "dropped must be 0"),
        (handed | {"replaced": [1, 2]}, "are outside of"),
        (handed | {"deadline": 1}, "has passed"),
        (handed | {"keys": []}, "dropped must be"),
        (needed, "omits rows that are still needed"),
    ):
        assert reason in refused(ask(lake, body), 409, "swap_refused")["detail"]
    path = Path(lake.store.url.removeprefix("file://")) / handed["keys"][0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    refused(ask(lake, handed), 409, "swap_refused")
    path.unlink()
    assert "There is no object" in refused(ask(lake, handed), 409, "swap_refused")["detail"]
    assert lake.contents() == CONTENTS
    assert lake.catalog.segments == catalog.segments


BAD_BODIES = (
    b"",
    b"[]",
    b"\xff",
    b'{"shard": 0}',
    b'{"shard": "0", "replaced": [1], "keys": [], "dropped": 0, "deadline": 0}',
    b'{"shard": 0, "replaced": [1.5], "keys": [], "dropped": 0, "deadline": 0}',
    b'{"shard": 0, "replaced": [1], "keys": [2], "dropped": 0, "deadline": 0}',
    b'{"shard": 0, "replaced": [1], "keys": [], "dropped": 0, "deadline": 0, "more": 0}',
    b"[" * 100_000,
)


def test_a_body_of_another_shape_is_refused(lake: Lake) -> None:
    for body in BAD_BODIES:
        refused(lake.wire.ask("POST", PATH, {}, body), 400, "bad_request")


def test_a_server_without_a_lake_swaps_nothing(server: RunningServer) -> None:
    with Wire(server.url, timeout_seconds=PATIENCE_SECONDS) as wire:
        refused(wire.ask("POST", PATH, {}, b"{}"), 501, "not_implemented")
