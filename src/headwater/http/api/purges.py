"""Purges: every byte of some streams is removed now."""

from functools import partial

import msgspec

from headwater.access.grants import Action
from headwater.access.identities import Identity
from headwater.http.api.scans import UNDECODABLE
from headwater.http.exchange.exchange import IN_TURN, READ, Exchange
from headwater.http.wire.addresses import Address
from headwater.http.wire.rendering import JSON_LINES
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer
from headwater.node.purges.requests import PurgeBegun, PurgeRequest, PurgeStatus, ask_purge, status_of
from headwater.protocol.refusals import Code, Refusal


def begin(request: Request, address: Address, exchange: Exchange) -> None:
    """Begin a purge; the answer has its id, and the number of streams."""
    try:
        wanted = msgspec.json.decode(request.body, type=PurgeRequest)
    except UNDECODABLE as error:
        exchange.refuse(Code.BAD_REQUEST, f'Send the body as {{"stream": "bucket/stream"}}: {error}.')
        return
    if (refusal := wanted.judge()) is not None:
        exchange.reply(refusal)
        return
    if not _may_delete(exchange.identity, wanted):
        exchange.reply(exchange.refuse_right(Action.DELETE, wanted.target))
        return
    exchange.name = wanted.target if wanted.stream is not None else f"{wanted.target}*"  # For the audit log.
    exchange.run(IN_TURN, _begin, exchange, wanted)


def _may_delete(identity: Identity, wanted: PurgeRequest) -> bool:
    """Whether the client may delete everything that a purge removes; forks may have any name."""
    if wanted.with_forks:
        return identity.may_all_below(Action.DELETE, "")
    if wanted.stream is not None:
        return identity.may(Action.DELETE, wanted.target)
    return identity.may_all_below(Action.DELETE, wanted.target)


def _begin(exchange: Exchange, wanted: PurgeRequest) -> None:
    exchange.await_task(ask_purge(exchange.node.only, wanted), partial(_begun, exchange))


def _begun(exchange: Exchange, begun: PurgeBegun) -> None:
    exchange.answer(Answer(202, JSON_LINES, msgspec.json.encode(begun._asdict())))


def show(request: Request, address: Address, exchange: Exchange) -> None:
    """How far a purge has come."""
    exchange.run(READ, _show, exchange, address.argument or "")


def _show(exchange: Exchange, purge_id: str) -> None:
    found = status_of(exchange.node.only, purge_id)
    if isinstance(found, Refusal):
        exchange.reply(found)
    else:
        assert isinstance(found, PurgeStatus)
        exchange.answer(Answer(200, JSON_LINES, msgspec.json.encode(found._asdict())))
