"""Buckets: create, inspect, delete; listings of streams and of buckets."""

import re
from collections.abc import Callable, Sequence

import msgspec

from headwater.access.grants import Action
from headwater.http.exchange.exchange import IN_TURN, READ, Exchange
from headwater.http.wire.addresses import Address
from headwater.http.wire.rendering import JSON_LINES
from headwater.http.wire.requests import Request, parse_query
from headwater.http.wire.statuses import Answer
from headwater.protocol.limits import LISTING_MAX
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.queries import Buckets, Listing
from headwater.streams.replies import BucketFacts, Listed, Reply

_ONLY_WITHIN = "may not list all of these streams; give prefix= so that the listing stays within what it may read."
_LIMIT = re.compile(r"[1-9][0-9]{0,3}")


def create(request: Request, address: Address, exchange: Exchange) -> None:
    exchange.run(IN_TURN, exchange.node.open_bucket, address.name, exchange.reply)


def delete(request: Request, address: Address, exchange: Exchange) -> None:
    exchange.run(IN_TURN, exchange.node.drop_bucket, address.name, exchange.reply)


def inspect(request: Request, address: Address, exchange: Exchange) -> None:
    def answer(reply: Reply) -> None:
        if isinstance(reply, BucketFacts):
            body = msgspec.json.encode({"bucket_id": address.name, "streams": reply.streams})
            exchange.answer(Answer(200, JSON_LINES, body))
        else:
            exchange.reply(reply)

    exchange.run(READ, exchange.node.inspect_bucket, address.name, answer)


def listing(request: Request, address: Address, exchange: Exchange) -> None:
    """The streams of a bucket."""
    _run(request, exchange, _streams, address.name)


def all_streams(request: Request, address: Address, exchange: Exchange) -> None:
    """The streams of all buckets, by whole name: the flat surface has buckets that no URL of a bucket can name."""
    _run(request, exchange, _streams, None)


def all_buckets(request: Request, address: Address, exchange: Exchange) -> None:
    _run(request, exchange, _buckets, None)


def _run(request: Request, exchange: Exchange, give: Callable[[Listing, Exchange], None], bucket: str | None) -> None:
    query = parse_listing(request, bucket)
    if isinstance(query, Refusal):
        exchange.reply(query)
        return
    within = query.prefix if bucket is None else f"{bucket}/{query.prefix}"
    if give is _streams and not exchange.identity.may_all_below(Action.READ, within):
        refusal = exchange.refuse_right(Action.READ, within)
        detail = f"{exchange.identity.name[:64]!r} {_ONLY_WITHIN}"
        forbidden = refusal.code is Code.FORBIDDEN
        exchange.reply(msgspec.structs.replace(refusal, detail=detail) if forbidden else refusal)
        return
    exchange.run(READ, give, query, exchange)


def _streams(query: Listing, exchange: Exchange) -> None:
    reply = exchange.node.list_streams(query)
    if isinstance(reply, Listed):
        last = reply.streams[-1].stream_id if reply.has_more else None
        page = {"bucket_id": query.bucket} | _page("stream", query.prefix, reply.streams, last)
        exchange.answer(Answer(200, JSON_LINES, msgspec.json.encode(page)))
    else:
        exchange.reply(reply)


def _buckets(query: Listing, exchange: Exchange) -> None:
    reply = exchange.node.list_buckets(Buckets(query.prefix, query.after, query.limit))
    last = reply.buckets[-1].bucket_id if reply.has_more else None
    page = _page("bucket", query.prefix, reply.buckets, last)
    exchange.answer(Answer(200, JSON_LINES, msgspec.json.encode(page)))


def _page(kind: str, prefix: str, entries: Sequence[object], last: str | None) -> dict[str, object]:
    """A page of a listing; the next one begins after `last`, if there is one."""
    return {
        "prefix": prefix,
        f"{kind}_count": len(entries),
        f"{kind}s": entries,
        "next_cursor": last,
        "has_more": last is not None,
    }


def parse_listing(request: Request, bucket: str | None) -> Listing | Refusal:
    """The page of a listing that a request asks for."""
    parameters = parse_query(request.query)
    if isinstance(parameters, Refusal):
        return parameters
    limit = parameters.get("limit", str(LISTING_MAX))
    if _LIMIT.fullmatch(limit) is None or int(limit) > LISTING_MAX:
        return Refusal(Code.BAD_REQUEST, f"limit={limit[:40]!r} is not a whole number from 1 to {LISTING_MAX}.")
    return Listing(bucket, parameters.get("prefix", ""), parameters.get("after", ""), int(limit))
