"""Responses carry what their clients need, and no more."""

import asyncio

import pytest

from headwater.settings import Settings

from .fronts import Front

LOCAL, OPEN = Settings(memory=True), Settings(memory=True, no_auth=True)
SOME = Settings(memory=True, no_auth=True, cors_origins="https://app.example,https://other.example")
ORIGINS = {LOCAL: "http://localhost:3000", OPEN: "https://app.example", SOME: "https://app.example"}
DATE = "Date: Wed, 18 Nov 2026 11:20:06 GMT\r\n"
BYTES_MAX = 400
CORS = {"Access-Control-Allow-Origin", "Access-Control-Expose-Headers"}
POLICIES = {"Cross-Origin-Resource-Policy", "Content-Security-Policy", "Referrer-Policy"}
PRODUCER = "Producer-Id: writer\r\nProducer-Epoch: 1234567\r\nProducer-Seq: 0\r\n"


async def ask(front: Front, method: str, target: str, lines: str = "", body: bytes = b"") -> str:
    connection, transport = front.connect()
    if body or method == "PUT":
        lines += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    connection.data_received(f"{method} {target} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode() + body)
    await front.settle()
    while not transport.sent:
        await asyncio.sleep(0.001)
    connection.connection_lost(None)
    return transport.sent.decode()


def headers_of(response: str) -> dict[str, str]:
    lines = [line.split(": ", 1) for line in response.partition("\r\n\r\n")[0].split("\r\n")[1:]]
    assert len(dict(lines)) == len(lines), "a header was sent twice"
    return dict(lines)


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("settings", [LOCAL, OPEN, SOME], ids=["local", "open", "some origins"])
def test_a_response_to_an_append_has_at_most_400_bytes(settings: Settings, short: bool) -> None:
    origin = f"Origin: {ORIGINS[settings]}\r\n"
    large = b"[" + b",".join([b"%d" % (10**6 + n) for n in range(8)]) + b"]"

    async def run() -> None:
        front = Front(short=short, settings=settings)
        await ask(front, "PUT", "/v1/stream/s")
        sizes = {"plain": await ask(front, "POST", "/v1/stream/s", "", b"{}")}
        stream = front.node.only.state.streams["_default/s"]
        stream.tail, stream.record_next, stream.incarnation = 7_654_321, 7_654_321, 7_654_321
        sizes["seven digits"] = await ask(front, "POST", "/v1/stream/s", "", large)
        sizes["producer"] = await ask(front, "POST", "/v1/stream/s", PRODUCER, b"{}")
        sizes["origin"] = await ask(front, "POST", "/v1/stream/s", origin, b"{}")
        for form, response in sizes.items():
            assert response.startswith("HTTP/1.1 200" if form == "producer" else "HTTP/1.1 204"), form
            assert len(DATE) + len(response) <= BYTES_MAX, (form, response)
            assert POLICIES.isdisjoint(headers_of(response)), form
            assert (headers_of(response).keys() >= CORS) == (form == "origin")

    asyncio.run(run())


@pytest.mark.parametrize("short", [True, False])
def test_what_shared_caches_keep_is_for_all_origins_whoever_asked(short: bool) -> None:
    async def run() -> None:
        front = Front(short=short, settings=OPEN)
        await ask(front, "PUT", "/v1/stream/s", "", b"[1,2]")
        tag = headers_of(await ask(front, "GET", "/v1/stream/s?offset=-1"))["ETag"]
        cached = {
            "/v1/stream/s?offset=-1": "",
            "/v1/stream/s?offset=0000000000000000_0000000000000020": "",
            "/v1/stream/s?record=0": "",
            "/v1/stream/s": f"If-None-Match: {tag}\r\n",
            "/v1/stream/s?offset=-1&live=long-poll": "",
        }
        for target, lines in cached.items():
            for origin in ("", "Origin: https://app.example\r\n"):
                found = headers_of(await ask(front, "GET", target, lines + origin))
                assert [found[name] for name in sorted(CORS)] == ["*", "*"], target
        offset = "00000000000000000001"
        await ask(front, "PUT", f"/_default/s/snapshot/{offset}", "", b"{}")
        for origin in ("", "Origin: https://app.example\r\n"):
            found = headers_of(await ask(front, "HEAD", f"/_default/s/snapshot/{offset}", origin))
            assert [found[name] for name in ("Stream-Snapshot-Offset", *sorted(CORS))] == [offset, "*", "*"]
        for target in ("/v1/stream/s?offset=now", "/v1/stream/none", "/healthz"):
            assert CORS.isdisjoint(headers_of(await ask(front, "GET", target)))
            assert headers_of(await ask(front, "GET", target, "Origin: https://app.example\r\n")).keys() >= CORS

    asyncio.run(run())


@pytest.mark.parametrize("short", [True, False])
def test_if_some_origins_may_read_only_those_are_told_so(short: bool) -> None:
    async def run() -> None:
        front = Front(short=short, settings=SOME)
        await ask(front, "PUT", "/v1/stream/s", "", b"[1,2]")
        for target in ("/v1/stream/s?offset=-1", "/v1/stream/s?offset=now", "/v1/stream/none", "/healthz"):
            assert CORS.isdisjoint(headers_of(await ask(front, "GET", target)))
            assert CORS.isdisjoint(headers_of(await ask(front, "GET", target, "Origin: https://evil.example\r\n")))
            found = headers_of(await ask(front, "GET", target, "Origin: https://other.example\r\n"))
            assert [found[name] for name in sorted(CORS)] == ["https://other.example", "*"], target

    asyncio.run(run())


@pytest.mark.parametrize("settings", [OPEN, SOME], ids=["open", "some origins"])
def test_a_page_may_read_why_its_head_was_refused(settings: Settings) -> None:
    lines = "Origin: https://app.example\r\n"
    refused = {
        "413": ("POST", "/v1/stream/s", f"{lines}Content-Length: 999999999\r\n"),
        "414": ("GET", f"/v1/stream/{'x' * 9_000}", lines),
        "431": ("GET", "/v1/stream/s", f"{lines}X-Long: {'x' * 70_000}\r\n"),
        "400": ("GET", "/v1/stream/s", f"{lines}not a header\r\n"),
    }

    async def run() -> None:
        front = Front(short=True, settings=settings)
        for status, request in refused.items():
            response = (await ask(front, *request)).removesuffix("<eof>")
            assert response.startswith(f"HTTP/1.1 {status} ")
            # Which origin asks is not known, so a server for some of them names none.
            assert (headers_of(response).keys() >= CORS) == (settings is OPEN), status

    asyncio.run(run())


def test_extensions_are_named_where_clients_look_for_them() -> None:
    async def run() -> None:
        front = Front(short=False)
        assert "Stream-Extensions" in headers_of(await ask(front, "PUT", "/v1/stream/s", "", b"[1]"))
        for method, target, named in (
            ("PUT", "/v1/stream/s", True),
            ("HEAD", "/v1/stream/s", True),
            ("GET", "/v1/stream/s?record=0", True),
            ("GET", "/v1/stream/s?offset=-1", False),
            ("GET", "/v1/stream/s?offset=now", False),
            ("POST", "/v1/stream/s", False),
            ("DELETE", "/v1/stream/s", False),
        ):
            body = b"{}" if method == "POST" else b""
            assert ("Stream-Extensions" in headers_of(await ask(front, method, target, "", body))) == named, target

    asyncio.run(run())
