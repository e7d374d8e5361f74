"""The URL table, and what each of its rows does.

/v1/stream/{name}              PUT create or fork | POST append, close | GET read, long-poll, SSE | HEAD | DELETE
/v1/stream/__ds/...            reserved for subscriptions (501)
every URL                      OPTIONS: what a browser may send
"""

from collections.abc import Callable

from headwater.http import parsing, rendering
from headwater.http.exchanges import FORK, READ, WRITE, Exchange
from headwater.http.live import LongPoll, SseRead, poll_answer
from headwater.http.parsing import FLAT_PREFIX, BadBody, Live, ReadRequest
from headwater.http.requests import Request
from headwater.protocol import etags, names, statuses
from headwater.protocol.commands import Append, Create
from headwater.protocol.queries import Head
from headwater.protocol.refusals import Code, Refusal
from headwater.protocol.replies import Described, Page
from headwater.protocol.statuses import Answer
from headwater.streams.forking import ForkRequest

Handler = Callable[[Request, str, Exchange], None]


def dispatch(request: Request, exchange: Exchange) -> None:
    """Find the row for a request and run it, now or when its turn has come."""
    if request.method == b"OPTIONS":
        exchange.answer(Answer(204, rendering.PREFLIGHT_LINES))
        return
    path = request.path
    if not path.startswith(FLAT_PREFIX):
        exchange.refuse(Code.STREAM_NOT_FOUND, "There is nothing at this URL; streams live at /v1/stream/{name}.")
        return
    raw_name = path[len(FLAT_PREFIX) :]
    if raw_name.startswith((b"_", b"%")) and names.is_reserved(raw_name):
        exchange.refuse(Code.NOT_IMPLEMENTED, "Subscriptions are not built yet; this path is reserved for them.")
        return
    handler = STREAM_METHODS.get(request.method)
    if handler is None:
        allow = ", ".join(method.decode() for method in STREAM_METHODS) + ", OPTIONS"
        detail = f"{request.method.decode('latin-1')} is not a method of streams."
        exchange.reply(Refusal(Code.METHOD_NOT_ALLOWED, detail, allow=allow))
        return
    name = names.parse_flat(raw_name)
    if isinstance(name, Refusal):
        exchange.reply(name)
        return
    handler(request, name, exchange)


def create(request: Request, name: str, exchange: Exchange) -> None:
    parsed = parsing.parse_create(request, name, exchange.node.journal)
    if isinstance(parsed, Create):
        exchange.run(WRITE, exchange.node.submit, parsed, exchange.reply)
    elif isinstance(parsed, ForkRequest):
        exchange.run(FORK, exchange.node.fork, parsed, exchange.reply)
    else:
        exchange.reply(parsed)


def append(request: Request, name: str, exchange: Exchange) -> None:
    parsed = parsing.parse_append(request, name, exchange.node.journal)
    if isinstance(parsed, Append):
        exchange.run(WRITE, exchange.node.submit, parsed, exchange.reply)
    elif isinstance(parsed, BadBody):
        exchange.run(READ, _refuse_body, parsed, exchange)
    else:
        exchange.reply(parsed)


def _refuse_body(bad: BadBody, exchange: Exchange) -> None:
    exchange.reply(exchange.node.judge_standing(bad.append) or bad.refusal)


def delete(request: Request, name: str, exchange: Exchange) -> None:
    parsed = parsing.parse_delete(request, name, exchange.node.journal)
    if isinstance(parsed, Refusal):
        exchange.reply(parsed)
    else:
        exchange.run(WRITE, exchange.node.submit, parsed, exchange.reply)


def head(request: Request, name: str, exchange: Exchange) -> None:
    parsed = parsing.parse_head(request, name, exchange.node.journal)
    if isinstance(parsed, Refusal):
        exchange.reply(parsed)
    else:
        exchange.run(READ, _describe, parsed, exchange)


def _describe(query: Head, exchange: Exchange) -> None:
    reply = exchange.node.read(query)
    if_none_match = exchange.request.header(b"if-none-match")
    if isinstance(reply, Described) and if_none_match is not None:
        etag = etags.render(exchange.voice.journal, reply.incarnation, 0, reply.next_offset, reply.closed)
        if etags.matches(if_none_match, etag):
            exchange.answer(Answer(304, statuses.answer(reply, exchange.voice).headers))
            return
    exchange.reply(reply)


def read(request: Request, name: str, exchange: Exchange) -> None:
    parsed = parsing.parse_read(request, name, exchange.node.journal)
    if isinstance(parsed, Refusal):
        exchange.reply(parsed)
    else:
        exchange.run(READ, _read, parsed, exchange)


def _read(request: ReadRequest, exchange: Exchange) -> None:
    page = exchange.node.read(request.read)
    if not isinstance(page, Page):
        exchange.reply(page)
    elif request.live is Live.NO:
        exchange.answer(_catch_up(request, page, exchange))
    elif exchange.node.tails.full:
        exchange.refuse(Code.WAITERS_TOO_MANY, "Too many live readers are connected; try again in a second.")
    elif request.live is Live.SSE:
        exchange.go_live(SseRead(exchange, request), page)
    elif page.next_offset > page.start or page.closed:
        exchange.answer(poll_answer(page, exchange.voice, exchange.node.now(), request.cursor))
    else:
        exchange.go_live(LongPoll(exchange, request), page)


def _catch_up(request: ReadRequest, page: Page, exchange: Exchange) -> Answer:
    if request.read.from_now:
        return statuses.from_now(page, exchange.voice)
    if request.if_none_match is not None:
        etag = etags.render(
            exchange.voice.journal, page.incarnation, page.start, page.next_offset, page.closed and page.up_to_date
        )
        if etags.matches(request.if_none_match, etag):
            return statuses.not_modified(page, exchange.voice)
    return statuses.answer(page, exchange.voice)


STREAM_METHODS: dict[bytes, Handler] = {
    b"GET": read,
    b"HEAD": head,
    b"POST": append,
    b"PUT": create,
    b"DELETE": delete,
}
