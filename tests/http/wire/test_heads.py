"""A parser that takes plain heads itself finds exactly what the native parser finds, in Python and compiled.

TESTS_HEADS sets how many mutated heads are compared, and TESTS_HEADS_SEED repeats a run: the seed is printed.
"""

import os
import random
import secrets
import time
from collections.abc import Callable, Iterable

import pytest
from msgspec.structs import astuple

from headwater.compiled import compiled
from headwater.http.wire import heads as wire_heads
from headwater.http.wire.browsers import Hosts
from headwater.http.wire.heads import FORM_AFTER, HEAD_BYTES_MAX, LINES_MAX, Head, Heads, PlainHeads
from headwater.http.wire.intakes import SMALL_BODY_BYTES, Intake
from headwater.http.wire.parser import RequestParser
from headwater.http.wire.requests import Request
from headwater.http.wire.stages import IDLE
from headwater.http.wire.uploads import Upload
from headwater.protocol import headers
from headwater.protocol.limits import APPEND_BYTES_MAX
from headwater.protocol.refusals import Code

from ...fuzz import attacks

HEADS = int(os.environ.get("TESTS_HEADS", "100000"))
SEED = os.environ.get("TESTS_HEADS_SEED") or secrets.token_hex(4)
SECONDS_MAX = 20.0
"""How long mutated heads are compared, unless their number was asked for."""

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

PERSISTENT = b"HEAD /v1/stream/a HTTP/1.1\r\n" + HOST + b"Connection: keep-alive\r\nX-Mine: 1\r\n\r\n"
LINES_IN_BODY = b"POST /v1/stream/a HTTP/1.1\r\n" + HOST + b"Content-Length: 6\r\n\r\na\r\n\r\nb"

PLAIN = [APPEND, READ, LIVE, PRODUCING, CREATE, PERSISTENT, LINES_IN_BODY]
OTHERS = [
    *(LAST, OLD, CHUNKED, EXPECTING, UPGRADING, FOLDED, BARE, LINGERING, BLANK, b"\r", b"\n"),
    *(TOO_LARGE, TWICE, BOTH, HOSTLESS, NOISE),
]
HOSTS = Hosts("")
REAL_LINES = [
    *(b"Content-Type: application/json", b"content-type: text/plain", b"Accept: */*", b"User-Agent: client/1 (x; y)"),
    *(b"Connection: keep-alive", b"connection: Keep-Alive", b"Connection: close", b"Expect: 100-continue"),
    *(b"Producer-Id: w", b"producer-epoch: 0", b"Producer-Seq: 17", b"Stream-Closed: true", b'If-Match: "x"'),
    *(b"Authorization: Bearer hw_a_b", b"Cookie: a=b; c=d", b"X-Empty:", b"X-Blank: ", b"X-Tab: a\tb", b"X-No-Blank:a"),
    *(b"Transfer-Encoding: chunked", b"TE: trailers", b"Upgrade: h2c", b"X-Latin: \xe9", b"Sec-Fetch-Mode: cors"),
]
MUTATIONS = [one for one in attacks.MUTATIONS if one.__name__ not in ("_giant", "_soup")]


_scanning = compiled("headwater.http.wire._scanning")


def scanner(hosts: Hosts | None = None) -> Heads:
    """Parses plain heads as a compiled server does."""
    made: Heads = _scanning.Scanner(PlainHeads(hosts))
    return made


@pytest.fixture(params=["in Python", "compiled"])
def make(request: pytest.FixtureRequest) -> Callable[..., Heads]:
    """What parses plain heads."""
    if request.param == "in Python":
        return PlainHeads
    if _scanning is None:
        pytest.skip("nothing was compiled here")
    return scanner


class Strict:
    """Takes no head for plain, so that the native parser reads every one."""

    def parse(self, data: bytes, at: int, form: object) -> None:
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

    def __init__(self, heads: Heads) -> None:
        self.heard: list[object] = []
        self.plain = 0
        self.parser = RequestParser(self, heads, HOSTS)

    def requested(self, request: Request) -> None:
        self.heard.append(request)
        assert self.parser.stage is IDLE
        if request.path.endswith(b"live"):
            self.parser.refused = True  # As a connection does when a response never ends.

    def take(self, request: Request) -> bool:
        if b"/snapshot" in request.path:
            return False
        self.plain += 1
        self.requested(request)
        return True

    def plan_body(self, method: bytes, path: bytes) -> tuple[int, Intake | None]:
        return APPEND_BYTES_MAX, SINK if b"/snapshot" in path else None

    def begin_body(self, head: Request, size: int | None, *, expects_continue: bool) -> Intake | None:
        if expects_continue and not self.parser.refused:
            self.heard.append("continue")
        return SINK if b"/snapshot" in head.path else None

    def refuse(self, code: Code, detail: str) -> None:
        self.heard.append((code, detail))


def hear(heads: Heads, pieces: Iterable[bytes]) -> tuple[object, ...]:
    """Everything the parser finds in some input, and the state it ends in."""
    listener = Listener(heads)
    for piece in pieces:
        if piece and not listener.parser.refused:
            listener.parser.feed(piece)
    # After a refusal the stage means nothing.
    return *listener.heard, listener.parser.refused or listener.parser.stage


def parse(data: bytes, heads: Heads | None = None) -> Head | None:
    """What is found in the head at the beginning of some input, whether its form is known or not."""
    if heads is None:
        found = parse(data, PlainHeads(HOSTS))
        if _scanning is not None:
            again = parse(data, scanner(HOSTS))
            assert (again and astuple(again)[:-1]) == (found and astuple(found)[:-1])
        return found
    found = heads.parse(data, 0, None)
    for _ in range(FORM_AFTER):
        again = heads.parse(data, 0, None if found is None else found.form)
        assert (again and astuple(again)[:-1]) == (found and astuple(found)[:-1])
        found = again
    return found


@pytest.fixture
def plain(make: Callable[..., Heads]) -> Heads:
    """Knows the form of every plain head of this file."""
    plain = make(HOSTS)
    for data in (*PLAIN, *OTHERS):
        for _ in range(FORM_AFTER):
            hear(plain, [data])
    return plain


@pytest.mark.parametrize("data", PLAIN)
def test_a_plain_head_needs_no_native_parser(data: bytes, make: Callable[..., Heads]) -> None:
    listener = Listener(make(HOSTS))
    del listener.parser._native
    listener.parser.feed(data)
    assert [type(heard) for heard in listener.heard] == [Request]
    expected = Listener(Strict())
    expected.parser.feed(data)
    assert listener.heard == expected.heard


def test_a_pipeline_of_plain_requests_needs_no_native_parser(make: Callable[..., Heads]) -> None:
    listener = Listener(make(HOSTS))
    listener.parser.feed(APPEND + PRODUCING + b"")
    listener.parser.feed(b"".join((APPEND, LINES_IN_BODY, READ, APPEND)))
    found = [heard.body for heard in listener.heard if isinstance(heard, Request)]
    assert found == [b"hello", b"hi", b"hello", b"a\r\n\r\nb", b"", b"hello"]


def test_a_body_that_looks_like_a_request_is_a_body(make: Callable[..., Heads]) -> None:
    inner = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    data = b"POST /v1/stream/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(inner), inner)
    for input_data in (data, data + READ, data + data):
        heard = hear(make(HOSTS), [input_data])
        assert heard == hear(Strict(), [input_data])
        assert isinstance(heard[0], Request)
        assert heard[0].body == inner


@pytest.mark.parametrize("data", OTHERS)
def test_whatever_is_not_plain_is_left_to_the_native_parser(data: bytes) -> None:
    assert parse(data) is None


@pytest.mark.parametrize(
    "line",
    [
        *(b"X:y", b"X : y", b" X: y", b"X:  y", b"X: y ", b"X: ", b"X", b": y", b"X: \ty", b"X: y\x7f", b"X: \xe9"),
        *(
            b"Host: other",
            b"Content-Length: 1",
            b"Content-Length: +5",
            b"Content-Length: 0x5",
            b"Content-Length: 123456",
        ),
        *(b"Connection: close", b"Connection: keep-alive, x", b"Connection: Upgrade", b"Proxy-Connection: keep-alive"),
        *(b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"Upgrade: h2c", b"X(Y): z", b"X\x00: y", b"X: \ry"),
    ],
)
def test_a_line_in_doubt_is_left_to_the_native_parser(line: bytes) -> None:
    head = b"POST /v1/stream/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
    assert parse(head + b"X-Plain: y\r\n\r\n") is not None
    assert parse(head + line + b"\r\n\r\n") is None


@pytest.mark.parametrize(
    "line",
    [
        *(b"GET / HTTP/1.0", b"GET  / HTTP/1.1", b"GET /  HTTP/1.1", b"GET / HTTP/1.1 ", b" GET / HTTP/1.1", b"GET /"),
        *(b"get / HTTP/1.1", b"PATCH / HTTP/1.1", b"OPTIONS / HTTP/1.1", b"CONNECT a:1 HTTP/1.1", b"GET * HTTP/1.1"),
        *(b"GET http://localhost/ HTTP/1.1", b"GET /#a HTTP/1.1", b"GET /?a#b HTTP/1.1", b"GET /\x80 HTTP/1.1", b""),
    ],
)
def test_a_request_line_in_doubt_is_left_to_the_native_parser(line: bytes) -> None:
    assert parse(line + b"\r\nHost: localhost\r\n\r\n") is None


@pytest.mark.parametrize("host", [b"example.com", b"a b", b"a/b", b"a@b"])
def test_only_an_admitted_host_is_plain(host: bytes, make: Callable[..., Heads]) -> None:
    data = b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host
    assert parse(data) is None
    assert (parse(data, make()) is None) == (host != b"example.com"), "without names, any valid one is"


def test_a_plain_head_is_small() -> None:
    head = b"GET /%b HTTP/1.1\r\nHost: localhost\r\n"
    assert parse(head % (b"x" * 2000) + b"\r\n") is not None
    assert parse(head % (b"x" * HEAD_BYTES_MAX) + b"\r\n") is None
    lines = b"".join(b"X-%d: y\r\n" % number for number in range(LINES_MAX))
    assert parse(head % b"x" + lines + b"\r\n") is None


def test_a_large_head_is_not_plain_although_others_like_it_were(make: Callable[..., Heads]) -> None:
    heads, head = make(HOSTS), b"GET /%b HTTP/1.1\r\nHost: localhost\r\n\r\n"
    known = parse(head % b"x", heads)
    assert known is not None
    edge = HEAD_BYTES_MAX - len(head % b"")
    assert heads.parse(head % (b"x" * edge), 0, known.form) is not None
    assert heads.parse(head % (b"x" * (edge + 1)), 0, known.form) is None


def test_a_large_body_is_left_to_the_native_parser() -> None:
    head = b"POST /v1/stream/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    assert parse(head % SMALL_BODY_BYTES) is not None
    assert parse(head % (SMALL_BODY_BYTES + 1)) is None


def test_an_order_of_names_that_comes_often_gets_a_form() -> None:
    heads, forms = PlainHeads(), []
    for number in range(FORM_AFTER + 1):
        found = heads.parse(b"POST /a%d HTTP/1.1\r\nHost: a\r\nX: %d\r\n\r\n" % (number, number), 0, None)
        assert found is not None
        forms.append(found.form)
    assert forms[: FORM_AFTER - 1] == [None] * (FORM_AFTER - 1)
    form = forms[-1]
    assert form is forms[-2]
    assert form is not None
    assert form.keys == (b"host", b"x")
    again = heads.parse(b"--GET /?q HTTP/1.1\r\nHost: a\r\nX: y z\r\n\r\nbody", 2, form)
    assert again == Head(b"GET", b"/", b"q", {b"host": b"a", b"x": b"y z"}, 39, 0, form)


def test_a_head_of_another_form_is_parsed_all_the_same(make: Callable[..., Heads]) -> None:
    heads = make()
    known = parse(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", heads)
    assert known is not None
    assert known.form is not None
    for data in (b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n", b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"):
        found = heads.parse(data, 0, known.form)
        assert found is not None
        assert found.headers[b"host"] == b"a"


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_heads = PlainHeads()
    monkeypatch.setattr(wire_heads, "FORMS_MAX", 3)
    monkeypatch.setattr(wire_heads, "ORDERS_MAX", 20)
    monkeypatch.setattr(wire_heads, "HOSTS_MAX", 5)
    monkeypatch.setattr(wire_heads, "FORGET_AFTER", 90)
    compiled = set()
    for number in range(40):
        for _ in range(FORM_AFTER):
            data = b"GET / HTTP/1.1\r\nHost: h%d\r\nX-%d: y\r\n\r\n" % (number, number)
            found = plain_heads.parse(data, 0, None)
            assert found is not None
            compiled.add(found.form)
            assert len(plain_heads._forms) <= 3
            assert len(plain_heads._orders) <= 20
            assert 0 < len(plain_heads._hosts) <= 5
    assert 6 <= len(compiled) <= 14, "other forms take the place of old ones now and then"
    assert plain_heads.parse(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % (b"h" * 600), 0, None) is not None
    assert all(len(host) < 600 for host in plain_heads._hosts)


@pytest.mark.skipif(_scanning is None, reason="nothing was compiled here")
def test_a_compiled_scanner_knows_a_bounded_number_of_orders() -> None:
    heads = scanner()
    for number in range(3 * wire_heads.ORDERS_MAX):
        found = heads.parse(b"GET / HTTP/1.1\r\nHost: h%d\r\nX-%d: y\r\n\r\n" % (number, number), 0, None)
        assert found is not None
        assert found.headers == {b"host": b"h%d" % number, b"x-%d" % number: b"y"}
        assert heads.orders <= wire_heads.ORDERS_MAX  # type: ignore[attr-defined]


@pytest.mark.skipif(_scanning is None, reason="nothing was compiled here")
@pytest.mark.parametrize("lines", [[b"X-%d: y" % number for number in range(40)], [b"X" * 600 + b": y"]])
def test_a_connection_keeps_no_large_order(lines: list[bytes]) -> None:
    heads = scanner()
    found = heads.parse(b"GET / HTTP/1.1\r\nHost: a\r\n%b\r\n\r\n" % b"\r\n".join(lines), 0, None)
    assert found is not None
    assert found.form is None
    assert heads.orders == 0  # type: ignore[attr-defined]


def test_no_value_is_kept() -> None:
    heads = PlainHeads()
    assert parse(b"POST /a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\n\r\n", heads) is not None
    assert not any(b"secret" in part for names in (*heads._forms, *heads._orders) for part in names)


@pytest.mark.parametrize("other", [b"", LIVE, *OTHERS])
@pytest.mark.parametrize("order", [lambda a, b: a + b, lambda a, b: b + a, lambda a, b: a + b + a])
def test_split_anywhere_the_same_is_said(plain: Heads, other: bytes, order: Callable[[bytes, bytes], bytes]) -> None:
    data = order(APPEND + READ, other)
    for at in range(len(data) + 1):
        pieces = [data[:at], data[at:]]
        assert hear(plain, pieces) == hear(Strict(), pieces), pieces
    singly = [data[at : at + 1] for at in range(len(data))]
    assert hear(plain, singly) == hear(Strict(), singly)


def test_nothing_is_read_behind_a_last_request(plain: Heads) -> None:
    pieces = [PRODUCING, READ + LAST, READ]
    assert hear(plain, pieces) == hear(Strict(), pieces)


@pytest.mark.parametrize("seed", range(300))
def test_cut_up_mixed_and_damaged_the_same_is_said(plain: Heads, seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray().join(chance.choices([*PLAIN, *PLAIN, *OTHERS], k=chance.randint(1, 12)))
    for _ in range(chance.choice([0, 0, 1, 3])):
        at = chance.randint(0, len(data))
        data[at : at + chance.randint(0, 2)] = chance.choice(
            [b"", b"\r", b"\n", b" ", b":", b"\r\n", b"\0", b"x", b"5"]
        )
    cuts = sorted(chance.choices(range(len(data) + 1), k=chance.randint(0, 6)))
    pieces = [bytes(data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    # Once with the forms that are known, once with those of this input.
    expected = hear(Strict(), pieces)
    assert hear(plain, pieces) == expected, pieces
    assert hear(plain, pieces) == expected, pieces


@pytest.mark.parametrize("name", [header.name for header in headers.TABLE])
@pytest.mark.parametrize("value", ["x", "script", "0", "true", "chunked", "close", "keep-alive", "h2c", "100-continue"])
def test_every_header_of_the_protocol_is_read_as_the_native_parser_reads_it(
    name: str, value: str, make: Callable[..., Heads]
) -> None:
    for method in (b"GET", b"POST"):
        data = b"%b /v1/stream/a HTTP/1.1\r\nHost: localhost\r\n%b: %b\r\n\r\n" % (
            method,
            name.encode(),
            value.encode(),
        )
        heads = make(HOSTS)
        for _ in range(FORM_AFTER + 1):
            assert hear(heads, [data, READ]) == hear(Strict(), [data, READ])


def real_request(dice: random.Random) -> bytes:
    """A request as clients send them: lines in any order, names in any case, and a body of any length."""
    method = dice.choice((b"GET", b"POST", b"POST", b"PUT", b"HEAD", b"DELETE"))
    body = dice.choice((b"", b'{"n":1}', b"a\r\nb", dice.randbytes(9))) if method in (b"POST", b"PUT") else b""
    lines = [dice.choice((b"Host: localhost", b"host: 127.0.0.1:4437", b"HOST: [::1]"))]
    if body or dice.random() < 0.2:
        lines.append(dice.choice((b"Content-Length: %d", b"content-length: %d", b"Content-Length: 0%d")) % len(body))
    if dice.random() < 0.5:
        lines += dice.sample(REAL_LINES, dice.randrange(6))
        dice.shuffle(lines)
    else:
        lines += [REAL_LINES[0], *REAL_LINES[2:5], *REAL_LINES[8:11]]
    target = b"/v1/stream/s%d" % dice.randrange(99) + dice.choice((b"", b"", b"?offset=-1", b"?a=b&offset=now%20"))
    return b"%b %b HTTP/1.1\r\n%b\r\n\r\n%b" % (method, target, b"\r\n".join(lines), body)


def test_mutated_heads_are_read_as_the_native_parser_reads_them(make: Callable[..., Heads]) -> None:
    dice, plain, left = random.Random(SEED), make(HOSTS), 0
    forms: tuple[object, object] = None, None
    until = time.monotonic() + (SECONDS_MAX if "TESTS_HEADS" not in os.environ else 1e9)
    for number in range(HEADS):
        data = b"".join(real_request(dice) for _ in range(dice.choice((1, 1, 1, 2))))
        for _ in range(dice.choice((0, 1, 1, 2, 3))):
            data = dice.choice(MUTATIONS)(dice, data)
        pieces = [data] if dice.random() < 0.8 else list(attacks.split(dice, data))
        listener = Listener(plain)
        listener.parser.read_form, listener.parser.write_form = forms
        for piece in pieces:
            if piece and not listener.parser.refused:
                listener.parser.feed(piece)
        if dice.random() < 0.1:
            # As if the connection went on: its heads may still have the form of the last one.
            forms = listener.parser.read_form, listener.parser.write_form
        found = (*listener.heard, listener.parser.refused or listener.parser.stage)
        assert found == hear(Strict(), pieces), f"seed {SEED}, head {number}: {pieces}"
        left += not listener.plain
        if time.monotonic() > until:
            break
    assert 0 < left < number, "some are plain, and some are left to the native parser"
