"""Snapshots and retention: publish, read, trim."""

from collections.abc import Callable
from functools import partial
from urllib.parse import quote

from headwater.http.api.conditions import NUMBER, parse_incarnation, parse_versions
from headwater.http.api.downloads import Download, OpenBlob, blob_parts, send_blob
from headwater.http.context import Context
from headwater.http.exchange.exchange import IN_TURN, READ, Exchange
from headwater.http.wire import statuses
from headwater.http.wire.addresses import Address
from headwater.http.wire.rendering import NO_STORE_LINE
from headwater.http.wire.requests import Request, parse_query
from headwater.http.wire.statuses import Answer
from headwater.http.wire.uploads import Upload
from headwater.protocol import content_types, headers, offsets
from headwater.protocol.limits import SNAPSHOT_UPLOAD_US_MAX
from headwater.protocol.offsets import Form, render
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.blobs import Blob
from headwater.storage.disk import shortage_of
from headwater.streams.commands.snapshots import PublishSnapshot, Retain, Snapshot
from headwater.streams.queries import Boundary, Head
from headwater.streams.replies import Anchored, Described, Reply

POSITION_MAX = 2**63 - 1
"""No tail is beyond this, and a logged number must fit into 64 bits; an offset may have more digits."""


def parse_boundary(request: Request, address: Address, log_id: str) -> Boundary | Refusal:
    """The position that a snapshot or a retention is for: an offset in the path, or a record in the query."""
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
        if NUMBER.fullmatch(record) is None:
            return Refusal(Code.BAD_REQUEST, f"record={record[:40]!r} is not a whole number.")
        return Boundary(address.name, None, int(record), incarnation)
    offset = offsets.parse_position(address.argument or "", Form.PLAIN)
    if offset is None:
        return Refusal(Code.INVALID_OFFSET, f"{address.argument!r} is not an offset; use one from a response.")
    return Boundary(address.name, min(offset, POSITION_MAX), None, incarnation)


# -- Publishing -------------------------------------------------------------------------------------------------------


def intake(context: Context, balance: Callable[[], None]) -> Upload:
    """An upload to a new blob."""
    shard = context.node.only
    return Upload(
        lambda: shard.blobs.create(shard.now() + SNAPSHOT_UPLOAD_US_MAX), context.node.threads, context.blobs, balance
    )


def judge(request: Request, address: Address, context: Context) -> Refusal | None:
    """Why a snapshot would be refused, as far as that is known without its bytes and without the lake's."""
    boundary = parse_boundary(request, address, context.node.log_id)
    if isinstance(boundary, Refusal):
        return boundary
    return context.node.judge_snapshot(boundary, trims=context.settings.retention == "snapshot")


def publish(request: Request, address: Address, exchange: Exchange) -> None:
    """Make the uploaded body the stream's snapshot, if its position is valid."""
    upload = request.intake
    assert isinstance(upload, Upload), "the body of every snapshot is uploaded as it arrives"
    boundary = parse_boundary(request, address, exchange.node.log_id)
    if isinstance(boundary, Refusal):
        upload.abandon()
        exchange.reply(boundary)
    else:
        # Like a fork it takes more than one step: its position is judged before it is submitted.
        exchange.run(IN_TURN, _publish, boundary, upload, exchange)


def _publish(boundary: Boundary, upload: Upload, exchange: Exchange) -> None:
    exchange.query(boundary, partial(_publish_at, boundary, upload, exchange))


def _publish_at(boundary: Boundary, upload: Upload, exchange: Exchange, found: Reply) -> None:
    if isinstance(found, Anchored):
        upload.finish(partial(_uploaded, boundary.name, found, exchange))
    else:
        upload.abandon()
        exchange.reply(found)


def _uploaded(name: str, found: Anchored, exchange: Exchange, blob: Blob | OSError) -> None:
    if isinstance(blob, OSError):
        exchange.refuse(Code.OVERLOADED, shortage_of(blob))
        return
    content_type = exchange.request.header(headers.CONTENT_TYPE.key)
    if content_type is None or not content_types.is_valid(content_type):
        content_type = content_types.DEFAULT
    snapshot = Snapshot(found.to, found.record_to, blob.id, content_type, blob.size, blob.digest)
    trims = exchange.context.settings.retention == "snapshot"
    request, node = exchange.request, exchange.node
    replaces = request.header(headers.STREAM_SNAPSHOT_MATCH.key)
    versions = parse_versions(request, node.log_id)
    command = PublishSnapshot(name, found.incarnation, snapshot, trims, found.tail, versions, replaces, blob.deadline)
    node.submit(command, exchange.reply)


def retain(request: Request, address: Address, exchange: Exchange) -> None:
    """Trim history that a snapshot covers."""
    boundary = parse_boundary(request, address, exchange.node.log_id)
    if isinstance(boundary, Refusal):
        exchange.reply(boundary)
    else:
        exchange.run(IN_TURN, _retain, boundary, exchange)


def _retain(boundary: Boundary, exchange: Exchange) -> None:
    exchange.query(boundary, partial(_retain_from, boundary, exchange))


def _retain_from(boundary: Boundary, exchange: Exchange, found: Reply) -> None:
    if isinstance(found, Anchored):
        command = Retain(boundary.name, found.incarnation, found.to, found.record_to, found.tail)
        exchange.node.submit(command, exchange.reply)
    else:
        exchange.reply(found)


# -- Reading ----------------------------------------------------------------------------------------------------------


def read(request: Request, address: Address, exchange: Exchange) -> None:
    """Redirect to the latest snapshot, or send the one at an offset."""
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
    snapshot, dialect = stream.snapshot, exchange.dialect
    if snapshot is None or not _names(address, snapshot):
        exchange.reply(_no_snapshot(address, stream))
        return
    lines = statuses.snapshot_lines(
        stream.incarnation, snapshot.offset, stream.next_offset, stream.closed, snapshot.digest, dialect
    )
    if address.argument is None:
        location = exchange.url(f"/{render(snapshot.offset, dialect.form)}")
        if exchange.ticket is not None:
            # Only for the same server, and so not as a whole URL.
            location = f"{location.removeprefix(exchange.origin())}?access_token={quote(exchange.ticket, safe='')}"
        exchange.answer(Answer(307, f"{lines}{headers.LOCATION.line}{location}\r\n{NO_STORE_LINE}"))
        return
    lines += f"{headers.CONTENT_TYPE.line}{snapshot.content_type}\r\n{NO_STORE_LINE}"
    lines += statuses.shared_lines(dialect)
    if exchange.request.method == b"HEAD":
        lines += f"{headers.CONTENT_LENGTH.line}{snapshot.size}\r\n"
        exchange.answer(Answer(200, lines, is_shared=True))
        return
    again = partial(read, exchange.request, address, exchange)
    send_blob(exchange, address.name, snapshot.blob, partial(_send, exchange, lines, snapshot), again)


def _send(exchange: Exchange, lines: str, snapshot: Snapshot, blob: OpenBlob) -> None:
    parts = blob_parts(exchange.node, blob, snapshot.size, snapshot.digest)
    exchange.connection.take_over(exchange, Download(exchange, lines, parts, snapshot.size, blob, is_shared=True))


def _names(address: Address, snapshot: Snapshot) -> bool:
    return address.argument is None or offsets.parse_position(address.argument, Form.PLAIN) == snapshot.offset


def delete(request: Request, address: Address, exchange: Exchange) -> None:
    """Refuse: bootstrap needs the latest snapshot, and no other one is visible."""
    _described(request, address, exchange, partial(_refuse_delete, address, exchange))


def _refuse_delete(address: Address, exchange: Exchange, stream: Described) -> None:
    if stream.snapshot is not None and address.argument is not None and _names(address, stream.snapshot):
        detail = "The latest snapshot cannot be deleted, because bootstrap needs it; publish a newer one instead."
        exchange.reply(Refusal(Code.SNAPSHOT_CONFLICT, detail, incarnation=stream.incarnation))
    else:
        exchange.reply(_no_snapshot(address, stream))


def _no_snapshot(address: Address, stream: Described) -> Refusal:
    where = "" if address.argument is None else f" at {address.argument[:40]!r}"
    return Refusal(
        Code.SNAPSHOT_NOT_FOUND,
        f"Stream {address.name!r} has no snapshot{where}.",
        incarnation=stream.incarnation,
        next_offset=stream.next_offset,
    )
