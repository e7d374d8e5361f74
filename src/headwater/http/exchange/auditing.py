"""Auditing: the lines of requests in the audit log. What is recorded of a request is in its row of the table."""

from headwater.access.audit import Event, Record
from headwater.access.grants import Action
from headwater.http.context import Context
from headwater.http.guard.gates import Caller
from headwater.http.wire.codes import REFUSALS
from headwater.http.wire.requests import Request
from headwater.protocol import headers
from headwater.protocol.refusals import Refusal

_AGENT = headers.USER_AGENT.key
_DENIED = frozenset({401, 403})


def record_denied(  # noqa: PLR0917
    context: Context, request: Request, caller: Caller, action: Action, name: str | None, refusal: Refusal
) -> None:
    """Record a request that was denied by who asked, or by where it came from."""
    status = REFUSALS[refusal.code][0]
    if context.audit is None or status not in _DENIED:
        return
    guard = context.guard
    who = None if guard is None else guard.name_of(request)
    address = context.proxies.client_of(request, caller.address)
    context.audit.record(
        Record(
            Event.DENIED,
            who=who,
            address=address,
            action=action.word,
            name=name,
            status=status,
            code=refusal.code.value,
            agent=request.header(_AGENT),
        )
    )


def record_change(  # noqa: PLR0917
    context: Context, request: Request, caller: Caller, event: Event, name: str, who: str, kind: str, status: int
) -> None:
    """Record a request that has changed something."""
    assert context.audit is not None, "asked before"
    address = context.proxies.client_of(request, caller.address)
    agent = request.header(_AGENT)
    context.audit.record(Record(event, who=who, kind=kind, address=address, name=name, status=status, agent=agent))
