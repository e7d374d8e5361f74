"""Requests to follow many streams on one connection: which streams, and from where."""

from collections.abc import Iterable, Sequence
from urllib.parse import unquote_to_bytes

import msgspec

from headwater.access.grants import Action
from headwater.http.api.multi_tail import MultiTail
from headwater.http.api.scans import UNDECODABLE
from headwater.http.exchange.exchange import LIVE, Exchange
from headwater.http.wire.addresses import Address
from headwater.http.wire.requests import Request
from headwater.protocol import incarnations, names, offsets
from headwater.protocol.limits import TAIL_STREAMS_MAX, TAIL_URL_STREAMS_MAX
from headwater.protocol.offsets import Form
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.queries import Read

# -- Parsing ----------------------------------------------------------------------------------------------------------


class TailedStream(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A stream to follow, from an offset of an incarnation."""

    stream: str
    offset: str
    incarnation: str | None = None


class TailBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All streams to follow."""

    streams: list[TailedStream]


_body = msgspec.json.Decoder(TailBody)

_FORM = '{"streams": [{"stream": "bucket/stream", "offset": "-1"}, ...]}'


def parse_body(body: bytes, log_id: str) -> list[Read] | Refusal:
    """The streams that a body names."""
    try:
        wanted = _body.decode(body).streams
    except UNDECODABLE as error:
        return Refusal(Code.BAD_REQUEST, f"Send the body as {_FORM}: {error}.")
    if not wanted:
        return Refusal(Code.BAD_REQUEST, "Name at least one stream to follow.")
    if len(wanted) > TAIL_STREAMS_MAX:
        return _too_many(len(wanted), TAIL_STREAMS_MAX, "open another connection for the others")
    return _reads(wanted, log_id)


def parse_query(query: bytes, log_id: str) -> list[Read] | Refusal:
    """The streams that a query names: `s=bucket/stream@OFFSET`, with `/INCARNATION` after the offset if it is known."""
    wanted: list[TailedStream] = []
    for pair in query.replace(b"+", b" ").split(b"&"):
        raw_name, _, value = pair.partition(b"=")
        if unquote_to_bytes(raw_name) != b"s":
            continue
        try:
            text = unquote_to_bytes(value).decode()
        except UnicodeDecodeError:
            return Refusal(Code.BAD_REQUEST, "The parameter s is not UTF-8; percent-encode it as UTF-8.")
        name, at, position = text.rpartition("@")
        if not at:
            return Refusal(Code.BAD_REQUEST, f"s={text[:122]!r} has no offset; send it as s=bucket/stream@OFFSET.")
        offset, slash, incarnation = position.partition("/")
        wanted.append(TailedStream(name, offset, incarnation if slash else None))
    if not wanted:
        return Refusal(Code.BAD_REQUEST, "Name at least one stream to follow, as s=bucket/stream@OFFSET.")
    if len(wanted) > TAIL_URL_STREAMS_MAX:
        return _too_many(len(wanted), TAIL_URL_STREAMS_MAX, f"use POST for up to {TAIL_STREAMS_MAX}")
    return _reads(wanted, log_id)


def _too_many(count: int, most: int, advice: str) -> Refusal:
    detail = f"{count} streams are too many for one request, which may name {most}; {advice}."
    return Refusal(Code.BAD_REQUEST, detail)


def _reads(wanted: Iterable[TailedStream], log_id: str) -> list[Read] | Refusal:
    reads: dict[str, Read] = {}
    for one in wanted:
        name = names.parse_whole(one.stream)
        if isinstance(name, Refusal):
            return name
        if name in reads:
            return Refusal(Code.BAD_REQUEST, f"Stream {name!r} is named twice; name it once.")
        offset = offsets.parse(one.offset, Form.PLAIN)
        if offset is None:
            detail = f"{one.offset[:60]!r}, for {name!r}, is not an offset; use -1, now, or one from a response."
            return Refusal(Code.INVALID_OFFSET, detail)
        incarnation = None if one.incarnation is None else incarnations.parse(log_id, one.incarnation)
        reads[name] = Read(name, offset, incarnation)
    return list(reads.values())


# -- Answering --------------------------------------------------------------------------------------------------------


def follow(request: Request, address: Address, exchange: Exchange) -> None:
    """Follow the streams that the body names."""
    _judge(exchange, parse_body(request.body, exchange.node.log_id))


def follow_few(request: Request, address: Address, exchange: Exchange) -> None:
    """Follow the streams that the query names."""
    _judge(exchange, parse_query(request.query, exchange.node.log_id))


def _judge(exchange: Exchange, reads: list[Read] | Refusal) -> None:
    """Decide about the request as a whole: every name is known here, and no stream has been looked at."""
    if isinstance(reads, Refusal):
        exchange.reply(reads)
        return
    unreadable = next((read.name for read in reads if not exchange.identity.may(Action.READ, read.name)), None)
    if unreadable is not None:
        exchange.reply(exchange.refuse_right(Action.READ, unreadable))
        return
    exchange.forget_body()
    exchange.run(LIVE, _begin, exchange, reads)


def _begin(exchange: Exchange, reads: Sequence[Read]) -> None:
    if (refusal := exchange.take_live_slots(len(reads))) is not None:
        exchange.reply(refusal)
    elif exchange.node.tails.reserve(len(reads)):
        exchange.connection.take_over(exchange, MultiTail(exchange, reads))
    else:
        detail = f"There is no room for {len(reads)} more live readers; try again in a second."
        exchange.refuse(Code.WAITERS_TOO_MANY, detail)
