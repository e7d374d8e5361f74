"""Faults on request, in front of any server: the official suite expects its own server to have them.

`POST {prefix}/_test/inject-error` names a path, a fault and the number of requests it applies to; `DELETE` removes all.
"""

import asyncio
import contextlib
import json
import random
import re
from typing import Any
from urllib.parse import urlsplit

from .listening import Listener

CONTROL = "/_test/inject-error"
LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
PIECE_BYTES = 64 * 1024

Fault = dict[str, Any]


class Injector(Listener):
    """Forwards requests, one per connection, except those that a fault applies to."""

    def __init__(self, server_url: str, prefix: str) -> None:
        found = urlsplit(server_url)
        self._server = (found.hostname, found.port)
        self._prefix = prefix
        self._faults: dict[str, Fault] = {}

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
