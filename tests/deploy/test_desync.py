"""No pipeline makes a proxy and the server disagree about where a request ends: everyone gets the answers to their own.

Proxies keep connections to the server and share them among clients. If the server took a part of one client's body for
a request, every later client of that connection would get the answer of the one before. Some clients attack, others
check that each answer is the one to their own request.

TESTS_ATTACK_PIPELINES, or `scripts/attack --pipelines 100000`, makes it longer; TESTS_FUZZ_SEED, which is
printed, repeats a run.
"""

import asyncio
import os
import re
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ..http.guarded import Guarded, guarded
from ..http.sockets import request
from .pipelines import PAGE, SINK, Pipeline, make
from .proxies import PROXIES, find

pytestmark = pytest.mark.attack

PIPELINES = int(os.environ.get("TESTS_ATTACK_PIPELINES", "600"))
SEED = os.environ.get("TESTS_FUZZ_SEED") or secrets.token_hex(4)
ATTACKERS, VICTIMS = 32, 4
QUIET_SECONDS = 0.25
"""How long an attacker waits for more; its last request is answered with the end of the connection, if it is seen."""
ANSWER_SECONDS = 60.0
TEXT = {"Content-Type": "text/plain"}
ANSWERED = re.compile(rb"\r\n[Xx]-[Rr]equest-[Ii]d: ([^\r\n]*)\r\n")
UPSTREAM_GONE = 502
"""What a proxy answers for a connection that the server closed just then, because of what another client sent."""


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    rights = {"attacker": ["read,append mine/*"], "victim": ["read theirs/*"]}
    flags = ("--proxies", "127.0.0.1", "--body-seconds", "2", "--header-seconds", "2")
    with guarded(tmp_path_factory.mktemp("access"), rights, *flags) as found:
        with found.wire() as wire:
            root = {**TEXT, **found.bearer("root")}
            assert wire.ask("PUT", PAGE, {**root, "Stream-Closed": "true"}, b"the attacker's page").status == 201
            assert wire.ask("PUT", SINK, root).status == 201
            for number in range(VICTIMS):
                closed = {**root, "Stream-Closed": "true"}
                assert wire.ask("PUT", path_of(number), closed, body_of(number)).status == 201
        yield found
        assert "Traceback" not in found.server.output()


def path_of(victim: int) -> str:
    return f"/v1/stream/theirs/{victim}"


def body_of(victim: int) -> bytes:
    return b"secret of victim %d " % victim * (1 + 40 * victim)


async def exchange(port: int, pipeline: Pipeline) -> bytes:
    """Send a pipeline, and return everything that comes back."""
    received = bytearray()
    with suppress(ConnectionError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for piece in pipeline.pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            with suppress(TimeoutError):
                while data := await asyncio.wait_for(reader.read(65_536), QUIET_SECONDS):
                    received += data
        finally:
            writer.transport.abort()
    return bytes(received)


def judge(pipeline: Pipeline, received: bytes) -> str | None:
    """What is wrong with the answers to a pipeline: one is of another client, or comes out of turn."""
    if b"secret of" in received:
        return "got the page of a victim"
    at = 0
    for answered in ANSWERED.findall(received):
        found = pipeline.data.find(answered, at)
        if found < 0:
            return f"got the answer to {answered.decode('latin-1')!r}"
        at = found + 1
    return None


class Victims:
    """Clients of the same proxy, which know what each of their answers must be."""

    def __init__(self, port: int, token: str) -> None:
        self._port, self._token = port, token
        self.seen: Counter[int] = Counter()
        self._over = asyncio.Event()

    def stop(self) -> None:
        self._over.set()

    async def run(self, number: int) -> None:
        count = 0
        while not self._over.is_set():
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                while not self._over.is_set() and await self._ask(reader, writer, number, f"victim-{number}-{count}"):
                    count += 1
            finally:
                writer.transport.abort()

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int, request_id: str
    ) -> bool:
        """Whether the connection can be used again."""
        headers = {"Authorization": f"Bearer {self._token}", "X-Request-Id": request_id}
        writer.write(request("GET", f"{path_of(number)}?offset=-1", headers))
        async with asyncio.timeout(ANSWER_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1])
            [length] = re.findall(rb"(?i)\r\ncontent-length: (\d+)\r\n", head)
            body = await reader.readexactly(int(length))
        self.seen[status] += 1
        if status != UPSTREAM_GONE:
            assert ANSWERED.findall(head) == [request_id.encode()], head
            assert (status, body) == (200, body_of(number)), (head, body)
        return b"connection: close" not in head.lower()


async def attack(port: int, guard: Guarded) -> tuple[list[str], Counter[int], Counter[str]]:
    """Send all pipelines through a proxy; returns what went wrong, what victims saw, and what attackers saw."""
    problems: list[str] = []
    statuses: Counter[str] = Counter()
    numbers = iter(range(PIPELINES))

    async def attacker() -> None:
        for number in numbers:
            pipeline = make(number, SEED, guard.tokens["attacker"])
            received = await exchange(port, pipeline)
            statuses.update(one.decode() for one in re.findall(rb"HTTP/1\.[01] (\d{3}) ", received))
            problem = judge(pipeline, received)
            if problem is not None:
                problems.append(f"pipeline {number} of seed {SEED} {problem}")

    victims = Victims(port, guard.tokens["victim"])
    async with asyncio.TaskGroup() as group:
        for number in range(VICTIMS):
            group.create_task(victims.run(number))
        try:
            async with asyncio.TaskGroup() as attackers:
                for _ in range(ATTACKERS):
                    attackers.create_task(attacker())
        finally:
            victims.stop()
    return problems, victims.seen, statuses


@pytest.mark.parametrize("kind", sorted(PROXIES))
def test_no_pipeline_gets_a_client_the_answer_of_another(kind: str, guard: Guarded, tmp_path: Path) -> None:
    for program in [kind, *(["openssl"] if kind == "nginx" else [])]:
        if find(program) is None:
            pytest.skip(f"{program} is not installed")
    print(f"TESTS_FUZZ_SEED={SEED}")
    with PROXIES[kind](urlsplit(guard.server.url).netloc, tmp_path, tls=False) as proxy:
        problems, seen, statuses = asyncio.run(attack(urlsplit(proxy.url).port or 0, guard))
    print(f"{kind}: {PIPELINES} pipelines, answers {dict(statuses)}, victims {dict(seen)}")
    assert problems == []
    # The attack reached the server, and was answered with more than refusals.
    assert statuses["200"] > PIPELINES / 4 and statuses["400"] > PIPELINES / 20
    assert seen[200] > 20
    assert set(seen) <= {200, UPSTREAM_GONE}


def test_an_answer_that_is_not_ones_own_is_noticed() -> None:
    sent = b"GET / HTTP/1.1\r\nX-Request-Id: p1x1\r\n\r\nGET / HTTP/1.1\r\nX-Request-Id: p1x2\r\n\r\n"
    pipeline = Pipeline("p1x", sent, (sent,))
    first, second, other = (b"HTTP/1.1 200 OK\r\nX-Request-Id: %b\r\n\r\n" % one for one in (b"p1x1", b"p1x2", b"p2x1"))
    assert [judge(pipeline, received) for received in (b"", first, second, first + second)] == [None] * 4
    assert judge(pipeline, first + other) == "got the answer to 'p2x1'"
    assert judge(pipeline, second + first) == "got the answer to 'p1x1'"
    assert judge(pipeline, first + body_of(0)) == "got the page of a victim"
