"""Reads of many streams at once: describe them, locate records, scan ranges.

Bodies are JSON; a long one is decoded a slice per turn of the event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Annotated, TypeVar

import msgspec

from headwater.access.grants import Action
from headwater.http.api.downloads import Download
from headwater.http.api.rights import may_scan_all_below, refuse_names
from headwater.http.exchange.exchange import READ, Exchange
from headwater.http.wire.addresses import Address
from headwater.http.wire.rendering import CONTENT_TYPE, JSON_LINES, NO_STORE_LINE
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer
from headwater.lake.format import SCHEMA
from headwater.node.bulk.arrow import MEDIA_TYPE
from headwater.node.reads.cold import LakeUnreadable
from headwater.node.scans.descriptions import in_order, with_prefix
from headwater.node.scans.pace import Pace
from headwater.node.scans.scans import Scan
from headwater.node.scans.windows import Times
from headwater.protocol.limits import DESCRIBE_STREAMS_MAX, MIB, RANGES_COMMAS_MAX, SCAN_RANGES_MAX
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.cold import ALL
from headwater.streams.queries import Natural, Ordinal, Range

BODY_BYTES_MAX = 32 * MIB
"""A hundred thousand names of the greatest length, with three of the largest numbers each, take 19 MiB of JSON."""
ARROW_LINES = f"{CONTENT_TYPE}{MEDIA_TYPE}\r\n{NO_STORE_LINE}"
DECODED_PER_STEP = 5_000
"""How many ranges or records are decoded at a time: about a millisecond of work."""

# -- Parsing ----------------------------------------------------------------------------------------------------------

Item = TypeVar("Item", Range, Ordinal)


class DescribeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Streams by name, or a page of the streams with a prefix."""

    streams: list[str] | None = None
    prefix: str | None = None
    after: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=DESCRIBE_STREAMS_MAX)] | None = None


class _Scan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ranges: list[msgspec.Raw]
    columns: list[str] | None = None
    since: Natural | None = None
    until: Natural | None = None


class _Locate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    records: list[msgspec.Raw]


class ScanBody(msgspec.Struct, frozen=True):
    """Ranges, the columns to return, and the interval of time in which a message must have been committed."""

    ranges: list[Range]
    columns: list[str] | None
    times: Times


_describe = msgspec.json.Decoder(DescribeBody)
_scan = msgspec.json.Decoder(_Scan)
_locate = msgspec.json.Decoder(_Locate)
_ranges = msgspec.json.Decoder(list[Range])
_ordinals = msgspec.json.Decoder(list[Ordinal])

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the decoder raises for bodies of the wrong shape, for bytes that are not UTF-8, and for deep nesting."""

_TOO_MANY_COMMAS = Refusal(Code.TOO_LARGE, f"The body has more than {RANGES_COMMAS_MAX} commas; split the request.")


def _has_too_many_commas(body: bytes) -> bool:
    # The decoder builds all elements of a list before it checks how many are allowed.
    return body.count(b",") > RANGES_COMMAS_MAX


def parse_describe(body: bytes) -> DescribeBody | Refusal:
    """Which streams to describe."""
    if _has_too_many_commas(body):
        return _TOO_MANY_COMMAS
    try:
        wanted = _describe.decode(body)
    except UNDECODABLE as error:
        return _refused(f'Send the body as {{"streams": [...]}} or {{"prefix": "..."}}: {error}')
    paged = wanted.prefix is not None
    if paged == (wanted.streams is not None):
        return _refused("Name either streams or a prefix")
    if not paged and (wanted.after is not None or wanted.limit is not None):
        return _refused("after and limit require a prefix")
    if wanted.streams is not None and len(wanted.streams) > DESCRIBE_STREAMS_MAX:
        return _refused(
            f"{len(wanted.streams)} streams are too many; at most {DESCRIBE_STREAMS_MAX} can be described at once"
        )
    return wanted


async def parse_scan(body: bytes) -> ScanBody | Refusal:
    """Which ranges to scan."""
    if _has_too_many_commas(body):
        return _TOO_MANY_COMMAS
    try:
        wanted = _scan.decode(body)
    except UNDECODABLE as error:
        return _refused(f'Send the body as {{"ranges": [["bucket/stream", incarnation, from, until], ...]}}: {error}')
    unknown = [name for name in wanted.columns or () if name not in SCHEMA.names]
    if unknown:
        return _refused(f"There is no column {unknown[0][:40]!r}; the columns are {', '.join(SCHEMA.names)}")
    if wanted.columns is not None and not wanted.columns:
        return _refused("Name at least one column, or omit columns to get all of them")
    ranges = await _items(wanted.ranges, _ranges, "range", '["bucket/stream", incarnation, from, until]')
    if isinstance(ranges, Refusal):
        return ranges
    reversed_ones = (index for index, one in enumerate(ranges) if one.until < one.start)
    first = next(reversed_ones, None)
    if first is not None:
        return _refused(f"Range {first} ends before it begins")
    times = Times(wanted.since or 0, ALL if wanted.until is None else wanted.until)
    return ScanBody(ranges, wanted.columns, times)


async def parse_locate(body: bytes) -> list[Ordinal] | Refusal:
    """Which records to locate."""
    if _has_too_many_commas(body):
        return _TOO_MANY_COMMAS
    try:
        wanted = _locate.decode(body)
    except UNDECODABLE as error:
        return _refused(f'Send the body as {{"records": [["bucket/stream", incarnation, record], ...]}}: {error}')
    return await _items(wanted.records, _ordinals, "record", '["bucket/stream", incarnation, record]')


async def _items(
    raw: Sequence[msgspec.Raw], decoder: "msgspec.json.Decoder[list[Item]]", what: str, form: str
) -> list[Item] | Refusal:
    if len(raw) > SCAN_RANGES_MAX:
        return _refused(f"{len(raw)} {what}s are too many; at most {SCAN_RANGES_MAX} are allowed at once")
    items: list[Item] = []
    pace = Pace()
    for first in range(0, len(raw), DECODED_PER_STEP):
        several = raw[first : first + DECODED_PER_STEP]
        try:
            items += decoder.decode(b"[%b]" % b",".join(several))
        except UNDECODABLE:
            index, problem = _first_bad(several, decoder)
            return _refused(f"{what.capitalize()} {first + index} is not {form}: {problem}")
        await pace.rest()
    return items


def _first_bad(raw: Sequence[msgspec.Raw], decoder: "msgspec.json.Decoder[list[Item]]") -> tuple[int, str]:
    for index, one in enumerate(raw):
        try:
            decoder.decode(b"[%b]" % bytes(one))
        except UNDECODABLE as error:
            return index, str(error).replace("$[0]", "$")
    raise AssertionError("each item decodes alone, but not all together")


def _refused(what: str) -> Refusal:
    return Refusal(Code.BAD_REQUEST, f"{what}.")


# -- Answering --------------------------------------------------------------------------------------------------------

A = TypeVar("A")
T = TypeVar("T")

_SCANNING = (Action.PIPELINE, Action.READ)
"""What a client must be allowed to do to each stream."""

log = logging.getLogger(__name__)


def describe(request: Request, address: Address, exchange: Exchange) -> None:
    """Describe many streams, a row for each that exists."""
    wanted = parse_describe(request.body)
    if isinstance(wanted, Refusal):
        exchange.reply(wanted)
    elif wanted.streams is None and not may_scan_all_below(exchange.identity, wanted.prefix or ""):
        exchange.reply(exchange.refuse_right(Action.PIPELINE, wanted.prefix or ""))
    else:
        exchange.run(READ, _begin, exchange, _answer, _described, wanted)


async def _described(wanted: DescribeBody, exchange: Exchange) -> Answer | Refusal:
    shard = exchange.node.only
    if wanted.streams is not None:
        refusal = await refuse_names(exchange, _SCANNING, wanted.streams)
        if refusal is not None:
            return refusal
        names = in_order(wanted.streams)
    else:
        names = with_prefix(shard.state, wanted.prefix or "", wanted.after or "")
    return Answer(200, ARROW_LINES, await shard.scans.describe(names, wanted.limit or DESCRIBE_STREAMS_MAX))


def locate(request: Request, address: Address, exchange: Exchange) -> None:
    """Find the offsets at which records begin."""
    exchange.run(READ, _begin, exchange, _answer, _located, request.body)


async def _located(body: bytes, exchange: Exchange) -> Answer | Refusal:
    ordinals = await parse_locate(body)
    if isinstance(ordinals, Refusal):
        return ordinals
    refusal = await refuse_names(exchange, _SCANNING, (one.name for one in ordinals))
    if refusal is not None:
        return refusal
    try:
        offsets = await exchange.node.only.scans.locate(ordinals)
    except LakeUnreadable as error:
        log.error("cannot locate records: %s", error)
        return Refusal(Code.OVERLOADED, "The lake cannot be read at the moment; try again in a second.")
    return Answer(200, JSON_LINES, msgspec.json.encode({"offsets": offsets}))


def scan(request: Request, address: Address, exchange: Exchange) -> None:
    """Send ranges of many streams as one Arrow stream."""
    exchange.run(READ, _begin, exchange, _send, _planned, request.body)


async def _planned(body: bytes, exchange: Exchange) -> Scan | Refusal:
    wanted = await parse_scan(body)
    if isinstance(wanted, Refusal):
        return wanted
    refusal = await refuse_names(exchange, _SCANNING, (one.name for one in wanted.ranges))
    if refusal is not None:
        return refusal
    return await exchange.node.only.scans.plan(wanted.ranges, wanted.columns, wanted.times)


# -- Answers that take more than one turn of the loop ------------------------------------------------------------------

Then = Callable[[Exchange, T], None]
Work = Callable[[A, Exchange], Coroutine[None, None, T | Refusal]]


def _begin(exchange: Exchange, then: Then[T], work: Work[A, T], wanted: A) -> None:
    # Writes after this request must not be visible to it.
    exchange.fetching = True
    task = asyncio.get_running_loop().create_task(work(wanted, exchange))
    task.add_done_callback(partial(_done, exchange, then))


def _done(exchange: Exchange, then: Then[T], task: "asyncio.Task[T | Refusal]") -> None:
    exchange.fetching = False
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
    # Requests that waited for the scan to be planned may start while its answer is sent.
    exchange.connection.finished()
