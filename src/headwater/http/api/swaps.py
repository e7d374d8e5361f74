"""What the URL table does for rewrites that are handed in from outside."""

import asyncio
from functools import partial

import msgspec

from headwater.http.addresses import Address
from headwater.http.exchange import FORK, Exchange
from headwater.http.wire.rendering import JSON_LINES
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer
from headwater.node.lake.lake import Lake
from headwater.node.lake.swaps import SwapRequest
from headwater.protocol.refusals import Code, Refusal

EXAMPLE = '{"shard": 0, "replaced": [1, 2], "keys": ["segments/..."], "dropped": 0, "deadline": 1763251200000000}'


def swap(request: Request, address: Address, exchange: Exchange) -> None:
    """Put rewritten segments in the place of others; answered when that has happened."""
    lake = exchange.node.only.lake
    if lake is None:
        exchange.refuse(Code.NOT_IMPLEMENTED, "This server keeps nothing, so it has no lake; start it with --data.")
        return
    try:
        handed = msgspec.json.decode(request.body, type=SwapRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        exchange.refuse(Code.BAD_REQUEST, f"Give the body as {EXAMPLE}: {error}.")
        return
    exchange.run(FORK, _begin, exchange, lake, handed)


def _begin(exchange: Exchange, lake: Lake, handed: SwapRequest) -> None:
    task = asyncio.get_running_loop().create_task(lake.swaps.swap(handed))
    task.add_done_callback(partial(_done, exchange))


def _done(exchange: Exchange, task: "asyncio.Task[int | Refusal]") -> None:
    if task.cancelled():
        return
    try:
        outcome = task.result()
        if exchange.connection.lost:
            return
        if isinstance(outcome, Refusal):
            exchange.reply(outcome)
        else:
            exchange.answer(Answer(200, JSON_LINES, msgspec.json.encode({"position": outcome})))
    except Exception:
        exchange.fail()
