"""The NATS protocol: whatever pieces the bytes arrive in, the same messages come out."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.jetstream import wire
from headwater.log.jetstream.wire import Address, Message, Parser, ProtocolBroken, ServerInfo


class Found:
    """Everything that a parser found."""

    def __init__(self) -> None:
        self.all: list[object] = []

    def on_message(self, sid: int, message: Message) -> None:
        self.all.append((sid, message))

    def on_info(self, info: ServerInfo) -> None:
        self.all.append(info)

    def on_ping(self) -> None:
        self.all.append("ping")

    def on_pong(self) -> None:
        self.all.append("pong")

    def on_error(self, reason: str) -> None:
        self.all.append(reason)


def parse(*chunks: bytes) -> list[object]:
    found = Found()
    parser = Parser(found)
    for chunk in chunks:
        parser.feed(chunk)
    return found.all


TEXT = (
    b'INFO {"server_name":"a","version":"2.15.1","jetstream":true,"unknown":[1]}\r\n'
    b"+OK\r\nPING\r\nPONG\r\n"
    b"MSG s.a 7 5\r\nhello\r\n"
    b"MSG s.b 8 r.1 0\r\n\r\n"
    b"HMSG s.c 9 r.2 31 33\r\nNATS/1.0\r\nNats-Sequence: 12\r\n\r\n\r\n\r\n"
    b"MSG s.a 7 11\r\nwith \r\nPING\r\n"
    b"-ERR 'Slow Consumer'\r\n"
)
EXPECTED = [
    ServerInfo("a", "2.15.1", jetstream=True),
    "ping",
    "pong",
    (7, Message(b"s.a", b"", b"", b"hello")),
    (8, Message(b"s.b", b"r.1", b"", b"")),
    (9, Message(b"s.c", b"r.2", b"NATS/1.0\r\nNats-Sequence: 12\r\n\r\n", b"\r\n")),
    (7, Message(b"s.a", b"", b"", b"with \r\nPING")),
    "Slow Consumer",
]


def test_every_command_is_understood() -> None:
    assert parse(TEXT) == EXPECTED


@settings(deadline=None)
@given(st.lists(st.integers(1, len(TEXT)), max_size=20))
def test_it_does_not_matter_where_the_bytes_are_cut(cuts: list[int]) -> None:
    places = sorted({0, *cuts, len(TEXT)})
    assert parse(*(TEXT[a:b] for a, b in pairwise(places))) == EXPECTED


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\n",
        b"MSG s 1\r\n",
        b"MSG s x 5\r\n",
        b"MSG s 1 -5\r\n",
        b"MSG s 1 999999999999\r\n",
        b"HMSG s 1 9 5\r\n",
        b"INFO {\r\n",
        b"x" * (wire.LINE_BYTES_MAX + 1),
    ],
)
def test_anything_else_ends_the_conversation(data: bytes) -> None:
    with pytest.raises(ProtocolBroken):
        parse(data)


def test_headers_and_statuses_are_read() -> None:
    message = Message(b"s", b"", b"NATS/1.0 404 Not Found\r\nA: 1\r\nNats-Num-Pending: 3\r\n\r\n", b"")
    assert message.status == 404
    assert message.header(b"Nats-Num-Pending") == b"3"
    assert message.header(b"Pending") is None
    assert Message(b"s", b"", b"NATS/1.0\r\nA: 1\r\n\r\n", b"").status is None
    assert Message(b"s", b"", b"", b"").status is None


@pytest.mark.parametrize("url", ["http://a", "nats://", "nats://a/path", "nats://a:99999"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"a NATS server|out of range"):
        wire.parse_address(url)


def test_a_login_is_sent_and_is_not_part_of_the_name() -> None:
    address = wire.parse_address("nats://me:p#s?s%2F@h:1")
    assert (address.user, address.password, address.name) == ("me", "p#s?s/", "h:1")
    address = wire.parse_address("nats://me:p%40ss@h:1")
    assert address.name == "h:1"
    assert b'"user":"me"' in wire.connect(address, "n1")
    assert b'"pass":"p@ss"' in wire.connect(address, "n1")
    token = wire.connect(wire.parse_address("nats://token@h"), "n1")
    assert b'"auth_token":"token"' in token and b"user" not in token
    assert b"auth_token" not in wire.connect(Address("h", 1, False, None, None), "n1")
