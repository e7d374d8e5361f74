"""Live reads over a change of the rules: good ones go on, and none gets a byte by rights that it no longer has."""

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headwater.access.grants import Action
from headwater.access.identities import Identity
from headwater.access.policy import load
from headwater.http.api.access import client_usage
from headwater.http.context import Context
from headwater.http.guard.gates import FAILURES_PER_SECOND, Caller, Guard
from headwater.http.server import TURN_SECONDS, Server
from headwater.http.wire.requests import Request
from headwater.protocol.refusals import Code, Refusal
from headwater.settings import Settings

from ...access.signing import jwks, make, signer
from ..guarded import Guarded, guarded
from ..processes import eventually
from ..sockets import request

pytestmark = pytest.mark.attack

TEXT = {"Content-Type": "text/plain"}
ONE = "/v1/stream/mine/one"
NOBODY_LISTENS = "http://127.0.0.1:9/jwks.json"


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[Guarded]:
    with guarded(tmp_path, {"bob": ["read mine/*"]}) as found:
        with found.wire() as wire:
            assert wire.ask("PUT", ONE, {**TEXT, **found.bearer("root")}).status == 201
        yield found


def append(guard: Guarded, body: bytes) -> None:
    with guard.wire() as wire:
        assert wire.ask("POST", ONE, {**TEXT, **guard.bearer("root")}, body).status == 204


# -- Addresses with many wrong credentials -----------------------------------------------------------------------------


@contextmanager
def failing(guard: Guarded) -> Iterator[None]:
    """Send wrong tickets from this address all the time, so that no signature of it is verified."""
    wrong, over = f"{guard.ticket('read mine/*')[:-8]}AAAAAAAA", threading.Event()

    def send() -> None:
        with guard.wire() as wire:
            while not over.is_set():
                wire.send(request("GET", f"{ONE}?access_token={wrong}") * 10)
                for _ in range(10):
                    wire.receive()

    def is_throttled() -> bool:
        with guard.wire() as wire:
            return wire.ask("GET", f"{ONE}?access_token={guard.ticket('read mine/*')}").status == 429

    thread = threading.Thread(target=send)
    thread.start()
    try:
        assert eventually(is_throttled)
        yield
    finally:
        over.set()
        thread.join(10)


def test_a_ticket_in_a_url_that_is_known_is_not_verified_again(guard: Guarded) -> None:
    ticket = guard.ticket("read mine/*")
    with guard.wire() as wire:
        assert wire.ask("GET", f"{ONE}?access_token={ticket}").status == 200
        with failing(guard):
            assert {wire.ask("GET", f"{ONE}?access_token={ticket}").status for _ in range(50)} == {200}


def test_a_ticket_that_was_good_is_verified_by_new_rules_although_its_address_has_failed_often(guard: Guarded) -> None:
    ticket = {"Authorization": f"Bearer {guard.ticket('read mine/*')}"}
    with guard.wire() as wire:
        assert wire.ask("GET", ONE, ticket).status == 200
        with failing(guard):
            guard.reload()
            assert {wire.ask("GET", ONE, ticket).status for _ in range(50)} == {200}


def test_a_tail_goes_on_after_a_reload_although_its_address_has_failed_often(guard: Guarded) -> None:
    with guard.wire() as wire, guard.wire() as poll:
        header = {"Authorization": f"Bearer {guard.ticket('read mine/one', sub='ann')}"}
        wire.send(request("GET", f"{ONE}?offset=now&live=sse", header))
        events = wire.receive_sse()
        assert events.event().kind == "control"
        ticket = guard.ticket("read mine/one", sub="bea")
        poll.send(request("GET", f"{ONE}?offset=now&live=long-poll&access_token={ticket}"))
        assert poll.silent_for(0.2)
        with failing(guard):
            guard.reload()  # They were known before, and have to be verified again.
            assert poll.silent_for(1.5)
        append(guard, b"on")
        assert events.event().data == "on"
        assert poll.receive().body == b"on"


# -- Issuers whose keys are missing ------------------------------------------------------------------------------------

KEY = signer("ES256")


@contextmanager
def provider() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = jwks({"k1": KEY})
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/jwks.json"
        finally:
            server.shutdown()
            thread.join(10)


def issuer(url: str) -> str:
    return (
        f'[[issuer]]\nurl = "https://login.example/"\naudience = "headwater"\njwks = "{url}"\nalgorithms = ["ES256"]\n'
        'rules = [{ grants = ["read mine/*"] }]\n'
    )


def test_a_tail_goes_on_while_the_keys_of_its_issuer_are_missing(tmp_path: Path) -> None:
    ends = time.time() + 600
    claims = {"iss": "https://login.example/", "aud": "headwater", "sub": "ann", "exp": ends}
    header = {"Authorization": f"Bearer {make(KEY, claims, kid='k1').decode()}"}
    with provider() as url, guarded(tmp_path, {}, more=issuer(url)) as guard, ExitStack() as stack:
        wire, poll, other = (stack.enter_context(guard.wire()) for _ in range(3))
        assert other.ask("PUT", ONE, {**TEXT, **guard.bearer("root")}).status == 201
        assert eventually(lambda: other.ask("HEAD", ONE, header).status == 200)
        wire.send(request("GET", f"{ONE}?offset=now&live=sse", header))
        events = wire.receive_sse()
        assert events.event().kind == "control"
        poll.send(request("GET", f"{ONE}?offset=now&live=long-poll", header))
        assert poll.silent_for(0.2)
        guard.write({"root": ["* *"]}, issuer(NOBODY_LISTENS))
        guard.reload()
        assert other.ask("HEAD", ONE, header).status == 503
        assert poll.silent_for(1.2)
        append(guard, b"on")
        assert events.event().data == "on"
        assert poll.receive().body == b"on"
        assert events.event().kind == "control"
        before = unavailable(guard)
        for number in range(200):
            append(guard, b"%d" % number)
        assert unavailable(guard) - before < 100, "it is judged by ticks, not with each append"
        guard.write({"root": ["* *"]})
        guard.reload()
        assert events.rest()[-1].kind == "credential-expired"


def unavailable(guard: Guarded) -> int:
    """How often a credential could not be judged because the keys of its issuer were missing."""
    with guard.wire() as wire:
        metrics = wire.ask("GET", "/metrics", guard.bearer("root")).body.decode()
    found = re.search(r'^headwater_denied_total{reason="unavailable"} (\d+)$', metrics, re.MULTILINE)
    assert found is not None
    return int(found[1])


# -- Rights that have ended --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("live", ["sse", "long-poll", "tail"])
def test_nothing_that_is_appended_after_a_reload_reaches_those_without_rights(guard: Guarded, live: str) -> None:
    bob, other = guard.bearer("bob"), {"root": ["* *"], "other": ["read mine/*"]}
    target = f"{ONE}?offset=now&live={live}" if live != "tail" else "/__headwater/tail?s=mine/one@now"
    for number in range(5):
        guard.write({"root": ["* *"], "bob": ["read mine/*"]})
        guard.reload()
        with guard.wire() as wire:
            wire.send(request("GET", target, bob))
            events = None if live == "long-poll" else wire.receive_sse()
            assert wire.silent_for(0.2) if events is None else events.event().kind in ("control", "batch")
            guard.write(other)
            guard.reload()
            append(guard, b"secret %d" % number)
            seen = wire.receive().body if events is None else b"".join(event.raw for event in events.rest())
            assert b"secret" not in seen


def test_a_long_poll_that_waits_while_its_stream_becomes_private_is_not_for_shared_caches(tmp_path: Path) -> None:
    with guarded(tmp_path, {"bob": ["read mine/*"]}, anonymous=["read mine/*"]) as guard, guard.wire() as wire:
        assert wire.ask("PUT", ONE, {**TEXT, **guard.bearer("root")}).status == 201
        start = wire.ask("HEAD", ONE).next_offset
        with guard.wire() as poll:
            poll.send(request("GET", f"{ONE}?offset={start}&live=long-poll", guard.bearer("bob")))
            assert poll.silent_for(0.2)
            guard.write({"root": ["* *"], "bob": ["read mine/*"]})
            guard.reload()
            append(guard, b"private")
            answer = poll.receive()
            assert (answer.status, answer.body) == (200, b"private")
            assert "public" not in answer.headers["cache-control"]
            assert "authorization" in answer.headers["vary"].lower()


def test_a_credential_is_verified_once_for_each_version_of_the_rules(tmp_path: Path) -> None:
    files = Guarded(tmp_path)
    files.write({"root": ["* *"]})
    guard = Guard(load(files.file))
    assert guard.changes == 0

    class Client:
        address, certificate_names, client_until = "127.0.0.1", (), float("inf")

    caller: Caller = Client()
    asked = Request(b"GET", b"", b"", b"access_token=" + files.ticket("read mine/*").encode(), {}, b"")
    first = guard.admit(asked, Action.READ, "mine/one", caller)
    assert isinstance(first, Identity)
    assert guard.admit(asked, Action.READ, "mine/one", caller) is first, "it is known by its spelling"
    assert guard.renew(asked, "mine/one", caller) is first
    wrong = Request(b"GET", b"", b"", asked.query[:-8] + b"AAAAAAAA", {}, b"")
    refusals = [guard.admit(wrong, Action.READ, "mine/one", caller) for _ in range(2 * FAILURES_PER_SECOND)]
    assert isinstance(refusals[-1], Refusal)
    assert refusals[-1].code is Code.RATE_LIMITED
    guard.adopt(load(files.file), guard.begin_loading())
    again = guard.admit(asked, Action.READ, "mine/one", caller)
    assert isinstance(again, Identity)
    assert again is not first
    assert guard.renew(asked, "mine/one", caller) is again
    other = guard.renew(asked, "theirs/one", caller)
    assert isinstance(other, Refusal)
    assert other.code is Code.FORBIDDEN


# -- Work in one turn of the event loop --------------------------------------------------------------------------------


class Client:
    """A connection of nobody in particular."""

    address: str = "127.0.0.1"
    certificate_names: tuple[tuple[str, str], ...] = ()
    client_until = float("inf")


def test_credentials_are_forgotten_one_by_one(tmp_path: Path) -> None:
    files = Guarded(tmp_path)
    files.write({"root": ["* *"]})
    guard, caller, most = Guard(load(files.file), known_max=4), Client(), 4

    def admit(user: int) -> Identity:
        query = b"access_token=" + tickets[user].encode()
        found = guard.admit(Request(b"GET", b"", b"", query, {}, b""), Action.READ, "mine/one", caller)
        assert isinstance(found, Identity)
        return found

    tickets = [files.ticket("read mine/*", sub=f"user-{user}", seconds=3600) for user in range(most + 1)]
    found = [admit(user) for user in range(len(tickets))]
    assert len(guard.known) == most
    assert admit(1) is found[1]
    assert admit(0) is not found[0], "it was the first to be forgotten"
    guard.adopt(load(files.file), guard.begin_loading())
    assert len(guard.known) == most
    again = admit(most)
    assert again is not found[most], "what it was by the rules of before means nothing"
    assert admit(most) is again


def test_ticks_that_take_long_leave_turns_to_others() -> None:
    class Slow:
        deadline = float("inf")

        def tick(self, now: float) -> None:
            order.append("tick")
            time.sleep(2 * TURN_SECONDS)

        def expire(self) -> None: ...

        def drain(self) -> None: ...

        def abort(self) -> None: ...

    async def run() -> None:
        server = Server(Settings())
        server.context.live |= {Slow(), Slow(), Slow()}
        asyncio.get_running_loop().call_soon(server._tick)
        while order.count("tick") < 3:
            order.append("turn")
            await asyncio.sleep(0)
        await server.drain()

    order: list[str] = []
    asyncio.run(run())
    assert "tick,tick" not in ",".join(order)


def test_the_usage_of_many_clients_is_added_up_in_many_turns(tmp_path: Path) -> None:
    files, count = Guarded(tmp_path), 20_000
    files.write({"root": ["* *"]})
    context = Context(Settings(), Guard(load(files.file)))
    assert context.guard is not None
    for number in range(count):
        context.guard.allowances.of(f"user {number}", None)

    async def run() -> int:
        counting = asyncio.ensure_future(client_usage(context))
        turns = 0
        while not counting.done():
            turns += 1
            await asyncio.sleep(0)
        assert len(counting.result()) == count
        return turns

    assert asyncio.run(run()) > 3
