"""Exchanges: one request and its response, on a connection that may carry several at once.

Responses leave in the order of the requests. Writes one behind the other are queued as they come; a read waits until
every write before it has been applied, a write until every read before it has looked, and everything waits for a fork,
whose saga takes more than one commit. So a pipeline reads as if its requests had come one by one.
"""

import logging
import re
import secrets
from asyncio import Task
from collections.abc import Callable
from enum import Enum
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from headwater.http.wire import rendering, statuses
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer, Voice
from headwater.http.wire.uploads import Upload
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.queries import Query
from headwater.streams.replies import Created, Page, Reply

if TYPE_CHECKING:
    from headwater.http.connection import Connection
    from headwater.node.node import Node

log = logging.getLogger(__name__)
access = logging.getLogger("headwater.access")

_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class Kind(Enum):
    """What an exchange has to wait for, and who has to wait for it."""

    READ = "read"
    WRITE = "write"
    FORK = "fork"


# An enum's members cost a function call each time they are looked up; these do not.
READ, WRITE, FORK = Kind


class Exchange:
    """One request that is being answered."""

    __slots__ = (
        "began_at_seconds",
        "close",
        "connection",
        "kind",
        "looking",
        "node",
        "request",
        "response",
        "route",
        "start",
        "voice",
    )

    def __init__(self, connection: "Connection", request: Request, *, close: bool) -> None:
        self.connection = connection
        self.request = request
        self.close = close
        self.node: Node = connection.server.node
        self.voice: Voice = connection.server.voice
        self.kind = READ
        self.looking = False
        """Whether it waits for bytes from the lake."""
        self.start: Callable[[], None] | None = None
        self.response: list[bytes] | None = None
        self.route = "none"
        """The row of the URL table and the method, for the metrics."""
        self.began_at_seconds = monotonic()

    def run(self, kind: Kind, work: Callable[..., None], *arguments: Any) -> None:
        """Do the work of this exchange as soon as what is before it allows."""
        self.kind = kind
        if self.connection.may_start(self):
            work(*arguments)
        else:
            self.start = partial(work, *arguments)

    def look(self, query: Query, then: Callable[[Reply], None]) -> None:
        """Go on with the answer to a query: at once, or when the lake has brought what it takes."""
        reply = self.node.read(query)
        if isinstance(reply, Task):
            self.wait_for(reply, then)
        else:
            then(reply)

    def wait_for(self, reply: "Task[Reply]", then: Callable[[Reply], None]) -> None:
        """Go on when the lake has brought what the answer takes."""
        self.looking = True
        reply.add_done_callback(partial(self._looked, then))

    def _looked(self, then: Callable[[Reply], None], task: "Task[Reply]") -> None:
        self.looking = False
        if task.cancelled() or self.connection.lost:
            self.give_up()
            return
        try:
            then(task.result())
        except Exception:
            self.fail()

    def give_up(self) -> None:
        """Nobody waits for the answer any more: let go of what came with the request."""
        if isinstance(self.request.upload, Upload):
            self.request.upload.abandon()

    def reply(self, reply: Reply) -> None:
        """Answer with the outcome of a command or a query."""
        answer = statuses.answer(reply, self.voice)
        if type(reply) is Created:
            answer = Answer(answer.status, f"{answer.headers}Location: {self.url()}\r\n")
        self.answer(answer)

    def url(self, more: str = "") -> str:
        """The absolute URL of this request, or of what lies below it."""
        authority = self.request.authority or self.request.headers.get(b"host", b"localhost")
        # Whoever ends TLS before us says so.
        scheme = "https" if self.request.headers.get(b"x-forwarded-proto") == b"https" else "http"
        return f"{scheme}://{authority.decode('latin-1').strip()}{self.request.path.decode('latin-1')}{more}"

    def refuse(self, code: Code, detail: str) -> None:
        self.reply(Refusal(code, detail))

    def fail(self) -> None:
        """Whatever went wrong is our mistake: the log says what, the client learns that."""
        request_id = self.request_id()
        log.exception("a request failed", extra={"request_id": request_id})
        if self.response is None:
            self.refuse(Code.INTERNAL, f"The server made a mistake; its log says more about request {request_id}.")

    def answer_page(self, page: Page) -> None:
        """Finish with a page, which others may read at the same time."""
        if self.connection.server.origins is not None:
            self.answer(statuses.answer(page, self.voice))
            return
        self.response = rendering.page(page, self.voice, close=self.close)
        self._count(200)
        self.connection.finished()

    def answer(self, answer: Answer) -> None:
        """Finish; the bytes leave when every response before them has."""
        if self.connection.server.origins is not None:
            answer = Answer(answer.status, answer.headers + self.origin_lines(), answer.body)
        head_only = self.request.method == b"HEAD"
        self.response = rendering.response(answer, close=self.close, head_only=head_only)
        self._count(answer.status)
        self.connection.finished()

    def origin_lines(self) -> str:
        """Where only some origins may read: whether this one may."""
        allowed = self.connection.server.origins
        if allowed is None:
            return ""
        origin = self.request.header(b"origin")
        return f"Access-Control-Allow-Origin: {origin}\r\nVary: Origin\r\n" if origin in allowed else "Vary: Origin\r\n"

    def _count(self, status: int) -> None:
        seconds = monotonic() - self.began_at_seconds
        self.node.metrics.finished(self.route, status, seconds)
        if self.connection.settings.access_log:
            self.log_access(status, seconds)

    def log_access(self, status: int, seconds: float) -> None:
        """One line for a request that has been answered, or whose answer has begun."""
        request = self.request
        access.info(
            "%s %s %d",
            request.method.decode("latin-1"),
            request.path.decode("latin-1"),
            status,
            extra={"request_id": self.request_id(), "milliseconds": round(seconds * 1000, 3)},
        )

    def request_id(self) -> str:
        """What the client calls this request, or else a name of ours, to find it in the log by."""
        given = self.request.header(b"x-request-id")
        return given if given is not None and _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)

    def began_stream(self) -> None:
        """Count a response that goes on: its status is out."""
        self.node.metrics.requests[self.route, 200] += 1
        if self.connection.settings.access_log:
            self.log_access(200, monotonic() - self.began_at_seconds)
