"""Bootstrap: the latest snapshot of a stream and everything after it, in one multipart response."""

import asyncio
import secrets
from functools import partial

from headwater.http.api.conditions import parse_incarnation
from headwater.http.api.downloads import Download, OpenBlob, Parts, blob_parts, send_blob
from headwater.http.exchange.exchange import READ, Exchange
from headwater.http.wire import statuses
from headwater.http.wire.addresses import Address
from headwater.http.wire.rendering import NO_STORE_LINE
from headwater.http.wire.requests import Request, parse_query
from headwater.node.node import Node
from headwater.node.reads.bootstrap import Bootstrap
from headwater.node.reads.pages import fetch_messages
from headwater.protocol import content_types, headers, multipart
from headwater.protocol.offsets import render
from headwater.protocol.refusals import Code, Refusal

PART_BYTES = 64 * 1024
PART_MESSAGES = 4_096
"""How much is written at a time: so many bytes or messages, or one message that is larger."""


def read(request: Request, address: Address, exchange: Exchange) -> None:
    """Send the latest snapshot and everything after it."""
    parameters = parse_query(request.query)
    if isinstance(parameters, Refusal):
        exchange.reply(parameters)
        return
    if "live" in parameters:
        exchange.refuse(Code.BAD_REQUEST, "A bootstrap cannot be live; read the stream itself for what follows.")
        return
    incarnation = parse_incarnation(request, exchange.node.log_id)
    if isinstance(incarnation, Refusal):
        exchange.reply(incarnation)
    else:
        exchange.run(READ, _read, address.name, incarnation, exchange)


def _read(name: str, incarnation: int | None, exchange: Exchange) -> None:
    found = exchange.node.bootstrap(name, incarnation)
    if isinstance(found, Refusal):
        exchange.reply(found)
        return
    stream, boundary = found.described, secrets.token_hex(16)
    offset = "-1" if stream.snapshot is None else render(stream.snapshot.offset, exchange.dialect.form)
    lines = (
        f"{headers.CONTENT_TYPE.line}{multipart.content_type(boundary)}\r\n"
        f"{headers.STREAM_SNAPSHOT_OFFSET.line}{offset}\r\n{headers.STREAM_UP_TO_DATE.line}true\r\n{NO_STORE_LINE}"
    ) + statuses.stream_lines(stream.incarnation, stream.next_offset, stream.closed, exchange.dialect)
    if stream.snapshot is not None:
        lines += f"{headers.STREAM_SNAPSHOT_DIGEST.line}{stream.snapshot.digest}\r\n"
    send = partial(_send, exchange, found, lines, boundary)
    if stream.snapshot is None:
        send(None)
    else:
        again = partial(exchange.run, READ, _read, name, incarnation, exchange)
        send_blob(exchange, name, stream.snapshot.blob, send, again)


def _send(exchange: Exchange, found: Bootstrap, lines: str, boundary: str, blob: OpenBlob | None) -> None:
    parts = _parts(exchange.node, found, boundary, blob)
    exchange.connection.take_over(exchange, Download(exchange, lines, parts, None, blob))


async def _parts(node: Node, found: Bootstrap, boundary: str, blob: OpenBlob | None) -> Parts:
    stream, snapshot = found.described, found.described.snapshot
    if snapshot is None or blob is None:
        yield multipart.part_head(boundary, content_types.DEFAULT, first=True)
    else:
        yield multipart.part_head(boundary, snapshot.content_type, first=True)
        async for data in blob_parts(node, blob, snapshot.size, snapshot.digest):
            yield data
    head = multipart.part_head(boundary, stream.content_type, first=False)
    async for slice_ in found.slices():
        parts: list[bytes] = []
        size = 0
        for message in fetch_messages(slice_):
            parts += head, message
            size += len(message)
            if size >= PART_BYTES or len(parts) >= 2 * PART_MESSAGES:
                yield b"".join(parts)
                await asyncio.sleep(0)  # The client may read as fast as this makes parts; others have their turn.
                parts, size = [], 0
        if parts:
            yield b"".join(parts)
    yield multipart.end(boundary)
