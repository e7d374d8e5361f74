"""Access: who a client is, and new rules."""

import asyncio
from functools import partial
from itertools import islice
from math import inf
from time import monotonic

import msgspec

from headwater.access.allowances import Usage
from headwater.access.grants import Action
from headwater.access.policy import Policy, PolicyError, Reloaded
from headwater.access.policy import reload as reload_policy
from headwater.http.context import Context
from headwater.http.exchange.exchange import READ, WRITE, Exchange
from headwater.http.guard.gates import Guard
from headwater.http.wire.addresses import Address
from headwater.http.wire.rendering import JSON_LINES
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer
from headwater.node.scans.pace import Pace
from headwater.protocol.refusals import Code

COUNTED_PER_STEP = 200
"""How many clients' usage is added up at a time: about a millisecond of work."""


def whoami(request: Request, address: Address, exchange: Exchange) -> None:
    """Tell a client who it is to this server, and for how long."""
    identity = exchange.identity
    body = {
        "name": identity.name,
        "kind": identity.kind.value,
        "mode": exchange.context.settings.mode.value,
        "log_id": exchange.node.log_id if identity.may_some(Action.PIPELINE) else None,
        "expires_in_seconds": None if identity.expires_at == inf else round(identity.expires_at - monotonic(), 3),
    }
    exchange.answer(Answer(200, JSON_LINES, msgspec.json.encode(body)))


def reload(request: Request, address: Address, exchange: Exchange) -> None:
    """Read the access file again; if it is bad, the old rules stay."""
    guard = exchange.context.guard
    if guard is None:
        exchange.refuse(Code.NOT_FOUND, "This server has no access file; start it with --auth.")
        return
    exchange.run(WRITE, _begin, exchange, guard)


def _begin(exchange: Exchange, guard: Guard) -> None:
    then = partial(_adopt, exchange, guard, guard.begin_loading())
    exchange.work_beside(partial(_load, guard.policy), then)


def _load(policy: Policy) -> Reloaded | PolicyError:
    try:
        return reload_policy(policy)
    except PolicyError as error:
        return error


def _adopt(exchange: Exchange, guard: Guard, number: int, found: Reloaded | PolicyError) -> None:
    if isinstance(found, PolicyError):
        guard.reload_failures += 1
        exchange.refuse(Code.RELOAD_REFUSED, str(found))
        return
    guard.adopt(found.policy, number)
    exchange.context.report_reload(found.changes)
    together = exchange.context.together
    if together is None:
        _answer_reload(exchange, found, [])
    else:
        exchange.await_task(together.reload(), partial(_answer_reload, exchange, found))


def _answer_reload(exchange: Exchange, found: Reloaded, failed: list[str]) -> None:
    if failed:
        detail = f"Not all processes of the server have the new rules ({', '.join(failed)}); try again."
        exchange.refuse(Code.RELOAD_REFUSED, detail)
    else:
        exchange.answer(Answer(200, JSON_LINES, msgspec.json.encode(found.changes)))


async def adopt_rules(context: Context) -> str:
    """Read the access file again, because another process of this server did; why that failed, or nothing."""
    guard = context.guard
    if guard is None:
        return ""
    number = guard.begin_loading()
    found = await asyncio.get_running_loop().run_in_executor(context.node.threads, _load, guard.policy)
    if isinstance(found, PolicyError):
        guard.reload_failures += 1
        return str(found)
    guard.adopt(found.policy, number)
    return ""


# -- Usage ------------------------------------------------------------------------------------------------------------


def usage(request: Request, address: Address, exchange: Exchange) -> None:
    """What each client and each bucket uses."""
    exchange.run(READ, _usage, exchange)


def _usage(exchange: Exchange) -> None:
    context = exchange.context
    used = client_usage(context) if context.together is None else context.together.usage()
    exchange.await_task(used, partial(_count_usage, exchange))


async def client_usage(context: Context) -> list[tuple[str, Usage]]:
    """What each client used, in this process; to add up that of all takes a while if there are many."""
    if context.guard is None:
        return []
    pace, found = Pace(), list[tuple[str, Usage]]()
    accounts = iter(context.guard.allowances.accounts())
    while some := list(islice(accounts, COUNTED_PER_STEP)):
        found += [(principal, account.usage) for principal, account in some]
        await pace.rest()
    return found


def _count_usage(exchange: Exchange, clients: list[tuple[str, Usage]]) -> None:
    # Copies of the tables, since a thread must not walk through what the event loop changes.
    state = exchange.node.only.state
    lives, stored = dict(state.lives), dict(state.bytes)
    exchange.work_beside(partial(_render_usage, clients, lives, stored), partial(_answer_usage, exchange))


def _render_usage(clients: list[tuple[str, Usage]], lives: dict[str, int], stored: dict[str, int]) -> bytes:
    buckets = {name: {"streams": count, "stored_bytes": stored.get(name, 0)} for name, count in lives.items()}
    used = {principal: one._asdict() for principal, one in clients}
    return msgspec.json.encode({"principals": used, "buckets": buckets})


def _answer_usage(exchange: Exchange, body: bytes) -> None:
    exchange.answer(Answer(200, JSON_LINES, body))
