"""Pipelines that a proxy and a server might cut into requests in different ways, made from a seed.

Each request has a number of its own in `X-Request-Id`, which the server repeats in its answer. A request inside of a
body is a smuggled one: it has a number too, so that its answer is recognised wherever it comes out.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from ..fuzz.attacks import MUTATIONS

PAGE, SINK = "/v1/stream/mine/page", "/v1/stream/mine/sink"
HOST = "Host: localhost"
ENCODINGS = (
    *("Transfer-Encoding: chunked", "Transfer-Encoding : chunked", "Transfer-Encoding: xchunked"),
    *(
        "Transfer-Encoding:\tchunked",
        "Transfer-Encoding:chunked",
        "transfer-encoding: Chunked",
        " Transfer-Encoding: chunked",
    ),
    *("Transfer-Encoding: chunked\r\nTransfer-Encoding: x", "Transfer-Encoding: x\r\nTransfer-Encoding: chunked"),
    *("X: x\nTransfer-Encoding: chunked", "X: x\rTransfer-Encoding: chunked", "Transfer-Encoding\n: chunked"),
    *("Transfer-Encoding: chunked, identity", "Transfer-Encoding: identity, chunked", "Transfer-Encoding: identity"),
    *("Transfer-Encoding: \x0bchunked", 'Transfer-Encoding: "chunked"', "Transfer-Encoding:\r\n chunked"),
    *("Transfer-Encoding: chunked\x00", "Transfer-Encoding: ch\xfcnked", "Transfer_Encoding: chunked", ""),
)
LENGTHS = (
    *(
        "Content-Length: {}",
        "Content-Length:{}",
        "Content-Length: 0\r\nContent-Length: {}",
        "Content-Length: {}\r\nContent-Length: 0",
    ),
    *(
        "Content-Length: {0}, {0}",
        "Content-Length: 0, {}",
        "Content-Length: +{}",
        "Content-Length: 0{}",
        "Content-Length: {}.0",
    ),
    *(
        "Content-Length : {}",
        " Content-Length: {}",
        "Content-Length:\r\n {}",
        "X: x\nContent-Length: {}",
        "Content_Length: {}",
    ),
    *("Content-Length: \x0b{}", "Content-Length: {}\x00", "Content-Length: 4", ""),
)
CHUNKS = (
    *(
        "{:x}\r\n",
        "{:X}\r\n",
        "0{:x}\r\n",
        "{:x} \r\n",
        " {:x}\r\n",
        "{:x};a=b\r\n",
        '{:x};a="\r\n"\r\n',
        "{:x};\n\r\n",
        "0x{:x}\r\n",
    ),
    *(
        "{:x}\n",
        "{:x}\r",
        "{:x}\r\r\n",
        "-{:x}\r\n",
        "{:x}_0\r\n",
        "10000000000000000{:x}\r\n",
        "{:x};" + "a" * 5_000 + "\r\n",
    ),
)
ENDS = (
    b"0\r\n\r\n",
    b"0\r\n\r\n",
    b"0\n\n",
    b"00\r\n\r\n",
    b"0;x=y\r\n\r\n",
    b"0\r\nContent-Length: 3\r\n\r\n",
    b"0\r\nX: y\r\n\r\n",
    b"0\r\n",
)
VERSIONS = ("HTTP/1.1",) * 6 + ("HTTP/1.0", "HTTP/1.2")
MORE = (
    *(
        "Connection: keep-alive",
        "Connection: close, Content-Length",
        "Connection: Transfer-Encoding",
        "Expect: 100-continue",
    ),
    *(
        "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings",
        "Upgrade: websocket\r\nConnection: Upgrade",
        "TE: trailers",
    ),
    *(
        "X-Bare: a\rb",
        "X-Null: a\x00b",
        "X-Folded: a\r\n b",
        "X : y",
        "X-Forwarded-For: 192.0.2.1",
        "Content-Encoding: gzip",
    ),
)


class Pipeline(NamedTuple):
    """What one connection sends."""

    tag: str
    """What the numbers of its requests begin with."""
    data: bytes
    pieces: tuple[bytes, ...]


class _Maker:
    def __init__(self, number: int, seed: str, token: str) -> None:
        self.dice = Random(f"{seed}-{number}")
        self.tag, self._token, self._count = f"p{number}x", token, 0

    def _number(self) -> str:
        self._count += 1
        return f"{self.tag}{self._count}"

    def head(self, method: str, target: str, *lines: str, version: str = "HTTP/1.1") -> bytes:
        own = (HOST, f"Authorization: Bearer {self._token}", f"X-Request-Id: {self._number()}")
        text = "".join(f"{line}\r\n" for line in (*own, *lines) if line)
        return f"{method} {target} {version}\r\n{text}\r\n".encode("latin-1")

    def get(self) -> bytes:
        return self.head("GET", f"{PAGE}?offset=-1")

    def append(self, body: bytes, *lines: str) -> bytes:
        version = self.dice.choice(VERSIONS)
        return self.head("POST", SINK, "Content-Type: text/plain", *lines, version=version) + body

    def smuggled(self) -> bytes:
        """A request for inside a body: whole, or such that it swallows what comes next."""
        whole = self.get()
        return whole if self.dice.random() < 0.5 else whole[:-2] + b"X-Swallow: "

    def chunked(self, data: bytes) -> bytes:
        size = self.dice.choice(CHUNKS).format(len(data)).encode("latin-1")
        return size + data + self.dice.choice((b"\r\n", b"\r\n", b"\n", b"", b"\r")) + self.dice.choice(ENDS)

    # -- Requests with a body whose end is a matter of opinion --------------------------------------------------------

    def both(self) -> bytes:
        """A length and an encoding, which disagree about where the body ends."""
        dice, inner = self.dice, self.smuggled()
        body = b"0\r\n\r\n" + inner if dice.random() < 0.5 else self.chunked(inner)
        length = dice.choice(LENGTHS).format(dice.choice((len(body), 4, 0, len(body) - len(inner))))
        lines = [length, dice.choice(ENCODINGS)]
        dice.shuffle(lines)
        return self.append(body, *lines, *dice.sample(MORE, dice.choice((0, 0, 1))))

    def length_only(self) -> bytes:
        inner = self.smuggled()
        return self.append(inner, self.dice.choice(LENGTHS).format(self.dice.choice((len(inner), 0, 1))))

    def chunks_only(self) -> bytes:
        return self.append(self.chunked(self.smuggled()), self.dice.choice(ENCODINGS))

    def body_of_a_get(self) -> bytes:
        inner = self.smuggled()
        length = self.dice.choice(LENGTHS).format(len(inner))
        return self.head(self.dice.choice(("GET", "HEAD", "DELETE", "OPTIONS")), f"{PAGE}?offset=-1", length) + inner

    def make(self) -> Pipeline:
        dice = self.dice
        kinds: tuple[Callable[[], bytes], ...] = (self.both, self.length_only, self.chunks_only, self.body_of_a_get)
        requests = [dice.choice((*kinds, self.get, self.get))() for _ in range(dice.choice((1, 1, 2, 3)))]
        data = b"".join([*requests, self.get(), self.head("GET", f"{PAGE}?offset=-1", "Connection: close")])
        if dice.random() < 0.3:
            data = dice.choice(MUTATIONS)(dice, data)
        data = data[:60_000]
        cut = dice.randrange(1, len(data)) if len(data) > 1 and dice.random() < 0.3 else len(data)
        return Pipeline(self.tag, data, tuple(filter(None, (data[:cut], data[cut:]))))


def make(number: int, seed: str, token: str) -> Pipeline:
    """The pipeline with this number: always the same for a seed."""
    return _Maker(number, seed, token).make()
