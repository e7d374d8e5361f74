"""The lake: the flush barrier, its consumers, and swaps of segments that were rewritten elsewhere."""

from functools import partial
from typing import Annotated

import msgspec

from headwater.access.grants import Action
from headwater.http.api.scans import UNDECODABLE
from headwater.http.exchange.exchange import IN_TURN, READ, WRITE, Exchange
from headwater.http.wire.addresses import OWN, Address
from headwater.http.wire.rendering import JSON_LINES, NO_STORE_LINE
from headwater.http.wire.requests import Request, parse_query
from headwater.http.wire.statuses import Answer
from headwater.node.lake.flusher import FlushFailed
from headwater.node.lake.lake import Lake
from headwater.node.lake.swaps import SwapRequest
from headwater.protocol.limits import (
    CONSUMER_IDLE_US,
    DAY_US,
    LEASE_SECONDS_MAX,
    SECOND_US,
    SILENCE_SECONDS_MAX,
    SILENCE_SECONDS_MIN,
)
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.cold import Consumer
from headwater.streams.commands import Command
from headwater.streams.commands.consumers import DropConsumer, LeaseLake, RegisterConsumer, RegisterConsumerFor
from headwater.streams.membership import judge_proposal
from headwater.streams.replies import Done, Reply

ALL_TABLES = "all"
"""The value of the parameter `tables` of a flush that also writes the tables that are written at intervals."""

Position = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Positions(msgspec.Struct, frozen=True):
    """A position on each shard."""

    positions: dict[str, Position]


class Registration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a consumer of the lake reports: how far it has read, or for how long it needs the objects of now."""

    positions: dict[str, Position] | None = None
    lease_seconds: Annotated[int, msgspec.Meta(ge=1, le=LEASE_SECONDS_MAX)] | None = None
    renew: bool = False
    silence_seconds: int | None = None
    """How long a consumer may be silent from here on before it lapses; None for the time that all have by default."""


def describe_log(request: Request, address: Address, exchange: Exchange) -> None:
    """The log's id and position, and its lake, for a job that works on many streams."""
    exchange.run(READ, _describe_log, exchange)


def _describe_log(exchange: Exchange) -> None:
    shards, lake = exchange.node.shards, exchange.node.only.lake
    # Who reads the lake reads every stream, so its URL is of no use to those with less.
    is_theirs = exchange.identity.may(Action.PIPELINE, OWN)
    _answer(
        exchange,
        {
            "log_id": exchange.node.log_id,
            "positions": {str(one.number): one.state.position for one in shards},
            "lake": None if lake is None else {"url": lake.store.url if is_theirs else None},
        },
    )


def flush(request: Request, address: Address, exchange: Exchange) -> None:
    """Flush everything acknowledged so far to the lake; the answer comes when it is there."""
    parameters = parse_query(request.query)
    if isinstance(parameters, Refusal):
        exchange.reply(parameters)
        return
    tables = parameters.get("tables")
    if tables is not None and tables != ALL_TABLES:
        detail = f"tables={tables[:122]!r} is unknown; send tables={ALL_TABLES}, or leave it out."
        exchange.refuse(Code.BAD_REQUEST, detail)
        return
    exchange.run(READ, _flush, exchange, tables is not None)


def _flush(exchange: Exchange, all_tables: bool) -> None:
    lake = _lake(exchange)
    if lake is not None:
        shard = _shard(exchange)
        exchange.await_task(
            _flushed(lake, all_tables), lambda position: _answer(exchange, Positions({shard: position}))
        )


async def _flushed(lake: Lake, all_tables: bool) -> int | Refusal:
    try:
        return await lake.flush(all_tables)
    except FlushFailed:
        detail = "The lake cannot be written at the moment; nothing is lost, try again in a second."
        return Refusal(Code.OVERLOADED, detail)


# -- Consumers --------------------------------------------------------------------------------------------------------


def consumers(request: Request, address: Address, exchange: Exchange) -> None:
    """All registered consumers of the lake, or one of them."""
    exchange.run(READ, _consumers, address, exchange)


def _consumers(address: Address, exchange: Exchange) -> None:
    known = exchange.node.only.state.cold.consumers
    if address.argument is None:
        _answer(
            exchange, {"consumers": [_described(exchange, name, consumer) for name, consumer in sorted(known.items())]}
        )
    elif address.argument in known:
        _answer(exchange, _described(exchange, address.argument, known[address.argument]))
    else:
        exchange.refuse(Code.CONSUMER_NOT_FOUND, f"No consumer {address.argument!r} is registered.")


def _described(exchange: Exchange, name: str, consumer: Consumer) -> dict[str, object]:
    return {
        "consumer": name,
        "positions": {_shard(exchange): consumer.position},
        "committed_at_ms": consumer.at // 1000,
        "lapsed": consumer.has_lapsed(exchange.node.only.now()),
        "lease": consumer.is_lease,
        "silence_seconds": consumer.life_us // SECOND_US,
    }


def register(request: Request, address: Address, exchange: Exchange) -> None:
    """Record a consumer's position, and keep everything above it; or keep the objects of the lake for a while."""
    if _lake(exchange) is None:
        return
    shard, name = _shard(exchange), address.argument or ""
    try:
        given = msgspec.json.decode(request.body, type=Registration)
    except UNDECODABLE as error:
        shapes = f'{{"positions": {{"{shard}": 123}}}} or {{"lease_seconds": 600}}'
        exchange.refuse(Code.BAD_REQUEST, f"Send the body as {shapes}: {error}.")
        return
    command = _registering(exchange, name, given)
    if isinstance(command, Refusal):
        exchange.reply(command)
        return
    exchange.run(WRITE, exchange.node.only.submit, command, partial(_done, exchange))


def _registering(exchange: Exchange, name: str, given: Registration) -> Command | Refusal:
    shard, silence = _shard(exchange), given.silence_seconds
    if given.lease_seconds is not None and given.positions is None and silence is None:
        return LeaseLake(name, given.lease_seconds * SECOND_US, given.renew)
    if given.lease_seconds is not None or given.positions is None or set(given.positions) != {shard}:
        detail = f"Send a position for shard {shard}, which is the only one, or the seconds of a lease."
        return Refusal(Code.BAD_REQUEST, detail)
    if silence is None:
        return RegisterConsumer(name, given.positions[shard], given.renew)
    if not SILENCE_SECONDS_MIN <= silence <= SILENCE_SECONDS_MAX:
        limits = f"{SILENCE_SECONDS_MIN} to {SILENCE_SECONDS_MAX} ({SILENCE_SECONDS_MAX // 86_400} days)"
        detail = f"silence_seconds must be {limits}, not {silence}; leave it out for {CONSUMER_IDLE_US // DAY_US} days."
        return Refusal(Code.BAD_REQUEST, detail)
    refusal = judge_proposal(exchange.node.only.state, RegisterConsumerFor, "A consumer's own limit of silence")
    return refusal or RegisterConsumerFor(name, given.positions[shard], silence * SECOND_US, given.renew)


def forget(request: Request, address: Address, exchange: Exchange) -> None:
    """Remove a consumer, so that the lake keeps nothing for it."""
    command = DropConsumer(address.argument or "")
    exchange.run(WRITE, exchange.node.only.submit, command, partial(_done, exchange))


def _done(exchange: Exchange, reply: Reply) -> None:
    if isinstance(reply, Done):
        exchange.answer(Answer(204, NO_STORE_LINE))
    else:
        assert isinstance(reply, Refusal)
        exchange.reply(reply)


def _shard(exchange: Exchange) -> str:
    """The number of the only shard. Positions are given per shard, so that the format can hold more of them."""
    return str(exchange.node.only.number)


def _lake(exchange: Exchange) -> Lake | None:
    if exchange.node.only.lake is None:
        exchange.refuse(
            Code.NOT_IMPLEMENTED, "This server keeps nothing on disk, so it has no lake; start it with --data."
        )
    return exchange.node.only.lake


def _answer(exchange: Exchange, body: object) -> None:
    exchange.answer(Answer(200, JSON_LINES, msgspec.json.encode(body)))


# -- Swaps ------------------------------------------------------------------------------------------------------------

SWAP_EXAMPLE = '{"shard": 0, "replaced": [1, 2], "keys": ["segments/..."], "dropped": 0, "deadline": 1763251200000000}'


def swap(request: Request, address: Address, exchange: Exchange) -> None:
    """Replace segments by rewritten ones; the answer comes when that has happened."""
    lake = _lake(exchange)
    if lake is None:
        return
    try:
        handed = msgspec.json.decode(request.body, type=SwapRequest)
    except UNDECODABLE as error:
        exchange.refuse(Code.BAD_REQUEST, f"Send the body as {SWAP_EXAMPLE}: {error}.")
        return
    exchange.run(IN_TURN, _swap, exchange, lake, handed)


def _swap(exchange: Exchange, lake: Lake, handed: SwapRequest) -> None:
    exchange.await_task(lake.swaps.swap(handed), lambda position: _answer(exchange, {"position": position}))
