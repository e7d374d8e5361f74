"""From a request to its route: found, admitted, and run now or when the exchanges before it allow."""

from collections import deque
from time import monotonic
from typing import Protocol

from headwater.access.allowances import Account
from headwater.access.grants import Action
from headwater.access.identities import Identity
from headwater.http.connection.receiving import FULL
from headwater.http.exchange.auditing import record_denied
from headwater.http.exchange.exchange import WRITE, Carrier, Exchange
from headwater.http.guard.accounts import charge, charge_in_credit
from headwater.http.guard.gates import EVERYBODY, Guard
from headwater.http.table.router import Found
from headwater.http.wire import rendering
from headwater.http.wire.requests import ACCESS_TOKEN, Request
from headwater.http.wire.statuses import Answer, Dialect
from headwater.protocol import headers
from headwater.protocol.refusals import Refusal

_AUTHORIZATION, _ORIGIN = headers.AUTHORIZATION.key, headers.ORIGIN.key


def open_exchange(connection: Carrier, request: Request, *, close: bool) -> Exchange:
    """The exchange of a request that has just arrived; if `close`, the connection ends with it."""
    context = connection.context
    return Exchange(
        connection,
        context,
        context.node,
        request,
        request,
        context.gate.changes,
        EVERYBODY,
        context.dialect,
        close,
        monotonic(),
    )


def dispatch(exchange: Exchange, found: Found | Refusal, *, reserved: bool) -> None:
    """Answer a request whose route was looked up, or begin to; `reserved`: whether the connection is on the reserve."""
    request, context = exchange.request, exchange.context
    if type(found) is Refusal:
        if request.method == b"OPTIONS":
            exchange.answer(Answer(204, rendering.PREFLIGHT_LINES))
        else:
            exchange.reply(found)
        return
    assert type(found) is Found
    address, route = found.address, found.route
    exchange.route, exchange.events = found.label, route.events
    exchange.action, exchange.judged_name = route.action, found.judged
    if context.guard is None and _ORIGIN not in request.headers and not reserved:
        # Every client may do everything.
        if not address.flat:
            exchange.dialect = context.plain_dialect
    elif context.guard is None or reserved or not _recognise(context.guard, exchange, found):
        refusal = _admit(exchange, found)
        if refusal is None and reserved and not route.on_reserve:
            refusal = FULL
        if refusal is None and context.guard is not None:
            refusal = _charge(context.guard, exchange, route.action)
        if refusal is not None:
            exchange.give_up()
            exchange.reply(refusal)
            return
        exchange.dialect = context.dialect_for(address)
        if context.guard is not None:
            _remember(context.guard, exchange, found)
    # Only now: before, not even the type of the stream may show in an answer.
    exchange.name = address.name
    if route.unevaluated and not route.unevaluated.isdisjoint(request.headers):
        route.refuse_conditions(exchange.request, address, exchange)
    else:
        found.run(exchange.request, address, exchange)


class Waiting(Protocol):
    """An append from the short path; it holds the place of its exchange while the log decides."""

    connection: Carrier
    found: Found
    head: bytes
    body: bytes
    began_at_seconds: float
    close: bool
    identity: Identity
    judged_by: int
    account: Account | None
    dialect: Dialect


def replace_with_exchange(waiting: Waiting) -> Exchange:
    """Replace a waiting append by an exchange, which answers any outcome but the usual one."""
    connection, found = waiting.connection, waiting.found
    head = connection.context.heads.parse(waiting.head, 0, None)
    assert head is not None, "a head from the short path is plain"
    request = Request(head.method, b"", head.path, head.query, head.headers, waiting.body, True, True)
    exchange = open_exchange(connection, request, close=waiting.close)
    exchange.kind, exchange.began_at_seconds, exchange.route = WRITE, waiting.began_at_seconds, found.label
    exchange.action, exchange.judged_name, exchange.name = found.route.action, found.judged, found.address.name
    exchange.identity, exchange.judged_by, exchange.account = waiting.identity, waiting.judged_by, waiting.account
    exchange.dialect = waiting.dialect
    exchanges: deque[object] = connection.exchanges  # type: ignore[assignment]
    for index, other in enumerate(exchanges):
        if other is waiting:
            exchanges[index] = exchange
            break
    return exchange


def _admit(exchange: Exchange, found: Found) -> Refusal | None:
    """Have the gate judge a request; returns why it is refused."""
    context, request = exchange.context, exchange.request
    identity = context.gate.admit(request, found.route.action, found.judged, exchange.connection)
    if isinstance(identity, Refusal):
        record_denied(context, request, exchange.connection, found.route.action, found.judged, identity)
        return identity
    exchange.identity = identity
    if ACCESS_TOKEN in request.query and context.guard is not None:
        exchange.cut_ticket()
    return None


def _recognise(guard: Guard, exchange: Exchange, found: Found) -> bool:
    """Admit and charge a request like the last one that was admitted to its route; all others are to be judged.

    So the gate, the account and the dialect cost a few lookups together for nearly every request.
    """
    request = exchange.request
    known = guard.known.get(request.headers.get(_AUTHORIZATION, b""))
    if known is None or known.by != guard.changes or exchange.began_at_seconds >= known.until:
        return False
    identity, account = known.identity, known.account
    # An identity is made by one version of the rules, so the route has admitted it by the same.
    if found.admitted is not identity or found.admitted_dialect is None or ACCESS_TOKEN in request.query:
        return False
    if account is None or account.forgotten or not charge_in_credit(account, request, found.route.action):
        return False
    exchange.identity, exchange.account, exchange.dialect = identity, account, found.admitted_dialect
    return True


def _remember(guard: Guard, exchange: Exchange, found: Found) -> None:
    """Remember who was admitted, so that the next request like this one is recognised."""
    known = guard.known.get(exchange.request.headers.get(_AUTHORIZATION, b""))
    if known is not None and known.identity is exchange.identity and found.judged is not None:
        known.account = exchange.account
        found.admitted, found.admitted_dialect = known.identity, exchange.dialect


def _charge(guard: Guard, exchange: Exchange, action: Action) -> Refusal | None:
    """Charge the client for its request; beyond its share, mute or refuse it."""
    if action is Action.NONE:
        return None
    request = exchange.request
    exchange.account = account = guard.account_of(request, exchange.identity, exchange.connection)
    outcome = charge(account, request, action)
    if isinstance(outcome, Refusal):
        guard.limited += 1
        return outcome
    if outcome:
        exchange.connection.mute(outcome)
    return None
