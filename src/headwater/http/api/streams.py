"""What the URL table does for streams: create, fork, append, close, read, delete."""

from asyncio import Task
from functools import partial

from headwater.http.addresses import Address
from headwater.http.api import parsing
from headwater.http.api import reads as read_parsing
from headwater.http.api.live import LongPoll, SseRead, poll_answer
from headwater.http.api.reads import Live, ReadRequest
from headwater.http.exchange import FORK, READ, WRITE, Exchange
from headwater.http.wire import statuses
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer
from headwater.protocol import etags
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.appending import BadBody
from headwater.streams.commands import Append, Create
from headwater.streams.forking import ForkRequest
from headwater.streams.queries import Head
from headwater.streams.replies import Described, Page, Reply

_NOT_LIVE = Live.NO  # An enum's members cost a function call each time they are looked up; this does not.


def create(request: Request, address: Address, exchange: Exchange) -> None:
    parsed = parsing.parse_create(request, address, exchange.node.log_id)
    if isinstance(parsed, Create):
        exchange.run(WRITE, exchange.node.submit, parsed, exchange.reply)
    elif isinstance(parsed, ForkRequest):
        exchange.run(FORK, exchange.node.fork, parsed, exchange.reply)
    else:
        exchange.reply(parsed)


def append(request: Request, address: Address, exchange: Exchange) -> None:
    parsed = parsing.parse_append(request, address.name, exchange.node.log_id)
    if isinstance(parsed, Append):
        exchange.run(WRITE, exchange.node.submit, parsed, exchange.reply)
    elif isinstance(parsed, BadBody):
        exchange.run(READ, _refuse_body, parsed, exchange)
    else:
        exchange.reply(parsed)


def _refuse_body(bad: BadBody, exchange: Exchange) -> None:
    exchange.reply(exchange.node.judge_standing(bad.append) or bad.refusal)


def delete(request: Request, address: Address, exchange: Exchange) -> None:
    parsed = parsing.parse_delete(request, address.name, exchange.node.log_id)
    if isinstance(parsed, Refusal):
        exchange.reply(parsed)
    else:
        exchange.run(WRITE, exchange.node.submit, parsed, exchange.reply)


def head(request: Request, address: Address, exchange: Exchange) -> None:
    parsed = parsing.parse_head(request, address.name, exchange.node.log_id)
    if isinstance(parsed, Refusal):
        exchange.reply(parsed)
    else:
        exchange.run(READ, _describe, parsed, exchange)


def _describe(query: Head, exchange: Exchange) -> None:
    reply = exchange.node.describe(query)
    if_none_match = exchange.request.header(b"if-none-match")
    if isinstance(reply, Described) and if_none_match is not None:
        etag = etags.render(exchange.voice.log_id, reply.incarnation, 0, reply.next_offset, reply.closed)
        if etags.matches(if_none_match, etag):
            exchange.answer(Answer(304, statuses.answer(reply, exchange.voice).headers))
            return
    exchange.reply(reply)


def read(request: Request, address: Address, exchange: Exchange) -> None:
    parsed = read_parsing.parse_read(request, address.name, exchange.node.log_id)
    if isinstance(parsed, Refusal):
        exchange.reply(parsed)
    else:
        exchange.run(READ, _read, parsed, exchange)


def _read(request: ReadRequest, exchange: Exchange) -> None:
    page = exchange.node.read(request.read)
    if isinstance(page, Task):
        exchange.wait_for(page, partial(_answer, request, exchange))
    else:
        _answer(request, exchange, page)


def _answer(request: ReadRequest, exchange: Exchange, page: Reply) -> None:
    if not isinstance(page, Page):
        exchange.reply(page)
    elif request.live is _NOT_LIVE:
        _catch_up(request, page, exchange)
    elif exchange.node.tails.full:
        exchange.refuse(Code.WAITERS_TOO_MANY, "Too many live readers are connected; try again in a second.")
    elif request.live is Live.SSE:
        sse = SseRead(exchange, request, page)
        exchange.connection.take_over(exchange, sse)
    elif page.next_offset > page.start or page.closed:
        exchange.answer(poll_answer(page, exchange.voice, exchange.node.now(), request.cursor))
    else:
        poll = LongPoll(exchange, request)
        exchange.connection.go_live(exchange, poll)
        poll.start(page)


def _catch_up(request: ReadRequest, page: Page, exchange: Exchange) -> None:
    if request.read.from_now:
        exchange.answer(statuses.from_now(page, exchange.voice))
        return
    if request.if_none_match is not None:
        etag = etags.render(
            exchange.voice.log_id, page.incarnation, page.start, page.next_offset, page.closed and page.up_to_date
        )
        if etags.matches(request.if_none_match, etag):
            exchange.answer(statuses.not_modified(page, exchange.voice))
            return
    exchange.answer_page(page)
