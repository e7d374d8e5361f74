"""Access: who a client is, and new rules."""

import logging
from functools import partial
from math import inf
from time import monotonic

import msgspec

from headwater.access.policy import Policy, PolicyError, load
from headwater.http.addresses import Address
from headwater.http.exchange import WRITE, Exchange
from headwater.http.gates import Guard
from headwater.http.wire.rendering import JSON_LINES
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer
from headwater.protocol.refusals import Code

log = logging.getLogger(__name__)


def whoami(request: Request, address: Address, exchange: Exchange) -> None:
    """Tell a client who it is to this server, and for how long."""
    identity = exchange.identity
    body = {
        "name": identity.name,
        "kind": identity.kind.value,
        "mode": exchange.context.settings.mode.value,
        "expires_in_seconds": None if identity.expires_at == inf else round(identity.expires_at - monotonic(), 3),
    }
    exchange.answer(Answer(200, JSON_LINES, msgspec.json.encode(body)))


def reload(request: Request, address: Address, exchange: Exchange) -> None:
    """Read the access file again; if it is bad, the old rules stay."""
    guard = exchange.context.gate
    if not isinstance(guard, Guard):
        exchange.refuse(Code.STREAM_NOT_FOUND, "This server has no access file; start it with --auth.")
        return
    exchange.run(WRITE, _begin, exchange, guard)


def _begin(exchange: Exchange, guard: Guard) -> None:
    then = partial(_adopt, exchange, guard, guard.begin_loading())
    exchange.work_beside(partial(_load, guard.policy), then)


def _load(policy: Policy) -> Policy | PolicyError:
    try:
        return load(policy.path, policy)
    except PolicyError as error:
        return error


def _adopt(exchange: Exchange, guard: Guard, number: int, found: Policy | PolicyError) -> None:
    if isinstance(found, PolicyError):
        guard.reload_failures += 1
        exchange.refuse(Code.RELOAD_REFUSED, str(found))
        return
    changes = guard.adopt(found, number)
    log.info("access rules reloaded", extra=changes)
    exchange.answer(Answer(200, JSON_LINES, msgspec.json.encode(changes)))
