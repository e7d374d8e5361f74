"""The vocabulary of the endpoint table: what one method of one URL does, takes, gives and refuses."""

import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

from headwater.access.audit import Event
from headwater.access.grants import Action
from headwater.http.context import Context
from headwater.http.exchange.exchange import Exchange
from headwater.http.wire.addresses import Address, Shape
from headwater.http.wire.intakes import Intake
from headwater.http.wire.requests import Request
from headwater.protocol import headers as h
from headwater.protocol.headers import Header
from headwater.protocol.limits import APPEND_BYTES_MAX
from headwater.protocol.refusals import Code, Refusal

Handler = Callable[[Request, Address, Exchange], None]

ANY = "*/*"
"""The media type of bodies that can be of any."""
_PARAMETER = re.compile(r"{(\w+)}")


_CHANGES_NOTHING = frozenset({Action.NONE, Action.READ, Action.OBSERVE})
_CONDITIONS = (h.IF_MATCH, h.IF_NONE_MATCH)


class Takes(NamedTuple):
    """The body of a request: the name of its schema by media type, and examples."""

    content: Mapping[str, str]
    required: bool = False
    examples: Mapping[str, Any] = {}


class Gives(NamedTuple):
    """A response that is not a refusal: what it means, its headers, and the name of its body's schema by media type."""

    meaning: str
    headers: tuple[Header, ...] = ()
    maybe: tuple[Header, ...] = ()
    """Headers that only some of these responses have."""
    content: Mapping[str, str] = {}
    event: Event | None = None
    """What the audit log records of a request that is answered so."""


@dataclass(frozen=True)
class Route:
    """One method of one endpoint."""

    run: Handler
    action: Action
    summary: str
    gives: Mapping[int, Gives]
    refuses: tuple[Code, ...] = ()
    """Codes of refusals, apart from those that any request may meet."""
    _: KW_ONLY
    query: tuple[str, ...] = ()
    headers: tuple[Header, ...] = ()
    takes: Takes | None = None
    body_bytes_max: int = APPEND_BYTES_MAX
    names_inside: bool = False
    """Whether the names that it is about are in its query or body, so that its handler judges them."""
    for_jobs: bool = False
    """Whether clients reach it although operators have a listener of their own: a job has one URL."""
    on_reserve: bool = False
    """Whether it is answered even when all connections are taken."""
    intake: Callable[[Context, Callable[[], None]], Intake] | None = None
    """How bodies are received that do not simply go to memory; the function tells the connection that it may read on.
    A large one waits until every earlier request on its connection has been answered."""
    judge: Callable[[Request, Address, Context], Refusal | None] | None = None
    """Why a request with a large body is refused whatever the body is, judged by its head before the body is read."""
    events: Mapping[int, Event] = field(init=False)
    """What is recorded of it, by the status of the answer."""
    unevaluated: frozenset[bytes] = field(init=False)
    """Conditions that it does not evaluate. What they guard must not happen as if they had held, so it is refused; a
    request that changes nothing is answered without regard to them."""

    def __post_init__(self) -> None:
        events = {status: gives.event for status, gives in self.gives.items() if gives.event is not None}
        object.__setattr__(self, "events", events)
        unknown = () if self.action in _CHANGES_NOTHING else set(_CONDITIONS) - set(self.headers)
        object.__setattr__(self, "unevaluated", frozenset(header.key for header in unknown))

    def refuse_conditions(self, request: Request, address: Address, exchange: Exchange) -> None:
        """Answer a request that carries a condition which this route does not evaluate."""
        name = next(one.name for one in _CONDITIONS if one.key in self.unevaluated and one.key in request.headers)
        exchange.give_up()
        exchange.refuse(Code.INVALID_HEADER, f"This request cannot depend on {name}; leave the header out.")


@dataclass(frozen=True)
class Endpoint:
    """A URL and its methods. Where there is GET there is HEAD, unless `head` says otherwise."""

    path: str
    label: str
    """What metrics call it, after the method."""
    routes: Mapping[bytes, Route]
    _: KW_ONLY
    head: bool = True
    operation: str = ""
    """What operations are called in the OpenAPI document, after the method; the label unless given."""
    parameters: tuple[str, ...] = field(init=False)
    shape: Shape = field(init=False)

    def __post_init__(self) -> None:
        routes: dict[bytes, Route] = {}
        for method, route in self.routes.items():
            routes[method] = route
            if method == b"GET" and self.head:
                routes[b"HEAD"] = self.routes.get(b"HEAD", route)
        object.__setattr__(self, "routes", routes)
        object.__setattr__(self, "operation", self.operation or self.label.replace("-", "_"))
        object.__setattr__(self, "parameters", tuple(_PARAMETER.findall(self.path)))
        segments = self.path.split("/")[1:]
        object.__setattr__(self, "shape", tuple(None if _PARAMETER.fullmatch(one) else one for one in segments))

    @property
    def has_surfaces(self) -> bool:
        """Whether it is below a bucket, and so reached under several prefixes."""
        return self.parameters[:1] == ("bucket",)
