"""A parser with known heads finds exactly what a parser without them finds."""

import random
from collections.abc import Callable, Iterable

import pytest

from headwater.http.wire import heads
from headwater.http.wire.heads import Head, KnownHeads, is_one_head
from headwater.http.wire.intakes import Intake
from headwater.http.wire.parser import IDLE, RequestParser
from headwater.http.wire.requests import Request
from headwater.http.wire.uploads import Upload
from headwater.protocol.limits import APPEND_BYTES_MAX
from headwater.protocol.refusals import Code

HOST = b"Host: localhost\r\n"
APPEND = b"POST /v1/stream/a HTTP/1.1\r\n" + HOST + b"Content-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"
READ = b"GET /v1/stream/a?offset=-1 HTTP/1.1\r\n" + HOST + b"\r\n"
LAST = b"GET /v1/stream/a HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
OLD = b"GET /v1/stream/a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
CHUNKED = b"POST /v1/stream/a HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
EXPECTING = b"POST /v1/stream/a HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi"
UPGRADING = b"GET /a HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi"
PRODUCING = b"POST /v1/stream/a HTTP/1.1\r\n" + HOST + b"Producer-Seq: 7\r\nContent-Length: 2\r\n\r\nhi"
FOLDED = b"GET /v1/stream/a HTTP/1.1\r\n" + HOST + b"X-Long: a\r\n b\r\n\r\n"
BARE = b"GET /v1/stream/a HTTP/1.1\nHost: localhost\n\n"
LINGERING = b"GET /a HTTP/1.1\r\n" + HOST + b"\n" + READ
BLANK = b"\r\n\r\n"
LIVE = b"GET /v1/stream/live HTTP/1.1\r\n" + HOST + b"\r\n"
TOO_LARGE = b"POST /v1/stream/a HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % (APPEND_BYTES_MAX + 1)
TWICE = b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"
BOTH = b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
CREATE = b"PUT /v1/stream/a HTTP/1.1\r\n" + HOST + b"\r\n"
SNAPSHOT = b"POST /agents/a/snapshot/5 HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\nhi"
HOSTLESS = b"GET /v1/stream/a HTTP/1.1\r\n\r\n"
NOISE = b"\x16\x03\x01\x02"

KNOWN = [APPEND, READ, LIVE]
OTHERS = [
    *(LAST, OLD, CHUNKED, EXPECTING, UPGRADING, PRODUCING, FOLDED, BARE, LINGERING, BLANK, b"\r", b"\n"),
    *(TOO_LARGE, TWICE, BOTH, CREATE, SNAPSHOT, HOSTLESS, NOISE),
]


class Forgetful(KnownHeads):
    """Knows no head, so that the parser reads every one."""

    def __init__(self) -> None:
        super().__init__()
        self.find = _nothing


def _nothing(*_: object) -> None:
    return None


class Sink(Upload):
    """An upload that keeps nothing."""

    def __init__(self) -> None:
        pass

    def write(self, data: bytes) -> None:
        pass


SINK = Sink()


class Listener:
    """Receives what the parser finds, and keeps all of it."""

    def __init__(self, known: KnownHeads) -> None:
        self.heard: list[object] = []
        self.parser = RequestParser(self, known)

    def requested(self, request: Request) -> None:
        self.heard.append(request)
        assert self.parser.stage is IDLE
        if request.path.endswith(b"live"):
            self.parser.refused = True  # As a connection does when a response never ends.

    def plan_body(self, method: bytes, path: bytes) -> tuple[int, Intake | None]:
        return APPEND_BYTES_MAX, SINK if b"/snapshot" in path else None

    def begin_body(self, head: Request, size: int | None, *, expects_continue: bool) -> Intake | None:
        if expects_continue and not self.parser.refused:
            self.heard.append("continue")
        return SINK if b"/snapshot" in head.path else None

    def refuse(self, code: Code, detail: str) -> None:
        self.heard.append((code, detail))


def hear(known: KnownHeads, pieces: Iterable[bytes]) -> tuple[object, ...]:
    """Everything the parser finds in some input, and the state it ends in."""
    listener = Listener(known)
    for piece in pieces:
        if piece and not listener.parser.refused:
            listener.parser.feed(piece)
    # After a refusal the stage means nothing.
    return *listener.heard, listener.parser.refused or listener.parser.stage


@pytest.fixture
def known() -> KnownHeads:
    """Knows every head of this file that can be learned."""
    known = KnownHeads()
    for data in 2 * (*KNOWN, *OTHERS):
        hear(known, [data])
    return known


def heads_in(known: KnownHeads, data: bytes) -> Head | None:
    return known.find(data[: data.find(b"\r\n\r\n") + 4])


@pytest.mark.parametrize("data", KNOWN)
def test_a_head_is_known_once_the_parser_has_accepted_it_twice(data: bytes) -> None:
    known = KnownHeads()
    hear(known, [data])
    assert heads_in(known, data) is None
    hear(known, [data])
    found = heads_in(known, data)
    assert found is not None
    assert found.request.body == b""
    assert found.body_bytes == (5 if data == APPEND else 0)


@pytest.mark.parametrize("data", set(OTHERS) - {FOLDED})
def test_a_head_that_is_more_than_a_request_with_a_length_is_never_known(known: KnownHeads, data: bytes) -> None:
    assert heads_in(known, data) is None


def test_a_known_head_needs_no_parser(known: KnownHeads) -> None:
    listener = Listener(known)
    del listener.parser._native
    listener.parser.feed(APPEND + READ + APPEND)
    assert [heard.body for heard in listener.heard if isinstance(heard, Request)] == [b"hello", b"", b"hello"]


def test_a_head_is_learned_whole_however_its_body_comes() -> None:
    known = KnownHeads()
    hear(known, [APPEND[:-3], APPEND[-3:], APPEND[:-3], APPEND[-3:]])
    assert heads_in(known, APPEND) is not None


def test_heads_are_looked_for_while_a_client_repeats_itself(known: KnownHeads) -> None:
    reader = Listener(known).parser

    def looks_after(data: bytes) -> bool:
        reader.feed(data)
        return reader._recalls

    assert not any(looks_after(b"GET /v1/stream/%d HTTP/1.1\r\n%b\r\n" % (number, HOST)) for number in range(3))
    assert looks_after(APPEND)
    assert not looks_after(PRODUCING)
    assert not looks_after(READ[:5])
    assert looks_after(READ[5:] + READ), "a head in pieces predicts nothing about the next"
    assert not looks_after(LAST)


def test_what_is_known_is_bounded() -> None:
    known = KnownHeads(heads_max=10)
    for number in range(100):
        hear(known, 2 * [b"GET /v1/stream/%d HTTP/1.1\r\n%b\r\n" % (number, HOST)])
        assert len(known._heads) <= 10
        assert len(known._seen_once) <= 10
    assert known._heads
    hear(known, 2 * [b"GET /%b HTTP/1.1\r\n%b\r\n" % (b"x" * heads.HEAD_BYTES_MAX, HOST)])
    assert all(len(raw) <= heads.HEAD_BYTES_MAX for raw in known._heads)


@pytest.mark.parametrize("data", [BARE + READ, LINGERING, BLANK, b"\n" + READ, READ.replace(b"\r\nH", b"\rH")])
def test_where_a_head_ends_is_said_only_when_there_is_no_doubt(data: bytes) -> None:
    assert is_one_head(READ)
    assert not is_one_head(data)


@pytest.mark.parametrize("other", [b"", LIVE, *OTHERS])
@pytest.mark.parametrize("order", [lambda a, b: a + b, lambda a, b: b + a, lambda a, b: a + b + a])
def test_split_anywhere_the_same_is_said(
    known: KnownHeads, other: bytes, order: Callable[[bytes, bytes], bytes]
) -> None:
    data = order(APPEND + READ, other)
    for at in range(len(data) + 1):
        pieces = [data[:at], data[at:]]
        assert hear(known, pieces) == hear(Forgetful(), pieces), pieces
    singly = [data[at : at + 1] for at in range(len(data))]
    assert hear(known, singly) == hear(Forgetful(), singly)


def test_nothing_is_read_behind_a_last_request(known: KnownHeads) -> None:
    pieces = [PRODUCING, READ + LAST, READ]
    assert hear(known, pieces) == hear(Forgetful(), pieces)


@pytest.mark.parametrize("seed", range(300))
def test_cut_up_mixed_and_damaged_the_same_is_said(known: KnownHeads, seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray().join(chance.choices([*KNOWN, *KNOWN, *OTHERS], k=chance.randint(1, 12)))
    for _ in range(chance.choice([0, 0, 1, 3])):
        at = chance.randint(0, len(data))
        data[at : at + chance.randint(0, 2)] = chance.choice(
            [b"", b"\r", b"\n", b" ", b":", b"\r\n", b"\0", b"x", b"5"]
        )
    cuts = sorted(chance.choices(range(len(data) + 1), k=chance.randint(0, 6)))
    pieces = [bytes(data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    # Once with the known heads, once with those learned from this input.
    expected = hear(Forgetful(), pieces)
    assert hear(known, pieces) == expected, pieces
    assert hear(known, pieces) == expected, pieces
