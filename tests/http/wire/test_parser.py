"""However its input is cut, the parser finds the same requests, each as if it had come alone."""

import random

import pytest

from headwater.http.wire.heads import PlainHeads
from headwater.http.wire.intakes import Intake
from headwater.http.wire.parser import FRAMING_FACTOR_MAX, RequestParser
from headwater.http.wire.requests import Request
from headwater.http.wire.stages import IDLE
from headwater.protocol.limits import APPEND_BYTES_MAX, HEADERS_BYTES_MAX, HEADERS_MAX, URI_BYTES_MAX
from headwater.protocol.refusals import Code

HOST = b"Host: localhost\r\n"
READ_BYTES = 256_000
"""How much a connection receives at a time."""


class Owner:
    """Keeps what the parser finds; after `room` requests it is full."""

    def __init__(self, plain: PlainHeads, room: int = 1 << 30) -> None:
        self.parser = RequestParser(self, plain)
        self.room = room
        self.found: list[Request] = []
        self.refusals: list[tuple[Code, str]] = []

    def feed(self, data: bytes) -> None:
        """Feed the parser in as many turns as it takes, until it waits for more input or for room."""
        self.parser.feed(data)
        while self.parser.rest and not self.parser.full:
            self.parser.feed(b"")

    def requested(self, request: Request) -> None:
        assert self.parser.stage is IDLE
        self.found.append(request)
        self.parser.full = len(self.found) >= self.room

    def take(self, request: Request) -> bool:
        self.requested(request)
        return True

    def plan_body(self, method: bytes, path: bytes) -> tuple[int, Intake | None]:
        return APPEND_BYTES_MAX, None

    def begin_body(self, head: Request, size: int | None, *, expects_continue: bool) -> Intake | None:
        return None

    def refuse(self, code: Code, detail: str) -> None:
        self.refusals.append((code, detail))


def chunked(chance: random.Random, body: bytes) -> bytes:
    """A body in chunks of any size, some with an extension, and sometimes with trailers."""
    parts, at = [], 0
    while at < len(body):
        part = body[at : at + chance.choice([1, 90, 900, 20_000, 300_000])]
        extension = b";x=%b" % (b"y" * chance.randint(0, 9)) if chance.random() < 0.1 else b""
        parts.append(b"%x%b\r\n%b\r\n" % (len(part), extension, part))
        at += len(part)
    trailer = b"X-Trailer: %b\r\n" % (b"t" * chance.randint(1, 20_000)) if chance.random() < 0.3 else b""
    return b"".join(parts) + b"0\r\n" + trailer + b"\r\n"


def valid_request(chance: random.Random) -> bytes:
    """One request, of a kind that repeats or of one that does not, with a body that may look like requests."""
    match chance.randrange(8):
        case 0 | 1:
            return b"GET /v1/stream/a?offset=-1 HTTP/1.1\r\n" + HOST + b"\r\n"
        case 2:
            return b"POST /v1/stream/a HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\nhello"
        case 3:
            target = b"/v1/stream/" + b"x" * (URI_BYTES_MAX - 11)
            fields = [b"X-%d: %b\r\n" % (number, b"v" * 320) for number in range(HEADERS_MAX - 1)]
            assert sum(map(len, fields)) < HEADERS_BYTES_MAX
            return b"GET %b HTTP/1.1\r\n%b%b\r\n" % (target, HOST, b"".join(fields))
        case 4:
            offer = b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n"
            return b"POST /v1/stream/a HTTP/1.1\r\n" + HOST + offer + b"\r\n\r\n\n"
    beginning = b"\r\n" * chance.choice([0, 0, 3])
    body = chance.choice([b"x", b"\r\n\r\n", b"\n", b"0\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n"])
    body *= chance.choice([1, 9, 9000])
    if chance.random() < 0.5:
        sized = b"Content-Length: %d\r\nProducer-Seq: %d\r\n\r\n" % (len(body), chance.randint(0, 99))
        return beginning + b"POST /v1/stream/a HTTP/1.1\r\n" + HOST + sized + body
    framing = b"Transfer-Encoding: chunked\r\n\r\n"
    return beginning + b"POST /v1/stream/a HTTP/1.1\r\n" + HOST + framing + chunked(chance, body)


def alone(data: bytes) -> list[Request]:
    owner = Owner(PlainHeads())
    owner.feed(data)
    assert not owner.refusals, owner.refusals
    assert len(owner.found) == 1
    return owner.found


def cut(chance: random.Random, data: bytes) -> list[bytes]:
    cuts = sorted(chance.choices(range(len(data) + 1), k=chance.choice([0, 1, 5, 50])))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return [piece[at : at + READ_BYTES] for piece in pieces for at in range(0, len(piece), READ_BYTES)]


@pytest.mark.parametrize("seed", range(100))
def test_a_pipeline_of_valid_requests_is_read_as_if_they_came_one_by_one(seed: int) -> None:
    chance = random.Random(seed)
    requests = [valid_request(chance) for _ in range(chance.randint(1, 30))]
    expected = [found for data in requests for found in alone(data)]
    plain = PlainHeads()
    for _ in range(2):  # The second time, some lines are known.
        owner = Owner(plain)
        for piece in cut(chance, b"".join(requests)):
            owner.feed(piece)
        assert owner.refusals == []
        assert owner.found == expected
        assert owner.parser.stage is IDLE


@pytest.mark.parametrize("seed", range(50))
def test_no_request_is_read_while_its_owner_is_full(seed: int) -> None:
    chance = random.Random(seed)
    requests = [valid_request(chance) for _ in range(chance.randint(1, 30))]
    expected = [found for data in requests for found in alone(data)]
    owner = Owner(PlainHeads(), room=1)
    for piece in cut(chance, b"".join(requests)):
        owner.feed(piece)
        while owner.parser.full:
            assert len(owner.found) == owner.room
            owner.room += chance.randint(1, 3)
            owner.parser.full = False
            owner.feed(b"")
    assert owner.refusals == []
    assert owner.found == expected
    assert owner.parser.rest == b""


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_body_of_the_largest_size_may_end_anywhere_in_the_input(framing: str) -> None:
    chance = random.Random(0)
    body = b"\r\n\r\nbody" * (APPEND_BYTES_MAX // 8)
    head = b"POST /v1/stream/a HTTP/1.1\r\n" + HOST
    if framing == "length":
        large = head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    else:
        large = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(chance, body)
    owner = Owner(PlainHeads())
    for piece in cut(chance, 2 * large):
        owner.feed(piece)
    assert owner.refusals == []
    assert [found.body == body for found in owner.found] == [True, True]


def test_a_request_is_charged_with_its_own_framing_only() -> None:
    """The framing of one body is as large as allowed, and so is that of the next, which begins in the same piece."""
    head = b"POST /v1/stream/a HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    framing = HEADERS_BYTES_MAX + FRAMING_FACTOR_MAX - 100
    costly = head + b"1;%b\r\nx\r\n0\r\n\r\n" % (b"e" * framing)
    owner = Owner(PlainHeads())
    pipeline = 5 * costly
    for at in range(0, len(pipeline), 40_000):
        owner.feed(pipeline[at : at + 40_000])
    assert owner.refusals == []
    assert [found.body for found in owner.found] == [b"x"] * 5
    owner.feed(head + b"1;" + b"e" * (framing + 200))
    assert [code for code, _ in owner.refusals] == [Code.BAD_REQUEST]
