"""What the URL table does for snapshots, retention and bootstrap."""

import re
import secrets
from collections.abc import Callable
from functools import partial

from headwater.http.addresses import Address
from headwater.http.api.parsing import parse_incarnation
from headwater.http.exchange import READ, WRITE, Exchange
from headwater.http.wire import statuses
from headwater.http.wire.downloads import Download, Parts, blob_parts
from headwater.http.wire.requests import Request, parse_query
from headwater.http.wire.statuses import Answer
from headwater.http.wire.uploads import Upload
from headwater.node.node import Node
from headwater.node.reads.bootstrap import Bootstrap
from headwater.node.reads.fetcher import fetch_messages
from headwater.protocol import content_types, multipart, offsets
from headwater.protocol.offsets import render
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.blobs import Blob, BlobReader
from headwater.streams.commands import PublishSnapshot, Retain, Snapshot
from headwater.streams.queries import Border, Head
from headwater.streams.replies import Anchored, Described, Reply

POSITION_MAX = 2**63 - 1
"""No tail lies behind this, and what is logged must fit into 64 bits; an offset may have more digits."""

PART_BYTES = 64 * 1024
"""How many bytes of messages a bootstrap writes at a time, or one message."""

_RECORD = re.compile(r"0|[1-9][0-9]{0,18}")


def parse_border(request: Request, address: Address, log_id: str) -> Border | Refusal:
    """The place that a snapshot or a retention is meant for: an offset in the path, or a record in the query."""
    incarnation = parse_incarnation(request, log_id)
    if isinstance(incarnation, Refusal):
        return incarnation
    parameters = parse_query(request.query)
    if isinstance(parameters, Refusal):
        return parameters
    record = parameters.get("record")
    if (record is None) == (address.argument is None):
        return Refusal(Code.BAD_REQUEST, "Name either an offset in the path or a record in the query.")
    if record is not None:
        if _RECORD.fullmatch(record) is None:
            return Refusal(Code.BAD_REQUEST, f"record={record[:40]!r} is no whole number.")
        return Border(address.name, None, int(record), incarnation)
    offset = offsets.parse(address.argument or "")
    if offset is None or offset == offsets.NOW:
        return Refusal(Code.INVALID_OFFSET, f"{address.argument!r} is no offset; use one that the server gave you.")
    return Border(address.name, min(offset, POSITION_MAX), None, incarnation)


# -- Publishing -------------------------------------------------------------------------------------------------------


def publish(request: Request, address: Address, exchange: Exchange) -> None:
    """The body is in an upload already; it becomes a snapshot if it may stand where it is meant to."""
    upload = request.upload
    assert isinstance(upload, Upload), "the reader gives every snapshot an upload"
    border = parse_border(request, address, exchange.node.log_id)
    if isinstance(border, Refusal):
        upload.abandon()
        exchange.reply(border)
    else:
        exchange.run(WRITE, _publish, border, upload, exchange)


def _publish(border: Border, upload: Upload, exchange: Exchange) -> None:
    exchange.look(border, partial(_publish_at, border, upload, exchange))


def _publish_at(border: Border, upload: Upload, exchange: Exchange, place: Reply) -> None:
    if isinstance(place, Anchored):
        upload.finish(partial(_uploaded, border.name, place, exchange))
    else:
        upload.abandon()
        exchange.reply(place)


def _uploaded(name: str, place: Anchored, exchange: Exchange, blob: Blob | OSError) -> None:
    if isinstance(blob, OSError):
        exchange.refuse(Code.OVERLOADED, "The snapshot could not be stored; make room on the disk and try again.")
        return
    content_type = exchange.request.header(b"content-type")
    if content_type is None or not content_types.is_valid(content_type):
        content_type = content_types.DEFAULT
    snapshot = Snapshot(place.to, place.record_to, blob.id, content_type, blob.size, blob.digest)
    trims = exchange.connection.settings.retention == "snapshot"
    exchange.node.submit(PublishSnapshot(name, place.incarnation, snapshot, trims), exchange.reply)


def retain(request: Request, address: Address, exchange: Exchange) -> None:
    border = parse_border(request, address, exchange.node.log_id)
    if isinstance(border, Refusal):
        exchange.reply(border)
    else:
        exchange.run(WRITE, _retain, border, exchange)


def _retain(border: Border, exchange: Exchange) -> None:
    exchange.look(border, partial(_retain_from, border, exchange))


def _retain_from(border: Border, exchange: Exchange, place: Reply) -> None:
    if isinstance(place, Anchored):
        exchange.node.submit(Retain(border.name, place.incarnation, place.to, place.record_to), exchange.reply)
    else:
        exchange.reply(place)


# -- Reading ----------------------------------------------------------------------------------------------------------


def read(request: Request, address: Address, exchange: Exchange) -> None:
    """The latest snapshot by a redirect, or the one at an offset."""
    _described(request, address, exchange, partial(_read, address, exchange))


def _described(request: Request, address: Address, exchange: Exchange, then: Callable[[Described], None]) -> None:
    incarnation = parse_incarnation(request, exchange.node.log_id)
    if isinstance(incarnation, Refusal):
        exchange.reply(incarnation)
    else:
        exchange.run(READ, _describe, Head(address.name, incarnation), exchange, then)


def _describe(query: Head, exchange: Exchange, then: Callable[[Described], None]) -> None:
    reply = exchange.node.describe(query)
    if isinstance(reply, Described):
        then(reply)
    else:
        exchange.reply(reply)


def _read(address: Address, exchange: Exchange, stream: Described) -> None:
    snapshot, voice = stream.snapshot, exchange.voice
    if snapshot is None or not _names(address, snapshot):
        exchange.reply(_no_snapshot(address, stream))
        return
    lines = statuses.snapshot_lines(stream.incarnation, snapshot.offset, stream.next_offset, stream.closed, voice)
    if address.argument is None:
        location = exchange.url(f"/{render(snapshot.offset, voice.form)}")
        exchange.answer(Answer(307, f"{lines}Location: {location}\r\nCache-Control: no-store\r\n"))
        return
    lines += f"Content-Type: {snapshot.content_type}\r\nCache-Control: no-store\r\n"
    if exchange.request.method == b"HEAD":
        exchange.answer(Answer(200, f"{lines}Content-Length: {snapshot.size}\r\n"))
        return
    blob = exchange.node.shard_of(address.name).blobs.open(snapshot.blob)
    parts = blob_parts(exchange.node, blob, snapshot.size, snapshot.digest)
    exchange.connection.take_over(exchange, Download(exchange, lines, parts, snapshot.size, blob))


def _names(address: Address, snapshot: Snapshot) -> bool:
    return address.argument is None or offsets.parse(address.argument) == snapshot.offset


def delete(request: Request, address: Address, exchange: Exchange) -> None:
    """Never deletes: the latest one is needed by bootstrap, and no other one is visible."""
    _described(request, address, exchange, partial(_refuse_delete, address, exchange))


def _refuse_delete(address: Address, exchange: Exchange, stream: Described) -> None:
    if stream.snapshot is not None and address.argument is not None and _names(address, stream.snapshot):
        detail = "The latest snapshot cannot be deleted: bootstrap needs it."
        exchange.reply(Refusal(Code.SNAPSHOT_CONFLICT, detail, incarnation=stream.incarnation))
    else:
        exchange.reply(_no_snapshot(address, stream))


def _no_snapshot(address: Address, stream: Described) -> Refusal:
    where = "" if address.argument is None else f" at {address.argument[:40]!r}"
    return Refusal(
        Code.SNAPSHOT_NOT_FOUND,
        f"The stream {address.name!r} has no snapshot{where}.",
        incarnation=stream.incarnation,
        next_offset=stream.next_offset,
    )


# -- Bootstrap --------------------------------------------------------------------------------------------------------


def bootstrap(request: Request, address: Address, exchange: Exchange) -> None:
    parameters = parse_query(request.query)
    if isinstance(parameters, Refusal) or "live" in parameters:
        exchange.refuse(Code.BAD_REQUEST, "A bootstrap is one-shot; read the stream itself for what follows.")
        return
    incarnation = parse_incarnation(request, exchange.node.log_id)
    if isinstance(incarnation, Refusal):
        exchange.reply(incarnation)
    else:
        exchange.run(READ, _bootstrap, address.name, incarnation, exchange)


def _bootstrap(name: str, incarnation: int | None, exchange: Exchange) -> None:
    found = exchange.node.bootstrap(name, incarnation)
    if isinstance(found, Refusal):
        exchange.reply(found)
        return
    stream, boundary = found.described, secrets.token_hex(16)
    offset = "-1" if stream.snapshot is None else render(stream.snapshot.offset, exchange.voice.form)
    lines = (
        f"Content-Type: {multipart.content_type(boundary)}\r\nStream-Snapshot-Offset: {offset}\r\n"
        f"Stream-Up-To-Date: true\r\nCache-Control: no-store\r\n"
    ) + statuses.stream_lines(stream.incarnation, stream.next_offset, stream.closed, exchange.voice)
    blob = None if stream.snapshot is None else exchange.node.shard_of(name).blobs.open(stream.snapshot.blob)
    parts = _parts(exchange.node, found, boundary, blob)
    exchange.connection.take_over(exchange, Download(exchange, lines, parts, None, blob))


async def _parts(node: Node, found: Bootstrap, boundary: str, blob: BlobReader | None) -> Parts:
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
            if size >= PART_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
        if parts:
            yield b"".join(parts)
    yield multipart.end(boundary)
