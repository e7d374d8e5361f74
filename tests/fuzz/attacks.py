"""Hostile input, made from a seed: valid requests, mutated, split and pipelined in many ways."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

ZERO = "0000000000000000_0000000000000000"
METHODS = (
    "GET",
    "HEAD",
    "PUT",
    "POST",
    "DELETE",
    "OPTIONS",
    "PATCH",
    "TRACE",
    "CONNECT",
    "get",
    "FROB",
    "",
    "GE T",
    "PRI",
)
VERSIONS = (
    "HTTP/1.1",
    "HTTP/1.1",
    "HTTP/1.1",
    "HTTP/1.0",
    "HTTP/0.9",
    "HTTP/2.0",
    "HTTP/1.10",
    "HTTP/",
    "RTSP/1.0",
    "",
)
NUMBERS = (
    *("0", "1", "-1", "+1", "00", "0x10", "1e3", "1.5", "4294967296", "9007199254740991", "9007199254740992"),
    *("18446744073709551615", "18446744073709551616", "9" * 30, "9" * 300, "NaN", "Infinity", "", " ", "1 2", "1,2"),
)
VALUES = (
    *NUMBERS,
    *("true", "TRUE", "false", "*", '"', '""', '"x"', 'W/"x"', '"x", "y"', "text/plain", "application/json", "x/y;z"),
    *(
        "now",
        "-1",
        ZERO,
        ZERO + "0",
        "9999999999999999_9999999999999999",
        "a/b",
        "../..",
        "%00",
        "\x00",
        "\x7f",
        "\xff",
    ),
    *("chunked", "gzip, chunked", "identity", "100-continue", "close", "keep-alive", "upgrade", "h2c", "a" * 300),
    *("2030-01-01T00:00:00Z", "2030-02-30T00:00:00Z", "0000-00-00T00:00:00Z", "9999-12-31T23:59:59.999999999-23:59"),
    *("/v1/stream/victim-0", "/v1/stream/", "/v1/stream/__ds", "http://a/v1/stream/victim-0", "a@b", "[::1]:80", "a:b"),
)
HEADERS = (
    *(
        "Host",
        "Content-Length",
        "Transfer-Encoding",
        "Content-Type",
        "Connection",
        "Upgrade",
        "Expect",
        "TE",
        "Trailer",
    ),
    *("If-None-Match", "If-Match", "Last-Event-ID", "Range", "Accept", "Accept-Encoding", "Cookie", "Authorization"),
    *("Stream-TTL", "Stream-Expires-At", "Stream-Closed", "Stream-Seq", "Stream-Incarnation", "Stream-Forked-From"),
    *("Stream-Fork-Offset", "Stream-Fork-Sub-Offset", "Producer-Id", "Producer-Epoch", "Producer-Seq", "X", "", "X Y"),
)
PARAMETERS = ("offset", "live", "cursor", "timeout_ms", "max_bytes", "incarnation", "record", "x", "")
LIVE = ("long-poll", "sse", "", "x", "long-poll", "sse")
BODIES = (
    b"",
    b"x",
    b"[]",
    b"[1]",
    b"{",
    b'{"a":1}',
    b"[" * 500,
    b'"\\ud800"',
    b"NaN",
    b"\xff\xfe",
    bytes(300),
    b"\r\n\r\n",
)
TOKENS = (
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b"\r\n\r\n",
        b"\0",
        b" ",
        b"\t",
        b":",
        b";",
        b"0\r\n\r\n",
        b"HTTP/1.1",
        b"\xff",
        b"\xc3",
        b"%",
    ),
    *(
        b"%00",
        b"%2F..%2F",
        b"Transfer-Encoding: chunked\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 99999999999\r\n",
    ),
    *(
        b"Host: b\r\n",
        b"Connection: close\r\n",
        b"Upgrade: h2c\r\nConnection: upgrade\r\n",
        b"Expect: 100-continue\r\n",
    ),
    *(
        b"5\r\nhello\r\n",
        b"ffffffffffffffff\r\n",
        b"-1\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
    ),
)


@dataclass(frozen=True)
class Attack:
    """What one connection sends, piece by piece, and how it behaves afterwards."""

    pieces: tuple[bytes, ...]
    pauses: bool
    end: str


def make(seed: str) -> Attack:
    """The attack of this seed: always the same."""
    dice = Random(seed)
    data = b"".join(_request(dice) for _ in range(dice.choice((1, 1, 1, 2, 3, 10))))
    if dice.random() < 0.85:
        for _ in range(dice.choice((1, 1, 2, 3, 8))):
            data = dice.choice(MUTATIONS)(dice, data)
    # How it ends: read all answers, leave without reading, leave with a reset, or wait until the server closes.
    end = dice.choices(("read", "leave", "reset", "wait"), (70, 12, 12, 6))[0]
    return Attack(split(dice, data[:300_000]), dice.random() < 0.1, end)


def split(dice: Random, data: bytes) -> tuple[bytes, ...]:
    """Cut input into pieces."""
    count = dice.choice((0, 0, 0, 1, 2, 5, 20))
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(count))
    return tuple(data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if start < end)


# -- Requests ----------------------------------------------------------------------------------------------------------


def _request(dice: Random) -> bytes:
    return dice.choice((_valid, _valid, _valid, _odd))(dice)


def _path(dice: Random) -> str:
    return f"/v1/stream/victim-{dice.randrange(8)}"


def _valid(dice: Random) -> bytes:
    """A valid request."""
    path = _path(dice)
    match dice.randrange(12):
        case 0:
            return _head("PUT", path, ("Content-Type: text/plain", "Stream-TTL: 5", "Content-Length: 3")) + b"abc"
        case 1:
            return _head("PUT", path, ("Content-Type: application/json", "Content-Length: 5")) + b"[1,2]"
        case 2:
            return _head("POST", path, ("Content-Type: text/plain", "Content-Length: 3")) + b"abc"
        case 3:
            lines = ("Content-Type: text/plain", "Transfer-Encoding: chunked", "Trailer: X-Sum")
            return _head("POST", path, lines) + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX-Sum: 1\r\n\r\n"
        case 4:
            producer = (f"Producer-Epoch: {dice.randrange(3)}", f"Producer-Seq: {dice.randrange(5)}", "Producer-Id: p")
            return _head("POST", path, ("Content-Type: text/plain", "Content-Length: 1", *producer)) + b"x"
        case 5:
            return _head("GET", f"{path}?offset={dice.choice(('-1', 'now', ZERO))}")
        case 6:
            return _head("GET", f"{path}?offset=now&live=long-poll&timeout_ms=50&cursor=5")
        case 7:
            return _head("GET", f"{path}?offset=-1&live=sse", ("Accept: text/event-stream",))
        case 8:
            return _head(dice.choice(("HEAD", "OPTIONS")), path)
        case 9:
            return _head("DELETE", path)
        case 10:
            fork = (f"Stream-Forked-From: {_path(dice)}", f"Stream-Fork-Offset: {ZERO}", "Stream-Fork-Sub-Offset: 1")
            return _head("PUT", f"{path}-fork", (*fork, "Stream-TTL: 5"))
        case _:
            return _head("POST", path, ("Stream-Closed: true", "Expect: 100-continue", "Content-Length: 0"))


def _odd(dice: Random) -> bytes:
    """A request with the right shape and any values."""
    query = "&".join(_parameter(dice) for _ in range(dice.randrange(4)))
    target = _path(dice) + (f"?{query}" if query else "")
    lines = [f"{dice.choice(HEADERS)}: {dice.choice(VALUES)}" for _ in range(dice.randrange(8))]
    body = dice.choice(BODIES)
    framing = dice.randrange(4)
    if framing == 0:
        lines.append(f"Content-Length: {len(body)}")
    elif framing == 1:
        lines.append("Transfer-Encoding: chunked")
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
    head = _head(dice.choice(METHODS[:8]), target, lines)
    return head + (body if framing < 3 else b"")


def _parameter(dice: Random) -> str:
    name = dice.choice(PARAMETERS)
    value = dice.choice(LIVE) if name == "live" else dice.choice(VALUES)
    return f"{name}={value.replace(' ', '%20')}"


def _head(method: str, target: str, lines: Sequence[str] = ()) -> bytes:
    text = "".join(f"{line}\r\n" for line in ("Host: localhost", *lines))
    return f"{method} {target} HTTP/1.1\r\n{text}\r\n".encode("latin-1")


# -- Mutations ---------------------------------------------------------------------------------------------------------


def _flip(dice: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 10))):
        if changed:
            changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def _truncate(dice: Random, data: bytes) -> bytes:
    return data[: dice.randrange(len(data) + 1)]


def _cut(dice: Random, data: bytes) -> bytes:
    start = dice.randrange(len(data) + 1)
    return data[:start] + data[start + dice.choice((1, 2, 10, 100)) :]


def _repeat(dice: Random, data: bytes) -> bytes:
    start = dice.randrange(len(data) + 1)
    return data[:start] + data[start : start + dice.choice((1, 5, 50))] * dice.choice((2, 3, 300)) + data[start:]


def _insert(dice: Random, data: bytes) -> bytes:
    at = dice.randrange(len(data) + 1)
    return data[:at] + dice.choice((dice.choice(TOKENS), dice.randbytes(dice.choice((1, 4, 100))))) + data[at:]


def _number(dice: Random, data: bytes) -> bytes:
    places = [at for at, byte in enumerate(data) if 0x30 <= byte <= 0x39]
    if not places:
        return data
    at = dice.choice(places)
    return data[:at] + dice.choice(NUMBERS).encode() + data[at + 1 :]


def _lines(dice: Random, data: bytes) -> bytes:
    lines = data.split(b"\r\n")
    first, second = dice.randrange(len(lines)), dice.randrange(len(lines))
    match dice.randrange(4):
        case 0:
            lines[first], lines[second] = lines[second], lines[first]
        case 1:
            lines.insert(first, lines[second])
        case 2:
            del lines[first]
        case _:
            lines[first:first] = [f"{dice.choice(HEADERS)}: {dice.choice(VALUES)}".encode("latin-1")]
    return dice.choice((b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r")).join(lines)


def _soup(dice: Random, data: bytes) -> bytes:
    soup = "".join(f"{dice.choice(HEADERS)}: {dice.choice(VALUES)}\r\n" for _ in range(dice.choice((3, 30, 200))))
    head, line_end, rest = data.partition(b"\r\n")
    return head + line_end + soup.encode("latin-1") + rest


def _line(dice: Random, data: bytes) -> bytes:
    _, line_end, rest = data.partition(b"\r\n")
    line = f"{dice.choice(METHODS)} {_path(dice)}{dice.choice(('', '?', ' ', chr(0)))} {dice.choice(VERSIONS)}"
    return line.encode("latin-1") + line_end + rest


def _giant(dice: Random, data: bytes) -> bytes:
    at = dice.randrange(len(data) + 1)
    return data[:at] + dice.choice((b"x", b"\r\n", b"0", b" ", b"a: b\r\n", b"/", b"%41")) * 20_000 + data[at:]


def _garbage(dice: Random, data: bytes) -> bytes:
    return dice.randbytes(dice.choice((1, 16, 1000, 70_000))) + dice.choice((b"", data))


MUTATIONS: tuple[Callable[[Random, bytes], bytes], ...] = (
    *(_flip, _flip, _truncate, _cut, _repeat, _insert, _insert, _number, _number, _lines, _lines, _soup, _line),
    *(_giant, _garbage),
)
