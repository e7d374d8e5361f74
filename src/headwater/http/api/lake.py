"""What the URL table does below /__headwater: the flush barrier and the readers of the lake."""

import asyncio
from functools import partial
from typing import Annotated

import msgspec

from headwater.http.addresses import Address
from headwater.http.exchange import READ, WRITE, Exchange
from headwater.http.wire.rendering import JSON_LINES
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer
from headwater.node.lake.flusher import FlushFailed
from headwater.node.lake.lake import Lake
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.cold import Consumer
from headwater.streams.commands import DropConsumer, RegisterConsumer
from headwater.streams.replies import Done, Reply


class Positions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far somebody has come on each shard."""

    positions: dict[str, Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]]


def flush(request: Request, address: Address, exchange: Exchange) -> None:
    """Put everything that was acknowledged so far into the lake; answered when it is there."""
    exchange.run(READ, _flush, exchange)


def _flush(exchange: Exchange) -> None:
    lake = _lake(exchange)
    if lake is not None:
        task = asyncio.get_running_loop().create_task(lake.flush())
        task.add_done_callback(partial(_flushed, exchange))


def _flushed(exchange: Exchange, task: "asyncio.Task[int]") -> None:
    if exchange.connection.lost or task.cancelled():
        return
    try:
        _say(exchange, Positions({_shard(exchange): task.result()}))
    except FlushFailed:
        exchange.refuse(Code.OVERLOADED, "The lake cannot be written to at the moment; nothing is lost, try again.")
    except Exception:
        exchange.fail()


def readers(request: Request, address: Address, exchange: Exchange) -> None:
    """Every registered reader of the lake, or one of them."""
    exchange.run(READ, _readers, address, exchange)


def _readers(address: Address, exchange: Exchange) -> None:
    known = exchange.node.only.state.cold.consumers
    if address.argument is None:
        _say(exchange, {"readers": [_told(exchange, name, reader) for name, reader in sorted(known.items())]})
    elif address.argument in known:
        _say(exchange, _told(exchange, address.argument, known[address.argument]))
    else:
        exchange.refuse(Code.READER_NOT_FOUND, f"No reader {address.argument!r} is registered.")


def _told(exchange: Exchange, name: str, reader: Consumer) -> dict[str, object]:
    return {"reader": name, "positions": {_shard(exchange): reader.position}, "committed_at_ms": reader.at // 1000}


def register(request: Request, address: Address, exchange: Exchange) -> None:
    """Say how far a reader has come; what lies above stays in the lake for it."""
    if _lake(exchange) is None:
        return
    shard = _shard(exchange)
    try:
        given = msgspec.json.decode(request.body, type=Positions).positions
    except msgspec.DecodeError as error:
        exchange.refuse(Code.BAD_REQUEST, f'Give the body as {{"positions": {{"{shard}": 123}}}}: {error}.')
        return
    if set(given) != {shard}:
        exchange.refuse(Code.BAD_REQUEST, f"Give a position for shard {shard}, the only one, and for no other.")
        return
    command = RegisterConsumer(address.argument or "", given[shard])
    exchange.run(WRITE, exchange.node.only.submit, command, partial(_done, exchange))


def forget(request: Request, address: Address, exchange: Exchange) -> None:
    """Keep nothing for a reader any more."""
    command = DropConsumer(address.argument or "")
    exchange.run(WRITE, exchange.node.only.submit, command, partial(_done, exchange))


def _done(exchange: Exchange, reply: Reply) -> None:
    if isinstance(reply, Done):
        exchange.answer(Answer(204, "Cache-Control: no-store\r\n"))
    else:
        assert isinstance(reply, Refusal)
        exchange.reply(reply)


def _shard(exchange: Exchange) -> str:
    """The number of the one shard; positions are given per shard, so that nothing changes when there are more."""
    return str(exchange.node.only.number)


def _lake(exchange: Exchange) -> Lake | None:
    if exchange.node.only.lake is None:
        exchange.refuse(Code.NOT_IMPLEMENTED, "This server keeps nothing, so it has no lake; start it with --data.")
    return exchange.node.only.lake


def _say(exchange: Exchange, body: object) -> None:
    exchange.answer(Answer(200, JSON_LINES, msgspec.json.encode(body)))
