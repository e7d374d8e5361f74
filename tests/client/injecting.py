"""Faults on request, in front of any server: what the official suite asks of its own server, for this one.

`POST {prefix}/_test/inject-error` names a path, a fault and how many requests it is for; `DELETE` forgets them all.
"""

import asyncio
import contextlib
import json
import random
import re
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

CONTROL = "/_test/inject-error"
LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
PIECE_BYTES = 64 * 1024

Fault = dict[str, Any]


class Injector:
    """Passes requests on, one per connection, but for those that a fault was asked for."""

    def __init__(self, server_url: str, prefix: str) -> None:
        found = urlsplit(server_url)
        self._server = (found.hostname, found.port)
        self._prefix = prefix
        self._faults: dict[str, Fault] = {}
        self.url = ""

    async def _serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await client.readuntil(b"\r\n\r\n")
            length = LENGTH.search(head)
            body = await client.readexactly(int(length[1])) if length else b""
            method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
            path = urlsplit(target).path.removeprefix(self._prefix)
            if path == CONTROL:
                self._control(method, body)
                back.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            else:
                await self._answer(self._consume(path, method), head + body, back)
            await back.drain()
        back.close()

    def _control(self, method: str, body: bytes) -> None:
        if method == "DELETE":
            self._faults.clear()
        else:
            fault = {name: value for name, value in json.loads(body).items() if value is not None}
            self._faults[fault["path"]] = fault

    def _consume(self, path: str, method: str) -> Fault:
        fault = self._faults.get(path, {})
        if not fault or fault.get("method", method) != method or random.random() >= fault.get("probability", 1):
            return {}
        fault["count"] -= 1
        if fault["count"] <= 0:
            del self._faults[path]
        return fault

    async def _answer(self, fault: Fault, request: bytes, back: asyncio.StreamWriter) -> None:
        delay_ms = fault.get("delayMs", 0) + random.random() * fault.get("jitterMs", 0)
        await asyncio.sleep(delay_ms / 1000)
        if fault.get("dropConnection"):
            back.transport.abort()
        elif "status" in fault:
            after = f"Retry-After: {fault['retryAfter']}\r\n" if "retryAfter" in fault else ""
            head = f"HTTP/1.1 {fault['status']} Injected\r\n{after}Content-Length: 5\r\nConnection: close\r\n\r\n"
            back.write(head.encode() + b"fault")
        else:
            await self._forward(fault, request, back)

    async def _forward(self, fault: Fault, request: bytes, back: asyncio.StreamWriter) -> None:
        server, up = await asyncio.open_connection(*self._server)
        try:
            up.write(
                re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", request).replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
            )
            await up.drain()
            head = await server.readuntil(b"\r\n\r\n")
            if "truncateBodyBytes" in fault or fault.get("corruptBody"):
                body = await server.read()
                body = body[: fault.get("truncateBodyBytes")]
                body = b"XY" + body[2:] if fault.get("corruptBody") else body
                back.write(LENGTH.sub(b"\r\nContent-Length: %d" % len(body), head) + body)
                return
            back.write(head)
            if "injectSseEvent" in fault and b"text/event-stream" in head:
                event = fault["injectSseEvent"]
                data = f"event: {event['eventType']}\ndata: {event['data']}\n\n".encode()
                back.write(b"%x\r\n%b\r\n" % (len(data), data))
            while data := await server.read(PIECE_BYTES):
                back.write(data)
                await back.drain()
        finally:
            up.close()

    async def _run(self, started: threading.Event) -> None:
        self._stop = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        started.set()
        await self._stop.wait()
        listening.close()

    @contextlib.contextmanager
    def running(self) -> Iterator["Injector"]:
        started = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._run(started)), daemon=True)
        thread.start()
        assert started.wait(10), "the injector did not start"
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join(10)
