"""Exchanges: one request and its response, on a connection that may carry several at once.

Responses leave in the order of the requests. Consecutive writes are queued as they arrive; a read waits until every
write before it has been applied, a write until every read before it has its answer. Everything waits for a fork and
for a snapshot, which take more than one step and wait for writes like reads. A write whose body is examined in a thread
is not queued yet, so later writes wait for that. So a pipeline behaves as if its requests had come one by one.

With one exception: a write does not wait for a live read, which may be waiting for just that write. Other reads do, so
a connection never has more than one live read, and holds no pages that cannot be sent yet.

Rights can end while a request waits: its credential expires, or the access rules are reloaded. So whatever resumes a
request rechecks it first: `recheck` before its work begins, `may_still_read` before a live read gets more.
"""

import logging
import re
import secrets
import sys
from asyncio import Future, Task, get_running_loop
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import Enum
from functools import partial
from time import monotonic
from typing import Any, Protocol, TypeVar

import msgspec

from headwater.access.allowances import Account
from headwater.access.audit import Event
from headwater.access.grants import Action
from headwater.access.identities import Identity
from headwater.http.context import Context
from headwater.http.exchange.auditing import record_change, record_denied
from headwater.http.guard.accounts import refuse
from headwater.http.guard.gates import Caller
from headwater.http.wire import statuses
from headwater.http.wire.requests import NOTHING, Request, cut_access_token
from headwater.http.wire.statuses import Answer, Dialect
from headwater.node.cluster.shared_shard import STALE
from headwater.node.node import Node
from headwater.protocol import headers
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.disk import NO_DESCRIPTORS, shortage_of
from headwater.streams.queries import Query
from headwater.streams.replies import Appended, Created, Page, Reply

T = TypeVar("T")

log = logging.getLogger(__name__)
_access_log = logging.getLogger("headwater.access")

_VALID_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_REQUEST_ID = headers.X_REQUEST_ID.key
_ORIGIN = headers.ORIGIN.key
_FORKED_FROM = headers.STREAM_FORKED_FROM.key
_OWN_LINES = frozenset({_REQUEST_ID, _ORIGIN})
"""Headers of a request that may add lines to its response."""
_RULES_CHANGED = Refusal(Code.OVERLOADED, "The access rules changed while this request waited; send it again.")


class Kind(Enum):
    """Decides what an exchange waits for, and what waits for it."""

    READ = "read"
    LIVE = "live"
    """A read that may have to wait for something to read."""
    WRITE = "write"
    IN_TURN = "in turn"
    """A change that waits until every earlier request of its connection has been answered."""


# Looking up an enum's member costs a function call each time; these names cost none.
READ, LIVE, WRITE, IN_TURN = Kind


class LiveResponse(Protocol):
    """A response that is not complete yet, as its connection and the server drive it."""

    endless: bool
    """Whether it may wait forever for something to send."""

    def tick(self, now: float) -> None:
        """About twice a second: time-outs, heartbeats."""

    def resume(self) -> None:
        """The socket has room again."""

    def finish(self) -> None:
        """End cleanly: the server shuts down."""

    def abandon(self) -> None:
        """The client is gone."""


class StreamedResponse(LiveResponse, Protocol):
    """A response that is sent piece by piece."""

    def begin(self) -> None:
        """Every response before it has been sent: send the head, and start."""


class Carrier(Caller, Protocol):
    """The connection, as its exchanges and their handlers use it."""

    exchanges: "deque[Exchange]"
    """Those whose responses have not been sent."""
    context: Context
    lost: bool
    write_paused: bool

    def may_start(self, exchange: "Exchange") -> bool:
        """Whether nothing before this exchange holds it up."""

    def finished(self) -> None:
        """An exchange has its response."""

    def go_live(self, exchange: "Exchange", live: LiveResponse) -> None:
        """Keep an exchange open while something waits for its answer."""

    def take_over(self, exchange: "Exchange", stream: StreamedResponse) -> None:
        """Send a response piece by piece, once it is the first in line."""

    def write(self, data: bytes) -> None:
        """Send a piece of the response that is first in line."""

    def end_sse(self) -> None:
        """The SSE response is complete, and the connection with it."""

    def mute(self, seconds: float) -> None:
        """Take nothing from the client for a while."""

    def abort(self) -> None:
        """Close at once, so that the client sees that the response is incomplete."""


class Exchange(msgspec.Struct, eq=False):
    """One request that the gate has admitted, and its response. A struct, because it is made for every request."""

    connection: Carrier
    context: Context
    node: Node
    request: Request
    judged: Request
    """The request as the gate judged it, with the credential in its URL."""
    judged_by: int
    """How often the rules had changed when it was judged."""
    identity: Identity
    """The client that sent it."""
    dialect: Dialect
    close: bool
    began_at_seconds: float
    action: Action = Action.NONE
    judged_name: str | None = None
    """What it does, and the name by which that was judged; None if its handler judges the names."""
    account: Account | None = None
    """What its principal has left of its limits, if there may be any."""
    live_slots: int = 0
    ticket: bytes | None = None
    """The credential that was in its URL."""
    keys_missing: bool = False
    """Whether it could not be rechecked, because the keys of an issuer are missing."""
    name: str = ""
    """The stream that it is about, if any."""
    kind: Kind = READ
    fetching: bool = False
    """Whether it waits for bytes from the lake, for a thread, or for a barrier."""
    start: Callable[[], None] | None = None
    response: list[bytes] | None = None
    route: str = "none"
    """The method and the endpoint, for the metrics."""
    events: Mapping[int, Event] | None = None
    """What the audit log records, by the status of the answer."""

    # -- Working --------------------------------------------------------------------------------------------------

    def run(self, kind: Kind, work: Callable[..., None], *arguments: Any) -> None:
        """Do the work of this exchange as soon as the exchanges before it allow.

        What answers from state does it behind a barrier: it sees everything that any node has acknowledged.
        """
        if kind is not WRITE and self.node.shared:
            work, arguments = self.behind_barrier, (partial(work, *arguments),)
        self.run_at_once(kind, work, *arguments)

    def run_at_once(self, kind: Kind, work: Callable[..., None], *arguments: Any) -> None:
        """As `run`, but the work itself sees to it that what it answers is not stale."""
        self.kind = kind
        connection = self.connection
        if (connection.exchanges[0] is self and not connection.write_paused) or connection.may_start(self):
            work(*arguments)
        else:
            self.start = partial(work, *arguments)

    def behind_barrier(self, work: Callable[[], None]) -> None:
        """Work when everything is applied here that any node had acknowledged before; later writes wait until then."""
        self.fetching = True
        self.node.barrier(partial(self._resume, work))

    def _resume(self, work: Callable[[], None], is_fresh: bool) -> None:
        self.fetching = False
        if not is_fresh:
            self.refuse(Code.LOG_UNAVAILABLE, self.node.outage or STALE)
        elif self.connection.lost:
            self.give_up()
        elif self.recheck():
            self._try(work)
            if self.kind is LIVE:
                self.connection.finished()  # Writes that waited can begin now: it may wait for what they bring.

    def wait_in_line(self, work: Callable[[], None]) -> None:
        """Work when long pages may be sent again; later writes wait until then."""
        self.fetching = True
        self.context.long_pages.wait(partial(self._resume, work, True))

    def begin(self) -> None:
        """Do the work that had to wait, unless the client may not do it any more."""
        start, self.start = self.start, None
        assert start is not None, "only an exchange that waits can begin"
        if self.recheck():
            self._try(start)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            self.fail()

    def query(self, query: Query, then: Callable[[Reply], None]) -> None:
        """Continue with the answer to a query: at once, or when its bytes have arrived from the lake."""
        reply = self.node.read(query)
        if isinstance(reply, Task):
            self.wait_for(reply, then)
        else:
            then(reply)

    def wait_for(self, reply: "Task[Reply]", then: Callable[[Reply], None]) -> None:
        """Continue when the bytes for an answer have arrived from the lake."""
        self.fetching = True
        reply.add_done_callback(partial(self._fetched, then))

    def _fetched(self, then: Callable[[T], None], done: "Future[T]") -> None:
        self.fetching = False
        if done.cancelled() or self.connection.lost:
            self.give_up()
        else:
            self._try(lambda: then(done.result()))

    def work_beside(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Work in a thread, and continue with the outcome; later writes on this connection wait until then."""
        self.fetching = True
        done = get_running_loop().run_in_executor(self.node.threads, work)
        done.add_done_callback(partial(self._worked_beside, then))

    def _worked_beside(self, then: Callable[[T], None], done: "Future[T]") -> None:
        self._fetched(then, done)
        # Writes that waited can be submitted now, before this one has its answer.
        self.connection.finished()

    def await_task(self, work: Coroutine[Any, Any, T | Refusal], then: Callable[[T], None]) -> None:
        """Work in a task, and continue with its outcome unless that is a refusal or the client is gone."""
        get_running_loop().create_task(work).add_done_callback(partial(self._worked, then))

    def _worked(self, then: Callable[[T], None], task: "Task[T | Refusal]") -> None:
        if task.cancelled():
            return
        try:
            outcome = task.result()
            if self.connection.lost:
                return
            if isinstance(outcome, Refusal):
                self.reply(outcome)
            else:
                then(outcome)
        except Exception:
            self.fail()

    def drop(self) -> None:
        """It is not answered any more: do not begin its work if that still waits, and release its body."""
        if self.live_slots:
            self.release_live_slots()
        if self.start is not None:
            self.start = None
            self.give_up()
        elif self.request.intake is not None:
            self.request.intake.release()

    def give_up(self) -> None:
        """The client is gone: release what came with the request."""
        if self.request.intake is not None:
            self.request.intake.abandon()

    # -- Answering ------------------------------------------------------------------------------------------------

    def reply(self, reply: Reply) -> None:
        """Answer with the outcome of a command or a query."""
        if type(reply) is Appended and _OWN_LINES.isdisjoint(self.request.headers):
            self._finish(*self.context.renderer.appended(reply, self.dialect, close=self.close))
            return
        answer = statuses.answer(reply, self.dialect)
        if type(reply) is Created:
            answer = Answer(answer.status, f"{answer.headers}{headers.LOCATION.line}{self.url()}\r\n")
        self.answer(answer)

    def refuse(self, code: Code, detail: str) -> None:
        self.reply(Refusal(code, detail))

    def fail(self) -> None:
        """Answer 500 after an exception, which goes to the log under the request's id; 503 if files ran out."""
        error = sys.exception()
        if isinstance(error, OSError) and error.errno in NO_DESCRIPTORS:
            log.error("request failed: %s", error)
            if self.response is None:
                self.refuse(Code.OVERLOADED, shortage_of(error))
            return
        request_id = self.request_id()
        log.exception("request failed", extra={"request_id": request_id})
        if self.response is None:
            self.refuse(Code.INTERNAL, f"The server failed; its log says more about request {request_id}.")

    def answer_page(self, page: Page) -> None:
        """Finish with a page, whose bytes all who read it at the same time share."""
        if not _OWN_LINES.isdisjoint(self.request.headers):
            self.answer(statuses.answer(page, self.dialect))
            return
        account = self.account
        if account is not None:
            account.reads.level -= len(page.body)
            if account.reads.level < 0:
                self.charge_read(0)
        self._finish(200, self.context.renderer.page(page, self.dialect, close=self.close))

    def answer(self, answer: Answer) -> None:
        """Finish; the response leaves when every response before it has."""
        request = self.request
        if request is NOTHING:
            # A page may have sent it, whose origin is not known.
            answer = msgspec.structs.replace(answer, headers=answer.headers + statuses.shared_lines(self.dialect))
        elif not _OWN_LINES.isdisjoint(request.headers):
            lines = self.with_own_lines(answer.headers, is_shared=answer.is_shared)
            answer = msgspec.structs.replace(answer, headers=lines)
        head_only = request.method == b"HEAD"
        if answer.body and self.account is not None and answer.status < 300 and not head_only:
            self.charge_read(len(answer.body))
        self._finish(answer.status, self.context.renderer.response(answer, close=self.close, head_only=head_only))

    def with_own_lines(self, lines: str, *, is_shared: bool = False) -> str:
        """Add what depends on the client to header lines: whether its origin may read, and its name for the request.

        What is shared says already whether all origins may read it.
        """
        origins, origin = self.context.origins, self.request.header(_ORIGIN)
        if origin is not None and not (is_shared and origins.to_all):
            lines += origins.reading_lines(origin)
        request_id = self._given_request_id()
        return lines if request_id is None else f"{lines}{headers.X_REQUEST_ID.line}{request_id}\r\n"

    def origin(self) -> str:
        """The scheme and authority under which the client reached this server."""
        if self.context.settings.public_url:
            return self.context.settings.public_url
        request = self.request
        authority = request.authority or request.headers.get(headers.HOST.key, b"localhost")
        # A proxy that terminates TLS says so.
        secure = self.context.secure or self.context.proxies.says_https(request, self.connection.address)
        scheme = "https" if secure else "http"
        return f"{scheme}://{authority.decode('latin-1').strip()}"

    def url(self, more: str = "") -> str:
        """The absolute URL of this request, or of something below it."""
        return f"{self.origin()}{self.request.path.decode('latin-1')}{more}"

    # -- Rights and limits ------------------------------------------------------------------------------------------

    @property
    def needs_recheck(self) -> bool:
        """Whether the rules have changed since it was judged: it gets nothing more before it is judged again."""
        return self.judged_by != self.context.gate.changes

    def recheck(self) -> bool:
        """Whether the client may still do what had to wait; if not, that is its answer."""
        refusal = self._refusal_by_now()
        if refusal is not None:
            self.give_up()
            self.reply(refusal)
        return refusal is None

    def _refusal_by_now(self) -> Refusal | None:
        """Why a request that had to wait is refused: its credential has ended, or the rules differ."""
        if not self.needs_recheck and monotonic() < self.identity.expires_at:
            return None
        gate, before = self.context.gate, self.identity
        renewed = gate.admit(self.judged, self.action, self.judged_name, self.connection)
        if isinstance(renewed, Refusal):
            record_denied(self.context, self.judged, self.connection, self.action, self.judged_name, renewed)
            self.name = ""  # Not even the type of the stream may show in the answer.
            return renewed
        if (renewed.exact, renewed.prefixes) != (before.exact, before.prefixes):
            # Names in its body, its query or its headers were judged by the rights that it had.
            return _RULES_CHANGED
        self.identity, self.judged_by = renewed, gate.changes
        self.dialect = self.context.renew_dialect(self.dialect, self.name)
        return None

    def may_still_read(self, names: Sequence[str] = (), *, ticks: bool = False) -> bool:
        """Whether the client may still read its stream, or all of these: no credential and no right has ended.

        What is doubtful is judged again when time has passed, and not with every append, which may wake thousands.
        """
        if monotonic() >= self.identity.expires_at:
            return False
        if self.needs_recheck or (ticks and self.keys_missing):
            gate = self.context.gate
            renewed = gate.renew(self.judged, None if names else self.name, self.connection)
            self.keys_missing = isinstance(renewed, Refusal) and renewed.code is Code.AUTH_UNAVAILABLE
            if isinstance(renewed, Identity):
                if not all(renewed.may(Action.READ, name) for name in names):
                    return False
                self.identity = renewed
            elif not self.keys_missing:
                return False
            self.judged_by = gate.changes
        return True

    def refuse_right(self, action: Action, name: str | None) -> Refusal:
        """The refusal of what the client may not do, which is recorded."""
        refusal = self.context.gate.forbid(self.request, self.identity, action, name)
        record_denied(self.context, self.request, self.connection, action, name, refusal)
        return refusal

    def charge_read(self, size: int) -> None:
        """Charge bytes that are sent to the client."""
        if self.account is not None:
            seconds = self.account.reads.spend(size)
            if seconds:
                self.connection.mute(seconds)

    def take_live_slots(self, count: int = 1) -> Refusal | None:
        """Count live reads of the client until this exchange has ended, unless it has too many."""
        exceeded = None if self.account is None else self.account.live_reads.begin(count)
        if exceeded is not None:
            return refuse(exceeded)
        self.live_slots = count
        return None

    def release_live_slots(self) -> None:
        """The live reads have ended. Idempotent."""
        if self.account is not None:
            self.account.live_reads.end(self.live_slots)
        self.live_slots = 0

    def cut_ticket(self) -> None:
        """Take the credential out of the URL, so that no cache, page or redirect gets to see it."""
        query, self.ticket = cut_access_token(self.request.query)
        self.request = self.request.with_query(query)

    def forget_body(self) -> None:
        """Release the body of a request that is kept as long as its response lasts."""
        if self.request.intake is not None:
            self.request.intake.release()
        self.request, self.judged = self.request.with_body(b""), self.judged.with_body(b"")

    def forget_head(self) -> None:
        """Release the request of a response that lasts, unless rules may change by which it would be judged again."""
        if self.context.guard is None:
            self.request = self.judged = NOTHING

    # -- Counting and logging -------------------------------------------------------------------------------------

    def _finish(self, status: int, response: list[bytes]) -> None:
        self.response = response
        seconds = monotonic() - self.began_at_seconds
        self.node.metrics.finished(self.route, status, seconds)
        if self.events and self.context.audit is not None and status in self.events:
            self._audit(self.events[status], status)
        if self.context.settings.access_log:
            self._log_access(status, seconds, response)
        self.connection.finished()

    def _audit(self, event: Event, status: int) -> None:
        if event is Event.CREATED and _FORKED_FROM in self.request.headers:
            event = Event.FORKED
        who, kind = self.identity.name, self.identity.kind.value
        record_change(self.context, self.request, self.connection, event, self.name, who, kind, status)

    def began_stream(self) -> None:
        """Count a streamed response when it begins: its status is final then."""
        self.node.metrics.requests[self.route, 200] += 1
        if self.context.settings.access_log:
            self._log_access(200, monotonic() - self.began_at_seconds)

    def _log_access(self, status: int, seconds: float, response: list[bytes] | None = None) -> None:
        """Write a line to the access log; the length of a streamed response is unknown when it begins."""
        method, path = self.request.method.decode("latin-1"), self.request.path.decode("latin-1")
        facts = {
            "method": method,
            "path": path,
            "status": status,
            "milliseconds": round(seconds * 1000, 3),
            "request_id": self.request_id(),
        }
        if response is not None:
            facts["bytes"] = sum(map(len, response))
        _access_log.info("%s %s %d", method, path, status, extra=facts)

    def request_id(self) -> str:
        """The client's name for this request, or else a new one, to find it in the log."""
        return self._given_request_id() or secrets.token_hex(8)

    def _given_request_id(self) -> str | None:
        given = self.request.header(_REQUEST_ID)
        return given if given is not None and _VALID_REQUEST_ID.fullmatch(given) else None
