"""What the URL table does for those who read many streams at once."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TypeVar

import msgspec

from headwater.http.addresses import Address
from headwater.http.api.scan_bodies import DescribeBody, parse_describe, parse_locate, parse_scan
from headwater.http.exchange import READ, Exchange
from headwater.http.wire.downloads import Download
from headwater.http.wire.rendering import JSON_LINES
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer
from headwater.node.bulk.arrow import MEDIA_TYPE
from headwater.node.node import Node
from headwater.node.reads.cold import LakeUnreadable
from headwater.node.scans.descriptions import in_order, with_prefix
from headwater.node.scans.scans import Scan
from headwater.protocol.limits import DESCRIBE_STREAMS_MAX
from headwater.protocol.refusals import Code, Refusal

ARROW_LINES = f"Content-Type: {MEDIA_TYPE}\r\nCache-Control: no-store\r\n"

A = TypeVar("A")
T = TypeVar("T")

log = logging.getLogger(__name__)


def describe(request: Request, address: Address, exchange: Exchange) -> None:
    """What many streams are, a row for each that lives."""
    asked = parse_describe(request.body)
    if isinstance(asked, Refusal):
        exchange.reply(asked)
    else:
        exchange.run(READ, _begin, exchange, _answer, _described, asked)


async def _described(asked: DescribeBody, node: Node) -> Answer:
    if asked.streams is not None:
        names = in_order(asked.streams)
    else:
        names = with_prefix(node.only.state, asked.prefix or "", asked.after or "")
    return Answer(200, ARROW_LINES, await node.only.scans.describe(names, asked.limit or DESCRIBE_STREAMS_MAX))


def locate(request: Request, address: Address, exchange: Exchange) -> None:
    """At which offsets records begin."""
    exchange.run(READ, _begin, exchange, _answer, _located, request.body)


async def _located(body: bytes, node: Node) -> Answer | Refusal:
    ordinals = await parse_locate(body)
    if isinstance(ordinals, Refusal):
        return ordinals
    try:
        offsets = await node.only.scans.locate(ordinals)
    except LakeUnreadable as error:
        log.error("records cannot be located: %s", error)
        return Refusal(Code.OVERLOADED, "The lake cannot be read at the moment; try again in a second.")
    return Answer(200, JSON_LINES, msgspec.json.encode({"offsets": offsets}))


def scan(request: Request, address: Address, exchange: Exchange) -> None:
    """Ranges of many streams, as one Arrow stream."""
    exchange.run(READ, _begin, exchange, _send, _planned, request.body)


async def _planned(body: bytes, node: Node) -> Scan | Refusal:
    asked = await parse_scan(body)
    return asked if isinstance(asked, Refusal) else await node.only.scans.plan(asked.ranges, asked.columns, asked.times)


# -- Answers that take more than one turn of the loop ------------------------------------------------------------------

Then = Callable[[Exchange, T], None]
Work = Callable[[A, Node], Coroutine[None, None, T | Refusal]]


def _begin(exchange: Exchange, then: Then[T], work: Work[A, T], asked: A) -> None:
    # Writes behind this request must not be seen by it.
    exchange.looking = True
    task = asyncio.get_running_loop().create_task(work(asked, exchange.node))
    task.add_done_callback(partial(_done, exchange, then))


def _done(exchange: Exchange, then: Then[T], task: "asyncio.Task[T | Refusal]") -> None:
    exchange.looking = False
    try:
        outcome = None if task.cancelled() else task.result()
        if outcome is None or exchange.connection.lost:
            if isinstance(outcome, Scan):
                outcome.close()
        elif isinstance(outcome, Refusal):
            exchange.reply(outcome)
        else:
            then(exchange, outcome)
    except Exception:
        exchange.fail()


def _answer(exchange: Exchange, answer: Answer) -> None:
    exchange.answer(answer)


def _send(exchange: Exchange, scan: Scan) -> None:
    exchange.connection.take_over(exchange, Download(exchange, ARROW_LINES, scan.parts(), None, scan))
    # What waited for the look may go on, while its answer is sent.
    exchange.connection.finished()
