"""Auditing: which requests have a line in the audit log."""

from headwater.access.audit import Event, Record
from headwater.access.grants import Action
from headwater.http.context import Context
from headwater.http.gates import Caller
from headwater.http.wire.codes import REFUSALS
from headwater.http.wire.requests import Request
from headwater.protocol import headers
from headwater.protocol.refusals import Refusal

_AGENT, _FORKED_FROM = headers.USER_AGENT.key, headers.STREAM_FORKED_FROM.key
_DENIED = frozenset({401, 403})

EVENTS = {
    ("PUT stream", 201): Event.CREATED,
    ("DELETE stream", 204): Event.DELETED,
    ("PUT bucket", 201): Event.BUCKET_MADE,
    ("DELETE bucket", 204): Event.BUCKET_DROPPED,
    ("PUT snapshot", 204): Event.SNAPSHOT,
    ("PUT retention", 204): Event.RETAINED,
    ("POST swap", 200): Event.SWAPPED,
    ("POST purge", 202): Event.PURGED,
    ("PUT reader", 204): Event.READER_REGISTERED,
    ("DELETE reader", 204): Event.READER_DROPPED,
}
"""What is recorded, by the route and the status of the answer."""
ROUTES = frozenset(route for route, _ in EVENTS)


def event_of(request: Request, route: str, status: int) -> Event | None:
    """What to record of a request that was answered."""
    event = EVENTS.get((route, status))
    return Event.FORKED if event is Event.CREATED and _FORKED_FROM in request.headers else event


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
