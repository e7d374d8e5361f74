"""A guard in front of a real server: it asks for tokens, and refuses as a server with access rules does."""

import asyncio
import contextlib
import json
import re
from typing import NamedTuple
from urllib.parse import urlsplit

from .listening import Listener

LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
CONNECTION = re.compile(rb"(?i)\r\nconnection:[^\r]*")
TOKEN = re.compile(rb"(?i)\r\nauthorization: *([^\r]*)")
PIECE_BYTES = 64 * 1024
EXPIRED_EVENT = b'event: credential-expired\ndata:{"reason":"credential_expired"}\n\n'
WHOAMI = "/__headwater/whoami"


class Refusal(NamedTuple):
    """An answer that the guard gives in place of the server's."""

    status: int
    code: str
    detail: str = "As planned."
    headers: tuple[tuple[str, str], ...] = ()

    def render(self, method: str) -> bytes:
        problem = {"status": self.status, "code": self.code or None, "detail": self.detail}
        body = json.dumps(problem)
        lines = [
            f"HTTP/1.1 {self.status} Refused",
            "Content-Type: application/problem+json",
            "Cache-Control: no-store",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *(f"{name}: {value}" for name, value in self.headers),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n" + ("" if method == "HEAD" else body)).encode()


UNAUTHORIZED = Refusal(401, "unauthorized", headers=(("WWW-Authenticate", 'Bearer realm="headwater"'),))
EXPIRED = Refusal(
    401,
    "token_expired",
    "The token has expired.",
    (("WWW-Authenticate", 'Bearer realm="headwater", error="invalid_token", error_description="expired"'),),
)
FORBIDDEN = Refusal(403, "forbidden", "'reader' may not delete 'chat/room-42'.")
PRODUCER_FORBIDDEN = UNAUTHORIZED._replace(code="producer_forbidden", detail="'reader' may not append to 'chat/x'.")
HOST_REFUSED = Refusal(421, "host_refused", "This server does not serve the host 'evil.example'.")
RATE_LIMITED = Refusal(429, "rate_limited", "Too many requests.", (("Retry-After", "1"),))
QUOTA_EXCEEDED = Refusal(507, "quota_exceeded", "Bucket 'chat' may hold no more than 10 streams.")


class Seen(NamedTuple):
    """A request that reached the guard."""

    method: str
    path: str
    authorization: str | None


class Guard(Listener):
    """Forwards requests with a valid token, one per connection; refuses others, and those that it is told to."""

    def __init__(self, server_url: str, *tokens: str) -> None:
        found = urlsplit(server_url)
        self._server = (found.hostname, found.port)
        self.valid = set(tokens)
        self.planned: list[Refusal] = []
        """Answers to the next requests with a valid token."""
        self.has_whoami = True
        self.seen: list[Seen] = []
        self._expired: dict[str, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def expire(self, token: str) -> None:
        """Refuse a token from now on, and end the events that are sent to whoever has it."""
        self.valid.discard(token)
        self._loop.call_soon_threadsafe(lambda: self._expired.setdefault(token, asyncio.Event()).set())

    async def _serve(self, client: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await client.readuntil(b"\r\n\r\n")
            length = LENGTH.search(head)
            body = await client.readexactly(int(length[1])) if length else b""
            method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
            authorization = TOKEN.search(head)
            given = authorization[1].decode() if authorization else None
            path = urlsplit(target).path
            self.seen.append(Seen(method, path, given))
            token = (given or "").removeprefix("Bearer ")
            if token not in self.valid:
                back.write((EXPIRED if token in self._expired else UNAUTHORIZED).render(method))
            elif self.planned:
                back.write(self.planned.pop(0).render(method))
            elif path == WHOAMI and self.has_whoami:
                answer = json.dumps({"name": token, "kind": "token", "mode": "guarded"}).encode()
                head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
                back.write(head + b"Content-Length: %d\r\n\r\n" % len(answer) + answer)
            else:
                await self._forward(head + body, token, back)
            await back.drain()
        back.close()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks)

    async def _forward(self, request: bytes, token: str, back: asyncio.StreamWriter) -> None:
        server, up = await asyncio.open_connection(*self._server)
        ended = asyncio.create_task(self._expired.setdefault(token, asyncio.Event()).wait())
        try:
            up.write(CONNECTION.sub(b"", request).replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
            head = await server.readuntil(b"\r\n\r\n")
            back.write(head)
            if b"text/event-stream" not in head:
                back.write(await server.read())
                return
            while True:
                data = asyncio.create_task(server.read(PIECE_BYTES))
                await asyncio.wait({data, ended}, return_when=asyncio.FIRST_COMPLETED)
                if not data.done():
                    data.cancel()
                    back.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(EXPIRED_EVENT), EXPIRED_EVENT))
                    return
                if not data.result():
                    return
                back.write(data.result())
                await back.drain()
        finally:
            ended.cancel()
            up.close()
