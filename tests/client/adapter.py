"""The adapter for the official client suite: each command is a line of JSON, and so is its answer.

It is written for the asynchronous client; the blocking one is given the same interface. Its reports about requests and
responses are taken from httpx2, so they describe what was really sent.
"""

import asyncio
import base64
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from headwater.client import (
    AsyncClient,
    BadRequest,
    Chunk,
    Client,
    ClientError,
    Conflict,
    NotFound,
    ProtocolViolation,
    RequestRefused,
    RetryPolicy,
    SequenceConflict,
    StreamClosed,
    TransportFailed,
)
from headwater.client.producing import ProducerOptions
from headwater.protocol import content_types

# The suite runs this file as a program, so modules are searched in its folder only.
sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.client.lifting import Lifted

Json = dict[str, Any]

FEATURES = (
    "batching",
    "sse",
    "longPoll",
    "auto",
    "streaming",
    "dynamicHeaders",
    "retryOptions",
    "batchItems",
    "strictZeroValidation",
)
CODES: list[tuple[type[Exception], str]] = [
    (NotFound, "NOT_FOUND"),
    (StreamClosed, "STREAM_CLOSED"),
    (SequenceConflict, "SEQUENCE_CONFLICT"),
    (Conflict, "CONFLICT"),
    (BadRequest, "INVALID_OFFSET"),
    (RequestRefused, "UNEXPECTED_STATUS"),
    (ProtocolViolation, "PARSE_ERROR"),
    (TransportFailed, "NETWORK_ERROR"),
    (ValueError, "INVALID_ARGUMENT"),
]
NAMES = {
    "attempts_max": "maxRetries",
    "first_delay_seconds": "initialDelayMs",
    "delay_seconds_max": "maxDelayMs",
    "batch_bytes_max": "maxBatchBytes",
    "batch_messages_max": "maxBatchItems",
}
"""Our settings and their names in the suite."""


@dataclass
class Adapter:
    """The state between commands."""

    blocking: bool
    url: str = ""
    types: dict[str, str] = field(default_factory=dict)
    producers: dict[tuple[str, str, int], Any] = field(default_factory=dict)
    dynamic_headers: dict[str, Callable[[], str]] = field(default_factory=dict)
    dynamic_params: dict[str, Callable[[], str]] = field(default_factory=dict)
    seen: list[httpx2.Response] = field(default_factory=list)
    http: Any = None

    async def handle(self, command: Json) -> Json:
        kind = command["type"]
        try:
            answer: Json = await getattr(self, "do_" + kind.replace("-", "_"))(command)
        except (ClientError, ValueError) as error:
            return refused(kind, error)
        return {"type": kind, "success": True, **answer}

    def client(self, command: Json) -> Any:
        headers = {**self.dynamic_headers, **(command.get("headers") or {})}
        retry = RetryPolicy(attempts_max=5)
        follow_retry = RetryPolicy(attempts_max=8)
        made: Any = Client if self.blocking else AsyncClient
        client = made(
            self.url,
            headers=headers,
            params=dict(self.dynamic_params),
            retry=retry,
            follow_retry=follow_retry,
            http=self.http,
        )
        return Lifted(client) if self.blocking else client

    def stream(self, command: Json) -> Any:
        self.seen.clear()
        path = command["path"]
        return self.client(command).stream(self.url + path, content_type=self.types.get(path))

    def sent(self) -> Json:
        """The dynamic headers and parameters of the last request, as it was sent."""
        request = self.seen[-1].request
        headers = {name: request.headers[name] for name in self.dynamic_headers if name in request.headers}
        params = {name: request.url.params[name] for name in self.dynamic_params if name in request.url.params}
        return {"headersSent": headers, "paramsSent": params}

    # -- Commands ------------------------------------------------------------------------------------------------------

    async def do_init(self, command: Json) -> Json:
        self.url = command["serverUrl"]
        if self.blocking:
            self.http = httpx2.Client(event_hooks={"response": [self.seen.append]})
        else:

            async def see(response: httpx2.Response) -> None:
                self.seen.append(response)

            self.http = httpx2.AsyncClient(event_hooks={"response": [see]})
        name = f"headwater-{'sync' if self.blocking else 'async'}"
        return {"clientName": name, "clientVersion": "0.1.0", "features": dict.fromkeys(FEATURES, True)}

    async def do_shutdown(self, command: Json) -> Json:
        return {}

    async def do_create(self, command: Json) -> Json:
        content_type = command.get("contentType") or content_types.DEFAULT
        created = await self.stream(command).create(
            content_type,
            body=command.get("data"),
            ttl_seconds=command.get("ttlSeconds"),
            expires_at=command.get("expiresAt"),
            closed=bool(command.get("closed")),
        )
        self.types[command["path"]] = content_type
        return {"status": self.seen[-1].status_code, "offset": created.next_offset}

    async def do_connect(self, command: Json) -> Json:
        info = await self.stream(command).head()
        self.types[command["path"]] = info.content_type
        return {"status": 200, "offset": info.next_offset}

    async def do_append(self, command: Json) -> Json:
        stream = self.stream(command)
        seq = None if command.get("seq") is None else str(command["seq"])
        data = base64.b64decode(command["data"]) if command.get("binary") else command["data"]
        if self.json(command["path"]):
            appended = await stream.append_json(json.loads(data), seq=seq)
        else:
            appended = await stream.append(data, seq=seq)
        return {"status": 200, "offset": appended.next_offset, **self.sent()}

    async def do_read(self, command: Json) -> Json:
        stream = self.stream(command)
        live = command.get("live")
        offset = command.get("offset") or "-1"
        if live:
            seconds = (command.get("timeoutMs") or 5000) / 1000
            reading = stream.follow(offset, live="auto" if live is True else live, timeout_seconds=seconds)
        else:
            reading = stream.chunks(offset)
        chunks: list[Chunk] = []
        async with reading:
            async for chunk in reading:
                if not chunk.empty:
                    chunks.append(chunk)
                if live and command.get("waitForUpToDate") and chunk.up_to_date:
                    break
                if live and len(chunks) >= (command.get("maxChunks") or 100):
                    break
        return {
            "status": self.seen[-1].status_code,
            "chunks": [self.shown(command["path"], chunk) for chunk in chunks],
            "offset": reading.offset,
            "upToDate": reading.up_to_date,
            "streamClosed": reading.closed,
            **self.sent(),
        }

    async def do_head(self, command: Json) -> Json:
        info = await self.stream(command).head()
        self.types[command["path"]] = info.content_type
        return {
            "status": 200,
            "offset": info.next_offset,
            "contentType": info.content_type,
            "ttlSeconds": info.ttl_seconds,
            "expiresAt": info.expires_at,
            "streamClosed": info.closed,
        }

    async def do_delete(self, command: Json) -> Json:
        await self.stream(command).delete()
        self.types.pop(command["path"], None)
        return {"status": 200}

    async def do_close(self, command: Json) -> Json:
        closed = await self.stream(command).close_stream(command.get("data"))
        return {"finalOffset": closed.next_offset}

    # -- Producers -----------------------------------------------------------------------------------------------------

    def producer(self, command: Json) -> Any:
        key = (command["path"], command["producerId"], command["epoch"])
        if key not in self.producers:
            self.producers[key] = self.stream(command).producer(
                command["producerId"], epoch=command["epoch"], linger_ms=0, **duplicates(command)
            )
        return self.producers[key]

    async def do_idempotent_append(self, command: Json) -> Json:
        producer = self.producer(command)
        try:
            future = await self.give(producer, command["path"], command["data"])
            await producer.flush()
        except ClientError:
            self.producers.pop((command["path"], command["producerId"], command["epoch"]))
            raise
        return {"status": 200, "offset": future.result().next_offset, "duplicate": future.result().duplicate}

    async def do_idempotent_append_batch(self, command: Json) -> Json:
        width = command.get("maxInFlight") or 1
        producer = self.stream(command).producer(
            command["producerId"],
            epoch=command["epoch"],
            **duplicates(command),
            in_flight_max=width,
            linger_ms=0 if width > 1 else 1000,
            batch_bytes_max=1 if width > 1 else 1024 * 1024,
        )
        async with producer:
            for item in command["items"]:
                await self.give(producer, command["path"], item)
            await producer.flush()
        return {"status": 200}

    async def do_idempotent_close(self, command: Json) -> Json:
        closed = await self.producer(command).close_stream(command.get("data"))
        return {"status": 200, "finalOffset": closed.next_offset}

    async def do_idempotent_detach(self, command: Json) -> Json:
        await self.producer(command).aclose()
        self.producers.pop((command["path"], command["producerId"], command["epoch"]))
        return {"status": 200}

    async def give(self, producer: Any, path: str, data: str) -> Any:
        return await (producer.append_json(json.loads(data)) if self.json(path) else producer.append(data))

    # -- Settings ------------------------------------------------------------------------------------------------------

    async def do_set_dynamic_header(self, command: Json) -> Json:
        self.dynamic_headers[command["name"]] = value_of(command["valueType"], command.get("initialValue"))
        return {}

    async def do_set_dynamic_param(self, command: Json) -> Json:
        self.dynamic_params[command["name"]] = value_of(command["valueType"], None)
        return {}

    async def do_clear_dynamic(self, command: Json) -> Json:
        self.dynamic_headers.clear()
        self.dynamic_params.clear()
        return {}

    async def do_validate(self, command: Json) -> Json:
        target = command["target"]
        try:
            if target["target"] == "retry-options":
                RetryPolicy(
                    attempts_max=target.get("maxRetries", 3) + 1,
                    first_delay_seconds=target.get("initialDelayMs", 100) / 1000,
                    delay_seconds_max=target.get("maxDelayMs", 5000) / 1000,
                    multiplier=target.get("multiplier", 2.0),
                )
            else:
                ProducerOptions(
                    target.get("producerId", "test-producer"),
                    target.get("epoch", 0),
                    batch_bytes_max=target.get("maxBatchBytes", 1),
                    batch_messages_max=target.get("maxBatchItems", 1),
                )
        except ValueError as error:
            ours = str(error).partition(" ")[0]
            raise ValueError(str(error).replace(ours, NAMES.get(ours, ours), 1)) from error
        return {}

    def json(self, path: str) -> bool:
        return content_types.is_json(self.types.get(path, content_types.DEFAULT))

    def shown(self, path: str, chunk: Chunk) -> Json:
        if self.json(path):
            data = json.dumps(chunk.json(), separators=(",", ":"), ensure_ascii=False)
            return {"data": data, "offset": chunk.next_offset}
        return {"data": chunk.data.decode(errors="replace"), "offset": chunk.next_offset}


def duplicates(command: Json) -> Json:
    """How a producer of the suite takes duplicates: its clients accept those that they do not avoid."""
    return {"auto_claim": True} if command.get("autoClaim") else {"on_duplicate": "accept"}


def value_of(kind: str, initial: str | None) -> Callable[[], str]:
    calls = iter(range(1, sys.maxsize))
    values: dict[str, Callable[[], str]] = {
        "counter": lambda: str(next(calls)),
        "timestamp": lambda: str(time.time_ns() // 1_000_000),
        "token": lambda: initial or "",
    }
    return values[kind]


def refused(kind: str, error: Exception) -> Json:
    code = next((code for known, code in CODES if isinstance(error, known)), "INTERNAL_ERROR")
    answer: Json = {"type": "error", "success": False, "commandType": kind, "errorCode": code, "message": str(error)}
    return {**answer, "status": error.status} if isinstance(error, RequestRefused) else answer


async def main() -> None:
    adapter = Adapter(blocking="--async" not in sys.argv[1:])
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = json.loads(line)
        print(json.dumps(await adapter.handle(command)), flush=True)
        if command["type"] == "shutdown":
            return


if __name__ == "__main__":
    asyncio.run(main())
