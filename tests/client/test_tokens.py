"""Tokens: who gets them, when they are renewed, and what each refusal raises. The guard and the server are real."""

import asyncio
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from headwater.client import (
    Admin,
    AsyncClient,
    Client,
    Forbidden,
    HostRefused,
    QuotaExceeded,
    RateLimited,
    RequestRefused,
    RetryPolicy,
    Unauthorized,
)
from headwater.testing import RunningServer

from .conftest import Both, run
from .guarding import (
    EXPIRED,
    FORBIDDEN,
    HOST_REFUSED,
    PRODUCER_FORBIDDEN,
    QUOTA_EXCEEDED,
    RATE_LIMITED,
    UNAUTHORIZED,
    Guard,
    Refusal,
)

TEXT = "text/plain"
ONCE = RetryPolicy(attempts_max=1)


@pytest.fixture
def guard(server: RunningServer) -> Iterator[Guard]:
    with Guard(server.url, "t1").running() as guard:
        yield guard


def tokens(*values: str) -> Callable[[], str]:
    """A function that returns one after the other, and the last one for ever."""
    left = list(values)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


# -- Sending -----------------------------------------------------------------------------------------------------------


def test_a_token_is_sent_with_every_request(guard: Guard, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(guard.url, token="t1\n") as client:
            stream = client.stream(name)
            await stream.create(TEXT)
            await stream.append("a")
            assert await stream.read() == b"a"
        assert {seen.authorization for seen in guard.seen} == {"Bearer t1"}

    run(check())


def test_a_function_is_called_for_each_request(guard: Guard, name: str, client_of: Both) -> None:
    async def check() -> None:
        guard.valid |= {"t2", "t3"}
        async with client_of(guard.url, token=tokens("t1", "t2", "t3")) as client:
            stream = client.stream(name, content_type=TEXT)
            await stream.create(TEXT)
            await stream.append("a")
            assert await stream.read() == b"a"
        assert [seen.authorization for seen in guard.seen] == ["Bearer t1", "Bearer t2", "Bearer t3"]

    run(check())


def test_an_asynchronous_client_awaits_the_token(guard: Guard, name: str) -> None:
    async def token() -> str:
        await asyncio.sleep(0)
        return "t1"

    async def check() -> None:
        async with AsyncClient(guard.url, token=token) as client:
            await client.stream(name).create(TEXT)

    run(check())


def test_an_operator_has_a_token_too(guard: Guard) -> None:
    with Admin(guard.url, token="t1") as admin:
        assert admin.whoami() == {"name": "t1", "kind": "token", "mode": "guarded"}
        assert "log_id" in admin.status()


def test_a_token_is_not_sent_to_another_origin(guard: Guard, server: RunningServer, name: str) -> None:
    with Client(server.url, token="t1") as client:
        with pytest.raises(Unauthorized):
            client.stream(f"{guard.url}/v1/stream/{name}").create(TEXT)
        assert [seen.authorization for seen in guard.seen] == [None]


class _Redirect(BaseHTTPRequestHandler):
    location = ""

    def do_GET(self) -> None:
        self.send_response(307)
        self.send_header("Location", self.location + self.path)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize("credential", [{"token": "t1"}, {"headers": {"Authorization": "Bearer t1"}}])
def test_a_redirect_to_another_origin_drops_the_token(
    guard: Guard, name: str, client_of: Both, credential: dict[str, str]
) -> None:
    handler = type("Redirect", (_Redirect,), {"location": guard.url})

    async def check(url: str) -> None:
        async with client_of(url, **credential) as client:
            with pytest.raises(Unauthorized):
                await client.stream(name).read()
        assert [seen.authorization for seen in guard.seen] == [None]

    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as redirecting:
        thread = Thread(target=redirecting.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            run(check(f"http://127.0.0.1:{redirecting.server_address[1]}"))
        finally:
            redirecting.shutdown()
            thread.join(10)


# -- Renewing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", [UNAUTHORIZED, EXPIRED, UNAUTHORIZED._replace(code="")], ids=lambda one: one.code)
def test_a_refused_token_is_renewed_and_the_request_repeated_once(
    guard: Guard, name: str, client_of: Both, refusal: Refusal
) -> None:
    async def check() -> None:
        guard.valid.add("t2")
        guard.planned = [refusal]
        async with client_of(guard.url, token=tokens("t1", "t2")) as client:
            await client.stream(name).create(TEXT)
        assert [seen.authorization for seen in guard.seen] == ["Bearer t1", "Bearer t2"]
        guard.planned = [refusal] * 3
        async with client_of(guard.url, token=tokens("t1", "t2", "t1")) as client:
            with pytest.raises(Unauthorized) as caught:
                await client.stream(name).read()
        assert caught.value.status == 401 and len(guard.seen) == 4

    run(check())


def test_the_same_token_is_not_sent_again(guard: Guard, name: str, client_of: Both) -> None:
    async def check() -> None:
        calls = 0

        def token() -> str:
            nonlocal calls
            calls += 1
            return "wrong"

        async with client_of(guard.url, token=token) as client:
            with pytest.raises(Unauthorized):
                await client.stream(name).read()
        assert (len(guard.seen), calls) == (1, 2)

    run(check())


def test_a_right_that_is_missing_does_not_renew_the_token(guard: Guard, name: str, client_of: Both) -> None:
    async def check() -> None:
        guard.planned = [PRODUCER_FORBIDDEN]
        async with client_of(guard.url, token=tokens("t1", "t2")) as client:
            with pytest.raises(Unauthorized) as caught:
                await client.stream(name).read()
        assert caught.value.code == "producer_forbidden" and len(guard.seen) == 1

    run(check())


@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_a_follower_goes_on_with_a_new_token(guard: Guard, name: str, client_of: Both, live: str) -> None:
    """Each message arrives once, although the token ends after every one of them."""

    async def check() -> None:
        current = 1
        async with client_of(guard.url, token=lambda: f"t{current}") as client:
            stream = client.stream(name, content_type="application/json")
            await stream.create("application/json")
            found: list[int] = []
            await stream.append_json(0)
            async with stream.follow(live=live) as follower:
                async for chunk in follower:
                    if not (messages := chunk.json()):
                        continue
                    found += messages
                    if found[-1] == 5:
                        await stream.close_stream()
                        continue
                    guard.valid.add(f"t{current + 1}")
                    guard.expire(f"t{current}")
                    current += 1
                    await stream.append_json(found[-1] + 1)
        assert found == [0, 1, 2, 3, 4, 5]

    run(check())


def test_a_follower_without_a_new_token_ends_with_the_refusal(guard: Guard, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(guard.url, token="t1") as client:
            stream = client.stream(name)
            await stream.create(TEXT)
            with pytest.raises(Unauthorized) as caught:
                async with stream.follow(live="sse") as follower:
                    async for _ in follower:
                        guard.expire("t1")
        assert caught.value.code == "token_expired"

    run(check())


def test_a_producer_goes_on_with_a_new_token(guard: Guard, name: str, client_of: Both) -> None:
    async def check() -> None:
        guard.valid.add("t2")
        current = "t1"
        # The function returns the old token until that is refused.
        calls: list[str] = []

        def token() -> str:
            nonlocal current
            if calls and current not in guard.valid and calls[-1] == current:
                current = "t2"
            calls.append(current)
            return current

        async with client_of(guard.url, token=token) as client:
            stream = client.stream(name, content_type=TEXT)
            await stream.create(TEXT)
            async with stream.producer("p", linger_ms=0) as producer:
                await producer.append("a")
                await producer.flush()
                guard.expire("t1")
                for letter in "bcd":
                    await producer.append(letter)
                await producer.flush()
            assert await stream.read() == b"abcd"

    run(check())


def test_a_producer_without_a_right_ends_with_one_request(guard: Guard, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(guard.url, token=tokens("t1", "t1", "t2")) as client:
            stream = client.stream(name, content_type=TEXT)
            await stream.create(TEXT)
            guard.planned = [PRODUCER_FORBIDDEN] * 10
            with pytest.raises(Unauthorized):
                async with stream.producer("p", auto_claim=True) as producer:
                    await producer.append("a")
        assert [seen.method for seen in guard.seen] == ["PUT", "POST"]

    run(check())


# -- Refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (UNAUTHORIZED, Unauthorized),
        (FORBIDDEN, Forbidden),
        (HOST_REFUSED, HostRefused),
        (QUOTA_EXCEEDED, QuotaExceeded),
    ],
    ids=lambda one: one.code if isinstance(one, Refusal) else "",
)
def test_final_refusals_are_raised_at_once(
    guard: Guard, name: str, client_of: Both, refusal: Refusal, kind: type[RequestRefused]
) -> None:
    async def check() -> None:
        guard.planned = [refusal] * 10
        async with client_of(guard.url, token="t1") as client:
            stream = client.stream(name, content_type=TEXT)
            for request in (lambda: stream.create(TEXT), lambda: stream.append("a"), stream.read):
                with pytest.raises(kind) as caught:
                    await request()
                assert (caught.value.code, caught.value.detail) == (refusal.code, refusal.detail)
            with pytest.raises(kind):
                async with stream.producer("p", auto_claim=True) as producer:
                    await producer.append("a")
        assert len(guard.seen) == 4

    run(check())


def test_a_rate_limit_is_waited_for_and_then_raised(guard: Guard, name: str, client_of: Both) -> None:
    async def check() -> None:
        async with client_of(guard.url, token="t1") as client:
            stream = client.stream(name, content_type=TEXT)
            await stream.create(TEXT)
            guard.planned = [RATE_LIMITED]
            await stream.append("a")
            guard.planned = [RATE_LIMITED]
            async with stream.producer("p") as producer:
                await producer.append("b")
            assert await stream.read() == b"ab"
        async with client_of(guard.url, token="t1", retry=ONCE) as client:
            guard.planned = [RATE_LIMITED]
            with pytest.raises(RateLimited) as caught:
                await client.stream(name).read()
            assert caught.value.retry_after_seconds == 1.0

    run(check())
