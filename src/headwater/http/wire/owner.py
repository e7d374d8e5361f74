"""Who a parser works for: the connection, as far as the parser knows it."""

from typing import Protocol

from headwater.http.wire.intakes import Intake
from headwater.http.wire.requests import Request
from headwater.protocol.refusals import Code, Refusal


class Owner(Protocol):
    """Receives what the parser has found."""

    def requested(self, request: Request) -> None:
        """A whole request has arrived."""

    def take(self, request: Request) -> bool:
        """A whole request with a plain head has arrived; returns whether it is taken, as a body in memory can be."""

    def plan_body(self, method: bytes, path: bytes) -> tuple[int, Intake | None] | Refusal:
        """How large a body may be, and its intake, if it does not simply go to memory; or why none is read."""

    def begin_body(self, head: Request, size: int | None, *, expects_continue: bool) -> Intake | None:
        """A large body is about to come, or the client waits for `100 Continue`; returns its intake if it is taken."""

    def refuse(self, code: Code, detail: str) -> None:
        """The input is not a valid request, and nothing after it can be read."""
