"""Requests as the sources make them."""

from itertools import islice

from headwater.load.records import record
from headwater.load.sources import Appends, Broadcast, Creations, Mixture, Page, Reads, Rotation, Source
from headwater.load.targets import Target

LOCAL = Target("127.0.0.1", 80)


def requests(source: Source) -> list[bytes]:
    """All requests of a source, or the first hundred."""
    return list(islice(iter(source.next, b""), 100))


def test_appends_are_the_bytes_that_wrk_sends() -> None:
    source = Appends(LOCAL, "/v1/stream/bench-x/s", range(2), worker=3)
    head = b"Host: localhost\r\nContent-Type: application/octet-stream\r\nContent-Length: 100\r\n\r\n"
    assert [source.next() for _ in range(3)] == [
        b"POST /v1/stream/bench-x/s0000000 HTTP/1.1\r\n" + head + b"003-0000000000-" + b"." * 84 + b"\n",
        b"POST /v1/stream/bench-x/s0000001 HTTP/1.1\r\n" + head + b"003-0000000001-" + b"." * 84 + b"\n",
        b"POST /v1/stream/bench-x/s0000000 HTTP/1.1\r\n" + head + b"003-0000000002-" + b"." * 84 + b"\n",
    ]


def test_appends_of_several_writers_share_neither_streams_nor_numbers() -> None:
    writers = [Appends(LOCAL, "/s", range(first, 5, 2), 0, first, 2, 20) for first in range(2)]
    sent = [request.split() for writer in writers for request in requests(writer)]
    assert {line[1] for line in sent[:100]} == {b"/s0000000", b"/s0000002", b"/s0000004"}
    assert {line[1] for line in sent[100:]} == {b"/s0000001", b"/s0000003"}
    assert len({line[-1] for line in sent}) == 200


def test_requests_carry_the_headers_and_the_prefix_of_the_target() -> None:
    target = Target.of_url("http://host.example:81/v1/stream", {"Authorization": "Bearer 1"})
    head = b"Host: host.example:81\r\nAuthorization: Bearer 1\r\n"
    assert Appends(target, "/s", range(1), record_bytes=20).next() == (
        b"POST /v1/stream/s0000000 HTTP/1.1\r\n" + head + b"Content-Type: application/octet-stream\r\n"
        b"Content-Length: 20\r\n\r\n" + record(0, 0, 20)
    )
    assert Creations(target, "/s", range(1)).next().startswith(b"PUT /v1/stream/s0000000 HTTP/1.1\r\n" + head)


def test_a_rotation_expects_the_body_of_each_page_and_completes_with_the_last() -> None:
    rotation = Rotation([Page(b"GET 1", b"a"), Page(b"GET 2", b"b"), Page(b"GET 3", b"c")])
    steps = [(rotation.next(), rotation.expected, rotation.is_partial) for _ in range(4)]
    assert steps == [(b"GET 1", b"a", True), (b"GET 2", b"b", True), (b"GET 3", b"c", False), (b"GET 1", b"a", True)]
    single = Rotation([Page(b"GET 1", b"a")])
    assert [(single.next(), single.is_partial) for _ in range(2)] == [(b"GET 1", False)] * 2


def test_sources_with_an_end_stay_empty_after_it() -> None:
    for source, count in (
        (Reads(b"GET", left=2), 2),
        (Creations(LOCAL, "/s", range(3)), 3),
        (Broadcast(LOCAL, "/s", 4, 40), 4),
    ):
        assert len(requests(source)) == count
        assert source.next() == b""


def test_a_mixture_reads_the_stream_that_it_wrote_last() -> None:
    sent = requests(Mixture(Appends(LOCAL, "/s", range(3))))
    assert [request.split()[0] for request in sent[:5]] == [b"POST"] * 4 + [b"GET"]
    assert sent[4].startswith(b"GET /s0000000?offset=-1 ")
    assert sent[9].startswith(b"GET /s0000001?offset=-1 ")
