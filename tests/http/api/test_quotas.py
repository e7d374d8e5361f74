"""Quotas of buckets: what would be added is judged, after duplicates, and room is made by deleting and trimming."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.access.limits import Quota
from headwater.access.policy import load
from headwater.http.guard.gates import Guard
from headwater.http.server import Server
from headwater.protocol.limits import KIB

from ...node.lake.lakes import Bench
from ..sockets import Response, Wire, request
from .bulk.requests import bulk, row
from .extensions.pieces import frames
from .inside import against, wire_to

A, B, C = (f"/v1/stream/full/{name}" for name in "abc")
TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}


def with_quota(
    streams: int | None, stored_bytes: int | None, work: Callable[[Wire, Bench], None], bucket: str = "full"
) -> None:
    """Run a client against a server that has a quota for one bucket."""

    def client(url: str, node: Bench, server: Server) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write('version = 1\n[anonymous]\ngrants = ["* *"]\n')
            file.flush()
            policy = load(Path(file.name))
        server.context.guard = Guard(policy._replace(buckets={bucket: Quota(streams, stored_bytes)}))
        with wire_to(url) as wire:
            work(wire, node)

    against(client)


def producer(seq: int, **more: str) -> dict[str, str]:
    return {**TEXT, "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": str(seq), **more}


def is_full(response: Response) -> bool:
    """Whether a response says that the quota is exceeded."""
    if response.status != 507:
        return False
    assert response.problem["code"] == "quota_exceeded"
    assert "retry-after" not in response.headers
    return True


def put(wire: Wire, path: str, body: bytes = b"", more: dict[str, str] | None = None) -> Response:
    return wire.ask("PUT", path, TEXT | (more or {}), body)


def post(wire: Wire, path: str, body: bytes, headers: dict[str, str] | None = None) -> Response:
    return wire.ask("POST", path, headers or TEXT, body)


# -- Streams ----------------------------------------------------------------------------------------------------------


def test_a_bucket_with_as_many_streams_as_it_may_have_takes_no_other() -> None:
    def work(wire: Wire, node: Bench) -> None:
        assert [put(wire, path).status for path in (A, B)] == [201, 201]
        assert is_full(put(wire, C))
        assert put(wire, A).status == 200, "it exists"
        assert put(wire, A, more={"Content-Type": "text/html"}).status == 409
        assert put(wire, "/v1/stream/other/a").status == 201, "another bucket"
        assert post(wire, A, b"x").status == 204, "bytes are not limited"
        assert wire.ask("DELETE", B).status == 204
        assert put(wire, C).status == 201

    with_quota(2, None, work)


def test_a_quota_for_every_other_bucket_counts_each_for_itself() -> None:
    def work(wire: Wire, node: Bench) -> None:
        for bucket in ("one", "two"):
            assert put(wire, f"/v1/stream/{bucket}/a").status == 201
            assert is_full(put(wire, f"/v1/stream/{bucket}/b"))

    with_quota(1, None, work, bucket="*")


def test_a_fork_is_a_stream_and_stores_only_what_it_adds() -> None:
    def work(wire: Wire, node: Bench) -> None:
        assert put(wire, A, b"12345678").status == 201
        fork = {"Stream-Forked-From": A}
        assert is_full(put(wire, B, b"345", fork))
        assert put(wire, B, b"90", fork).status == 201
        assert put(wire, B, b"90", fork).status == 200
        assert node.state.bytes["full"] == 10
        assert is_full(put(wire, C, more=fork)), "a third stream"

    with_quota(2, 10, work)


def test_a_bucket_that_does_not_exist_is_not_full() -> None:
    def work(wire: Wire, node: Bench) -> None:
        response = put(wire, "/full/a")
        assert (response.status, response.problem["code"]) == (404, "bucket_not_found")

    with_quota(0, None, work)


def test_a_deleted_stream_counts_until_its_forks_are_gone() -> None:
    def work(wire: Wire, node: Bench) -> None:
        assert put(wire, A, b"12345678").status == 201
        assert put(wire, "/v1/stream/other/f", more={"Stream-Forked-From": A}).status == 201
        assert wire.ask("DELETE", A).status == 204
        assert is_full(put(wire, B, b"123"))
        assert wire.ask("DELETE", "/v1/stream/other/f").status == 204
        for _ in range(100):
            if put(wire, B, b"123").status == 201:
                return
        raise AssertionError("the source was not released")

    with_quota(None, 10, work)


# -- Bytes ------------------------------------------------------------------------------------------------------------


def test_an_append_that_does_not_fit_is_refused_and_a_smaller_one_is_not() -> None:
    def work(wire: Wire, node: Bench) -> None:
        assert put(wire, A).status == 201
        assert post(wire, A, b"12345678").status == 204
        assert is_full(post(wire, A, b"123"))
        assert post(wire, A, b"90").status == 204
        assert is_full(post(wire, A, b"1"))
        assert is_full(put(wire, B, b"1")), "a first message"
        assert put(wire, B).status == 201, "a stream without messages stores nothing"
        assert post(wire, B, b"", {"Stream-Closed": "true"}).status == 204
        assert wire.ask("DELETE", A).status == 204
        assert post(wire, A, b"1").status == 404
        assert put(wire, A, b"1234567890").status == 201

    with_quota(None, 10, work)


def test_json_is_counted_as_it_is_stored() -> None:
    def work(wire: Wire, node: Bench) -> None:
        assert put(wire, A, b"[ 1,  2 ]", JSON).status == 201
        assert post(wire, A, b"[3 , 4]", JSON).status == 204
        assert is_full(post(wire, A, b"5", JSON))
        assert node.state.bytes["full"] == 4

    with_quota(None, 4, work)


def test_a_producer_gets_its_usual_answers_in_a_full_bucket() -> None:
    def work(wire: Wire, node: Bench) -> None:
        assert put(wire, A).status == 201
        assert post(wire, A, b"12345", producer(0)).status == 200
        assert post(wire, A, b"67890", producer(1)).status == 200
        assert [post(wire, A, body, producer(seq)).status for seq, body in ((0, b"12345"), (1, b"67890"))] == [204, 204]
        assert is_full(post(wire, A, b"x", producer(2)))
        assert is_full(post(wire, A, b"x", producer(3))), "whether it is a gap depends on what is in flight"
        assert post(wire, A, b"other", producer(1)).problem["code"] == "producer_payload_mismatch"
        assert is_full(post(wire, A, b"x", producer(0, **{"Producer-Epoch": "1"})))
        assert post(wire, A, b"", producer(2, **{"Stream-Closed": "true"})).status == 204
        assert post(wire, A, b"x", producer(3)).problem["code"] == "stream_closed"
        assert post(wire, A, b"", producer(2, **{"Stream-Closed": "true"})).status == 204

    with_quota(None, 10, work)


def test_a_producer_that_sends_ahead_does_not_get_around_the_quota() -> None:
    def work(wire: Wire, node: Bench) -> None:
        assert put(wire, A).status == 201
        for start in range(0, 200, 20):
            wire.send(b"".join(request("POST", A, producer(start + n), b"x" * 100) for n in range(20)))
            statuses = [wire.receive().status for _ in range(20)]
        assert set(statuses) <= {507}
        assert node.state.bytes["full"] <= 1000 + 2 * 20 * 100, "only what was in flight together may be too much"

    with_quota(None, 1000, work)


def test_a_batch_is_judged_as_a_whole() -> None:
    def work(wire: Wire, node: Bench) -> None:
        assert put(wire, A).status == 201
        url = f"{A}/append-batch".replace("/v1/stream", "")
        assert is_full(wire.ask("POST", url, TEXT, frames(b"12345", b"678901")))
        assert node.state.bytes["full"] == 0
        assert wire.ask("POST", url, producer(0), frames(b"12345", b"67890")).status == 200
        assert is_full(wire.ask("POST", url, TEXT, frames(b"1")))
        assert wire.ask("POST", url, producer(0), frames(b"12345", b"67890")).status == 200, "a retry"
        assert is_full(wire.ask("POST", url, producer(1), frames(b"1")))
        assert node.state.bytes["full"] == 10

    with_quota(None, 10, work)


def test_the_rows_of_a_bulk_append_are_judged_one_by_one() -> None:
    def work(wire: Wire, node: Bench) -> None:
        new: Any = {"content_type": "text/plain", "create": True}
        outcomes = bulk(
            wire,
            row("full/a", b"1234", producer=("p", 0, 0), **new),
            row("other/a", b"1234567890", b"x", **new),
        )
        assert [outcome["status"] for outcome in outcomes] == [200, 200]
        outcomes = bulk(
            wire,
            row("full/a", b"1234", producer=("p", 0, 0), **new),
            row("full/a", b"1234567", producer=("p", 0, 1), **new),
            row("full/a", b"1", producer=("p", 0, 2), **new),
            row("full/b", b"1234567", **new),
            row("other/a", b"more", **new),
        )
        assert [outcome["status"] for outcome in outcomes] == [204, 507, 507, 507, 200]
        assert outcomes[1]["code"] == outcomes[3]["code"] == "quota_exceeded"
        assert set(node.state.streams) == {"full/a", "other/a"}
        assert node.state.bytes == {"full": 4, "other": 15}

    with_quota(None, 10, work)


def test_the_rows_of_a_bulk_append_create_only_as_many_streams_as_there_may_be() -> None:
    def work(wire: Wire, node: Bench) -> None:
        assert put(wire, A).status == 201
        new: Any = {"content_type": "text/plain", "create": True}
        outcomes = bulk(wire, row("full/a", b"1", **new), row("full/b", b"1", **new))
        assert [outcome["status"] for outcome in outcomes] == [200, 507]

    with_quota(1, None, work)


def test_a_snapshot_is_published_in_a_full_bucket_and_makes_room() -> None:
    def work(wire: Wire, node: Bench) -> None:
        assert put(wire, A, b"1234567890").status == 201
        assert is_full(post(wire, A, b"x"))
        tail = wire.ask("HEAD", "/full/a").headers["stream-next-offset"]
        assert wire.ask("PUT", f"/full/a/snapshot/{tail}", TEXT, b"the sum of everything").status == 204
        assert node.state.bytes["full"] == 0, "history was trimmed, and the snapshot does not count"
        assert post(wire, A, b"x").status == 204

    with_quota(None, 10, work)


@pytest.mark.parametrize("with_producer", [False, True])
def test_a_large_body_for_a_full_bucket_is_refused_before_it_is_sent(with_producer: bool) -> None:
    def work(wire: Wire, node: Bench) -> None:
        first = b"x" * 80 * KIB
        assert put(wire, A).status == 201
        assert post(wire, A, first, producer(0)).status == 200
        head = "".join(f"{name}: {value}\r\n" for name, value in (producer(0) if with_producer else TEXT).items())
        wire.send(
            f"POST {A} HTTP/1.1\r\nHost: localhost\r\n{head}Content-Length: {len(first)}\r\n"
            "Expect: 100-continue\r\n\r\n".encode()
        )
        answer = wire.receive()
        if with_producer:
            assert answer.status == 100, "it may be a retry"
            wire.send(first)
            assert wire.receive().status == 204
        else:
            assert is_full(answer)

    with_quota(None, 80 * KIB, work)


def test_an_expired_stream_makes_room_for_its_successor() -> None:
    def work(wire: Wire, node: Bench) -> None:
        assert put(wire, A, b"12345678", {"Stream-TTL": "0"}).status == 201
        assert put(wire, A, b"1234567890").status == 201
        assert is_full(put(wire, B))

    with_quota(1, 10, work)
