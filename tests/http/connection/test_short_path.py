"""What comes the short path is answered as the long one answers it, byte by byte, and changes the same.

Two fronts get the same input: one with the compiled modules, one without. TESTS_SHORT_PATHS sets how many rounds
are compared, and TESTS_SHORT_PATHS_SEED repeats a run: the seed is printed.
"""

import asyncio
import os
import random
import re
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from headwater.access import tokens
from headwater.access.policy import load
from headwater.compiled import compiled
from headwater.http.guard.gates import Guard
from headwater.node.shard import Shard
from headwater.settings import Settings
from headwater.streams.commands.streams import Append

from ...fuzz import attacks
from ..fronts import Front, SetClock, SharedMemoryLog

ROUNDS = int(os.environ.get("TESTS_SHORT_PATHS", "150"))
SEED = os.environ.get("TESTS_SHORT_PATHS_SEED") or secrets.token_hex(4)
KINDS = {
    b"json": b"application/json",
    b"text": b"text/plain",
    b"other": b"application/x%%-1",
    b"slides": b"application/json",
    b"ends": b"application/json",
}
ENDS = [b"2030-03-17T17:46:50Z", b"2030-03-17T17:49:40Z", b"2031-01-01T00:00:00Z"]
"""Soon after the clock begins, and late."""
ARRAYS = [
    b"[1,2]",
    b" [1,2]",
    b"[1,2] ",
    b'[ {"a" : 1}\t,\r\n"b" , null ]',
    b"[[1,2]]",
    b"[[1],[],[[2]]]",
    b"[]",
    b"[1,2",
    b"[1 2]",
    b"[1,]",
    b'["\xc3\xa9","\\ud800"]',
    b'["\xff"]',
    b"[" * 600 + b"]" * 600,
    b"[" + b"[" * 513 + b"]" * 513 + b"]",
]
OFFSETS = [
    *(b"-1", b"now", b"7", b"+7", b" 7", b"7 ", b"%30", b"", b"00000000000000000000", b"00000000000000000010"),
    *(b"0000000000000000_0000000000000009", b"0000000000000000_0000000000000000", b"0000000000000001_0000000000000000"),
    *(b"99999999999999999999", b"000000000000000000_0", b"0000000000000000_000000000000000x"),
]
ORIGINS = [
    b"http://localhost",
    b"http://localhost:5173",
    b"https://app.example",
    b"https://other.example",
    b"null",
    b"https://100%d.example",
]
PAGE_BYTES = 300
"""So short that many pages end before the tail."""
LOCAL = Settings(memory=True)
OPEN = Settings(memory=True, no_auth=True)
SOME = Settings(memory=True, no_auth=True, cors_origins="https://app.example,https://100%d.example")
MUTATIONS = [one for one in attacks.MUTATIONS if one.__name__ not in ("_giant", "_soup")]

pytestmark = pytest.mark.skipif(
    compiled("headwater.http.connection.fast._short_path") is None, reason="nothing was compiled here"
)


class Clients:
    """Makes requests of the usual kind and of others like them, to streams that exist or not."""

    def __init__(self, dice: random.Random, authorization: list[bytes]) -> None:
        self._dice, self._authorization = dice, authorization
        self._seqs: dict[tuple[bytes, bytes], int] = {}
        self.offsets: list[bytes] = [b"-1"]

    def request(self) -> bytes:
        dice = self._dice
        stream = dice.choice((b"json", b"json", b"text", b"other", b"gone", b"slides", b"ends"))
        path = dice.choice((b"/v1/stream/bucket/", b"/bucket/", b"/v1/stream/bucket/")) + stream
        kind = dice.random()
        if kind < 0.55:
            return self._append(path, stream)
        if kind < 0.9:
            offset = dice.choice((*self.offsets[-8:], *OFFSETS))
            query = dice.choice((b"?offset=%b" % offset, b"?offset=%b" % offset, b"", b"?offset=%b&live=no" % offset))
            return self._head(b"GET", path + query, [b'If-None-Match: "x"', b"Stream-Incarnation: x"])
        if kind < 0.96:
            lines = [b"Content-Type: " + KINDS.get(stream, b"application/x%%-1")]
            if stream == b"slides":
                lines.append(dice.choice((b"Stream-TTL: 60", b"Stream-TTL: 2", b"Stream-TTL: 3600")))
            elif stream == b"ends":
                lines.append(b"Stream-Expires-At: " + dice.choice(ENDS))
            return self._head(b"PUT", path, [b"Stream-TTL: 60"], lines)
        return self._head(dice.choice((b"HEAD", b"DELETE")), path, [])

    def _append(self, path: bytes, stream: bytes) -> bytes:
        dice = self._dice
        body = dice.choice(
            (
                b'{"n":%d}' % dice.randrange(99),
                b'{"a":"\xc3\xa9"}',
                b"[1,2]",
                b'{"a":1',
                b"",
                b"plain",
                b"\xff",
                b'{"a":1} ',
                *ARRAYS,
                b"[%b]" % b",".join(b'{"n":%d}' % number for number in range(dice.randrange(1, 19))),
            )
        )
        if dice.random() < 0.5:
            body = b'{"n":%d,"text":"%b"}' % (dice.randrange(1000), b"x" * dice.randrange(200))
        lines = [b"Content-Type: " + KINDS.get(stream, b"application/json")]
        if dice.random() < 0.05:
            lines = [dice.choice((b"Content-Type: application/json; charset=utf-8", b"X-None: 1", b"Content-Type: a"))]
        if dice.random() < 0.6:
            writer = dice.choice((b"one", b"two"))
            seq = self._seqs.get((path, writer), 0) + dice.choice((0, 0, 0, 0, 0, 0, -1, 1))
            if dice.random() < 0.9:
                self._seqs[path, writer] = max(seq, 0) + 1
            epoch = dice.choice((b"0", b"0", b"0", b"0", b"0", b"0", b"1", b"x"))
            lines += [b"Producer-Id: " + writer, b"Producer-Epoch: " + epoch, b"Producer-Seq: %d" % max(seq, 0)]
            if dice.random() < 0.05:
                lines.pop(dice.randrange(1, len(lines)))
        rare = [
            b"Stream-Closed: true",
            b"Stream-Seq: a",
            b'If-Match: "x"',
            b"Stream-Record-Match: 3",
            b'If-None-Match: "x"',
        ]
        return self._head(b"POST", path, rare, lines, body)

    def _head(
        self, method: bytes, target: bytes, rare: list[bytes], lines: Sequence[bytes] = (), body: bytes = b""
    ) -> bytes:
        dice = self._dice
        lines = [
            b"Host: localhost",
            b"Accept: */*",
            *lines,
            *dice.choice(([], *([[one] for one in self._authorization]))),
        ]
        if dice.random() < 0.4:
            lines.append(b"Origin: " + dice.choice(ORIGINS))
        if dice.random() < 0.08:
            lines.append(dice.choice((*rare, b"X-Request-Id: abc", b"Connection: close")))
        if body or method != b"GET":
            lines.append(b"Content-Length: %d" % len(body))
        if dice.random() < 0.1:
            dice.shuffle(lines)
        return b"%b %b HTTP/1.1\r\n%b\r\n\r\n%b" % (method, target, b"\r\n".join(lines), body)


async def compare(dice: random.Random, clock: SetClock, pair: tuple[Front, Front], authorization: list[bytes]) -> None:
    """Send the same to both fronts over a few connections, and compare what comes of it."""
    clients, connections = Clients(dice, authorization), [[front.connect() for front in pair] for _ in range(3)]
    for step in range(60):
        number = dice.randrange(3)
        clock.us += dice.choice((0, 0, 0, 1, 400_000, 1_100_000, 7_000_000, 59_000_000))
        pieces = [clients.request() for _ in range(dice.choice((1, 1, 1, 1, 1, 2, 3)))]
        if dice.random() < 0.08:
            pieces[-1] = dice.choice(MUTATIONS)(dice, pieces[-1])
        if dice.random() < 0.2:
            pieces = [b"".join(pieces)]
        if dice.random() < 0.1:
            pieces = list(attacks.split(dice, b"".join(pieces)))
        waits = dice.random() < 0.7
        ends = dice.choice((None,) * 30 + ("eof_received", "drop", "pause_writing"))
        # Both before anything is waited for, so that neither has applied more than the other.
        for connection, transport in connections[number]:
            for piece in pieces:
                if piece and not transport.closing:
                    connection.data_received(piece)
            if ends == "drop":
                connection.connection_lost(None)
            elif ends == "eof_received" and not connection.eof_received():
                transport.close()
            elif ends == "pause_writing":
                connection.pause_writing()
                connection.resume_writing()
        if waits:
            for front in pair:
                await front.settle()
            sent = [transport.sent for _, transport in connections[number]]
            assert sent[0] == sent[1], f"seed {SEED}, step {step}: {pieces}"
            clients.offsets += re.findall(rb"Stream-Next-Offset: ([0-9_]+)", sent[0][-3000:])[-2:]
        if ends == "drop" or connections[number][0][1].closing:
            connections[number] = [front.connect() for front in pair]
    for front in pair:
        await front.settle()
    for both in connections:
        assert both[0][1].sent == both[1][1].sent, f"seed {SEED}"
        for connection, _ in both:
            connection.connection_lost(None)
    assert pair[0].summary() == pair[1].summary(), f"seed {SEED}"


def play(number: int, guard: Callable[[], Guard | None], authorization: list[bytes]) -> int:
    """Compare two fronts for one round; returns how many requests came the short path."""
    clock, dice = SetClock(), random.Random(f"{SEED}-{number}")
    settings, shared = dice.choice((LOCAL, OPEN, SOME)), dice.random() < 0.3
    if dice.random() < 0.5:
        settings = msgspec.structs.replace(settings, page_bytes=PAGE_BYTES)

    async def run() -> int:
        pair = [Front(guard(), short=short, settings=settings, clock=clock, shared=shared) for short in (True, False)]
        await compare(dice, clock, (pair[0], pair[1]), authorization)
        return pair[0].taken

    return clock.run(run())


def test_the_short_path_answers_as_the_long_one() -> None:
    taken = sum(play(number, lambda: None, []) for number in range(ROUNDS))
    assert taken > 5 * ROUNDS, "many requests come the short path"


def test_a_guarded_short_path_admits_and_charges_as_the_long_one(tmp_path: Path) -> None:
    made = [tokens.make(name) for name in ("all", "reads", "poor")]
    text = "version = 1\n[anonymous]\ngrants = []\n"
    for token, grants, limits in zip(made, ("* *", "read bucket/*", "* *"), ("", "", 'limits = "few"'), strict=True):
        digest = tokens.digest(token.encode()).hex()
        text += f'[[token]]\nid = "{token.split("_")[1]}"\nsha256 = "{digest}"\ngrants = ["{grants}"]\n{limits}\n'
    text += "[limits.few]\nrequests_per_second = 3\nappend_bytes_per_second = 900\nread_bytes_per_second = 700\n"
    file = tmp_path / "auth.toml"
    file.write_text(text)
    file.chmod(0o600)
    policy = load(file)
    bearers = [b"Authorization: Bearer " + token.encode() for token in made]

    authorization = [*bearers[:1] * 6, *bearers, b"Authorization: Bearer nothing"]
    taken = sum(play(number, lambda: Guard(policy), authorization) for number in range(ROUNDS // 2))
    assert taken > ROUNDS, "many requests come the short path"


def test_what_fails_on_the_short_path_is_answered_as_on_the_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Shard, command: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(Shard, "early", broken)
    line = (
        b"POST /v1/stream/none HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
    )

    async def run() -> None:
        for front in (Front(short=True), Front(short=False)):
            connection, transport = front.connect()
            connection.data_received(line + b"\r\n{}")
            assert transport.sent.startswith(b"HTTP/1.1 500 ")
            assert not connection.exchanges
            connection.data_received(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"HTTP/1.1 200 OK" in transport.sent
            connection.connection_lost(None)

    asyncio.run(run())


def test_an_append_that_waits_holds_its_body_once() -> None:
    async def run() -> None:
        front = Front(short=True)
        connection, _ = front.connect()
        body = b'{"text":"%b"}' % (b"x" * 50_000)
        lines = b"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        head = b"POST /v1/stream/a/b HTTP/1.1\r\n" + lines
        for method in (b"PUT", b"POST"):
            await front.settle()
            connection.data_received((head % len(body)).replace(b"POST", method) + body)
        [waiting] = connection.exchanges
        [(command, _, _)] = front.node.only.committer._queue
        assert isinstance(command, Append)
        assert waiting.body is command.payload  # type: ignore[attr-defined]
        assert waiting.head == head % len(body)  # type: ignore[attr-defined]
        await front.settle()
        connection.connection_lost(None)

    asyncio.run(run())


def test_requests_of_pages_streams_that_end_and_small_arrays_come_the_short_path() -> None:
    clock, taken = SetClock(), dict[str, int]()
    lines = b"Host: localhost\r\nContent-Type: application/json\r\n"

    async def run() -> None:
        front = Front(short=True, settings=LOCAL, clock=clock)
        connection, transport = front.connect()

        async def ask(what: str, method: bytes, target: bytes, more: bytes = b"", body: bytes = b"") -> None:
            before = front.taken
            head = b"%b /v1/stream/a/%b HTTP/1.1\r\n%b%b" % (method, target, lines, more)
            connection.data_received(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
            await front.settle()
            taken[what] = front.taken - before

        await ask("create", b"PUT", b"plain")
        await ask("create with a lifetime", b"PUT", b"slides", b"Stream-TTL: 60\r\n")
        for name in (b"plain", b"slides"):
            for origin in (b"", b"Origin: http://localhost:3000\r\n"):
                what = f"{name.decode()}{' of a page' if origin else ''}"
                await ask(f"append to {what}", b"POST", name, origin, b'{"n":1}')
                await ask(f"read {what}", b"GET", name + b"?offset=-1", origin)
        await ask("append of another page", b"POST", b"plain", b"Origin: https://x.example\r\n", b'{"n":1}')
        await ask("read of another page", b"GET", b"plain?offset=-1", b"Origin: https://x.example\r\n")
        clock.us += 10_000_000
        await ask("read that renews", b"GET", b"slides?offset=-1")
        await ask("read after it", b"GET", b"slides?offset=-1")
        clock.us += 59_500_000
        await ask("append in the last second", b"POST", b"slides", b"", b'{"n":1}')
        for count in (1, 16, 17):
            await ask(f"array of {count}", b"POST", b"plain", b"", b"[%b]" % b",".join([b"1"] * count))
        assert transport.sent.count(b"HTTP/1.1 2") == 17, "all but the one of another page"
        connection.connection_lost(None)

    clock.run(run())
    assert [what for what, count in taken.items() if count] == [
        *("append to plain", "read plain", "append to plain of a page", "read plain of a page"),
        *("append to slides", "read slides", "append to slides of a page", "read slides of a page"),
        *("read after it", "array of 1", "array of 16"),
    ]


def test_on_a_shared_log_a_page_that_ends_before_the_tail_needs_no_barrier() -> None:
    settings = msgspec.structs.replace(LOCAL, page_bytes=PAGE_BYTES)
    lines = b"Host: localhost\r\nContent-Type: application/json\r\n"

    async def run() -> None:
        front = Front(short=True, settings=settings, shared=True)
        connection, transport = front.connect()
        log = front.node.only.command_log
        assert isinstance(log, SharedMemoryLog)
        for method, body in ((b"PUT", b""), *[(b"POST", b'{"text":"%b"}' % (b"x" * 200))] * 3):
            head = b"%b /v1/stream/a/b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (method, lines, len(body))
            connection.data_received(head + body)
            await front.settle()
        taken, barriers = [], []
        for offset in (b"-1", b"0000000000000000_0000000000004220"):
            before = front.taken, log.barriers
            transport.sent = b""
            connection.data_received(b"GET /v1/stream/a/b?offset=%b HTTP/1.1\r\n%b\r\n" % (offset, lines))
            assert transport.sent.startswith(b"HTTP/1.1 200 OK")
            taken.append(front.taken - before[0])
            barriers.append(log.barriers - before[1])
        assert (taken, barriers) == ([1, 0], [0, 1])
        connection.connection_lost(None)

    asyncio.run(run())
