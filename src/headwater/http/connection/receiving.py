"""Receiving: what a connection takes in of a body, judged by the head of its request if the body is large.

A large body is refused before it is read if the route knows a reason, or if there is no memory for it. Where the answer
depends on earlier requests of the connection, it waits for theirs; meanwhile the connection is not read.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from headwater.http.exchange.auditing import record_denied
from headwater.http.table.router import Found
from headwater.http.wire import rendering
from headwater.http.wire.budgets import Charge
from headwater.http.wire.intakes import SMALL_BODY_BYTES, Intake
from headwater.http.wire.requests import Request
from headwater.protocol.limits import APPEND_BYTES_MAX
from headwater.protocol.refusals import Code, Refusal

if TYPE_CHECKING:
    from headwater.http.connection.connection import Connection

NO_BODY = Refusal(
    Code.TOO_LARGE, f"This request takes no body, and one of more than {SMALL_BODY_BYTES} bytes is not read."
)
FULL = Refusal(Code.OVERLOADED, "Too many connections are open; try again in a second.")

Find = Callable[[bytes, bytes], Found | Refusal]


class _Judging(NamedTuple):
    head: Request
    found: Found | None
    size: int | None


class Receiving:
    """The body that comes next on a connection, or is being received."""

    def __init__(self, connection: "Connection", find: Find) -> None:
        self._connection, self._find = connection, find
        self._intake: Intake | None = None
        self._judging: _Judging | None = None
        self._owes_continue = False

    @property
    def full(self) -> bool:
        """Whether the client has to wait before it sends more."""
        return self._judging is not None or (self._intake is not None and self._intake.full)

    def plan(self, method: bytes, path: bytes) -> tuple[int, Intake | None] | Refusal:
        """How large a body may be, and its intake, if the route has its own kind."""
        found = self._find(method, path)
        self._intake = None
        if isinstance(found, Refusal):
            return APPEND_BYTES_MAX, None
        route = found.route
        if self._connection.reserved and not route.on_reserve:
            return FULL
        if route.intake is not None:
            self._intake = route.intake(self._connection.context, self._connection.balance)
        return route.body_bytes_max, self._intake

    def begin(self, head: Request, size: int | None, *, expects_continue: bool) -> Intake | None:
        """A large body is about to come, of unknown size if None; returns its intake unless it is refused."""
        self._owes_continue = expects_continue
        looked_up = self._find(head.method, head.path)
        found = None if isinstance(looked_up, Refusal) else looked_up
        refusal = self._refuse(head, looked_up, size)
        if refusal is not None:
            self._connection.refuse_head(head, found, refusal)
            return None
        self._judging = _Judging(head, found, size)
        if self._intake is None:
            self._intake = Charge(self._connection.context.receiving)
            self._judge()
        elif self._connection.answered:
            self._judge()
        else:
            self._connection.balance()
        return self._intake

    def _refuse(self, head: Request, found: Found | Refusal, size: int | None) -> Refusal | None:
        """Why a body is not received, as far as the route and the rights of the client say."""
        if head.method != b"OPTIONS":  # Preflights have no route.
            if isinstance(found, Refusal):
                return found
            context, action = self._connection.context, found.route.action
            admitted = context.gate.admit(head, action, found.judged, self._connection)
            if isinstance(admitted, Refusal):
                record_denied(context, head, self._connection, action, found.judged, admitted)
                return admitted
        if not isinstance(found, Refusal) and found.route.takes is not None:
            return None
        # Anonymous clients may use many routes without a body, and must not take all the memory for bodies.
        return NO_BODY if size is None or size > SMALL_BODY_BYTES else None

    def answered(self) -> None:
        """Every earlier request has been answered."""
        if self._judging is not None:
            self._judge()
        self.go_on()

    def go_on(self) -> None:
        """Tell a client that waits for `100 Continue` to send its body, once its turn has come."""
        if self._owes_continue and self._connection.answered and not self.full:
            self._owes_continue = False
            self._connection.write(rendering.CONTINUE)

    def _judge(self) -> None:
        assert self._judging is not None
        assert self._intake is not None
        (head, found, size), self._judging = self._judging, None
        refusal = None
        if found is not None and found.route.judge is not None and self._connection.answered:
            refusal = found.route.judge(head, found.address, self._connection.context)
        if refusal is not None:
            self._connection.refuse_head(head, found, refusal)
        else:
            self._intake.begin(size, lambda refusal: self._connection.refuse_head(head, found, refusal))
        self._connection.balance()

    def finish(self) -> None:
        """The body is complete, and its intake belongs to its request; one that arrived at once is judged with that."""
        self._owes_continue = False
        self._judging = None
        self._intake = None

    def abandon(self) -> None:
        """Nothing more of the body is received."""
        self._owes_continue = False
        self._judging = None
        if self._intake is not None:
            self._intake.abandon()
            self._intake = None

    def close(self) -> None:
        """Break the reference cycle with the connection."""
        self.abandon()
        del self._connection
