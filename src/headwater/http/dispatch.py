"""From a request to its route: found, admitted, and run now or when the exchanges before it allow."""

from time import monotonic

from headwater.access.grants import Action
from headwater.http.accounts import charge
from headwater.http.auditing import record_denied
from headwater.http.exchange import Exchange
from headwater.http.gates import Guard
from headwater.http.receiving import FULL, Find
from headwater.http.router import Found
from headwater.http.wire import rendering
from headwater.http.wire.requests import ACCESS_TOKEN, Request
from headwater.http.wire.statuses import Answer
from headwater.protocol.refusals import Code, Refusal

_RULES_CHANGED = Refusal(Code.OVERLOADED, "The access rules changed while this request waited; send it again.")


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
    run, address, exchange.route, route, judged = found
    identity = context.gate.admit(request, route.action, judged, exchange.connection)
    if isinstance(identity, Refusal):
        record_denied(context, request, exchange.connection, route.action, judged, identity)
        exchange.give_up()
        exchange.reply(identity)
        return
    if reserved and not route.on_reserve:
        exchange.reply(FULL)
        return
    if context.guard is not None:
        exchange.identity = identity
        if ACCESS_TOKEN in request.query:
            exchange.cut_ticket()
        refusal = _charge(context.guard, request, exchange, route.action)
        if refusal is not None:
            exchange.give_up()
            exchange.reply(refusal)
            return
    # Only now: before, not even the type of the stream may show in an answer.
    exchange.name = address.name
    exchange.voice = context.voice_for(address)
    if route.unevaluated and not route.unevaluated.isdisjoint(request.headers):
        run = route.refuse_conditions
    run(exchange.request, address, exchange)


def _charge(guard: Guard, request: Request, exchange: Exchange, action: Action) -> Refusal | None:
    """Charge the client for its request; beyond its share, mute or refuse it."""
    if action is Action.NONE:
        return None
    exchange.account = account = guard.account_of(request, exchange.identity, exchange.connection)
    outcome = charge(account, request, action)
    if isinstance(outcome, Refusal):
        guard.limited += 1
        return outcome
    if outcome:
        exchange.connection.mute(outcome)
    return None


def begin(exchange: Exchange, find: Find) -> None:
    """Do the work that had to wait for earlier exchanges, unless the client may not do it any more."""
    refusal = _refuse_by_now(exchange, find)
    if refusal is None:
        exchange.begin()
        return
    exchange.start, exchange.name = None, ""
    exchange.give_up()
    exchange.reply(refusal)


def _refuse_by_now(exchange: Exchange, find: Find) -> Refusal | None:
    """Why a request that was admitted is refused now: its credential has ended since, or the rules are others."""
    gate, identity, request = exchange.context.gate, exchange.identity, exchange.judged
    if exchange.judged_by == gate.changes and monotonic() < identity.expires_at:
        return None
    found = find(request.method, request.path)
    if isinstance(found, Refusal):
        return found
    renewed = gate.admit(request, found.route.action, found.judged, exchange.connection)
    if isinstance(renewed, Refusal):
        return renewed
    if (renewed.exact, renewed.prefixes) != (identity.exact, identity.prefixes):
        # Names in its body, its query or its headers were judged by the rights that it had.
        return _RULES_CHANGED
    exchange.identity, exchange.judged_by = renewed, gate.changes
    return None
