"""Appends to many streams at once, and the end of a producer that wrote to them."""

import asyncio
from collections.abc import Callable
from functools import partial
from io import BytesIO
from itertools import compress

import pyarrow as pa

from headwater.access.grants import Action
from headwater.http.api.creations import mute_for_debt, submitter_of_many
from headwater.http.api.rights import refuse_names
from headwater.http.context import Context
from headwater.http.exchange.exchange import IN_TURN, WRITE, Exchange
from headwater.http.wire.addresses import Address
from headwater.http.wire.budgets import Place
from headwater.http.wire.codes import REFUSALS
from headwater.http.wire.rendering import CONTENT_TYPE, NO_STORE_LINE
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import Answer
from headwater.node.bulk.arrow import MEDIA_TYPE
from headwater.node.bulk.lines import BulkAppend, Outcome
from headwater.node.bulk.rows import BulkRows, decode
from headwater.protocol import headers, names
from headwater.protocol.content_types import media_type
from headwater.protocol.limits import BULK_BYTES_MAX, PRODUCER_ID_BYTES_MAX
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands.streams import FinishProducer
from headwater.streams.replies import ClosedOnly, Done, Duplicate, Reply

LINES = f"{CONTENT_TYPE}{MEDIA_TYPE}\r\n{NO_STORE_LINE}"

OUTCOMES = pa.schema(
    [
        pa.field("status", pa.int32(), nullable=False),
        pa.field("code", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("next_offset", pa.int64()),
        pa.field("producer_epoch", pa.int64()),
        pa.field("producer_seq", pa.int64()),
        pa.field("expected_seq", pa.int64()),
        pa.field("closed", pa.bool_(), nullable=False),
    ]
)
"""The columns of the answer, which has a row for each row of the request."""


def append(request: Request, address: Address, exchange: Exchange) -> None:
    """Append to many streams; the answer comes when every row is decided."""
    content_type = request.header(headers.CONTENT_TYPE.key)
    if content_type is not None and media_type(content_type) != MEDIA_TYPE:
        exchange.refuse(Code.BAD_REQUEST, f"The body must be {MEDIA_TYPE}, not {content_type[:100]!r}.")
    else:
        # Like a fork it takes more than one commit, so later requests on the connection wait.
        exchange.run(IN_TURN, _begin, exchange)


def intake(context: Context, balance: Callable[[], None]) -> Place:
    """A place in the line of bulk appends, which a large body waits for before it is read."""
    return Place(context.bulk_appends, BULK_BYTES_MAX, balance)


def _begin(exchange: Exchange) -> None:
    place = exchange.request.intake
    assert isinstance(place, Place), "every bulk append has a place in line"
    place.enter(len(exchange.request.body), partial(_enter, exchange, place), exchange.reply)


def _enter(exchange: Exchange, place: Place) -> None:
    if exchange.connection.lost:
        place.leave()
    elif exchange.recheck():  # It may have waited for half a minute.
        exchange.await_task(_append(exchange, place), partial(_answer, exchange))


def finish(request: Request, address: Address, exchange: Exchange) -> None:
    """Fence a producer off from all streams, which then need not remember it."""
    producer = address.argument or ""
    if not 0 < len(producer.encode()) <= PRODUCER_ID_BYTES_MAX:
        exchange.refuse(Code.INVALID_NAME, f"A producer id has 1 to {PRODUCER_ID_BYTES_MAX} bytes.")
        return
    exchange.run(WRITE, exchange.node.only.submit, FinishProducer(producer), partial(_finished, exchange))


def _finished(exchange: Exchange, reply: Reply) -> None:
    if isinstance(reply, Done):
        exchange.answer(Answer(204, NO_STORE_LINE))
    else:
        assert isinstance(reply, Refusal)
        exchange.reply(reply)


async def _append(exchange: Exchange, place: Place) -> bytes | Refusal | None:
    """The outcome of each row; None if the client is gone."""
    in_thread = partial(asyncio.get_running_loop().run_in_executor, exchange.node.threads)
    try:
        rows = await in_thread(decode, exchange.request.body)
        if isinstance(rows, Refusal):
            return rows
        outcomes: list[Outcome] = []
        if rows is not None:
            refusal = await _forbid(exchange, rows)
            if refusal is not None:
                return refusal
            bulk = BulkAppend(
                exchange.node,
                rows,
                lambda: not exchange.connection.lost,
                exchange.node.threads,
                submit=submitter_of_many(exchange),
            )
            if not await bulk.run():
                return None
            outcomes = bulk.outcomes
        return await in_thread(render, outcomes)
    finally:
        place.leave()


async def _forbid(exchange: Exchange, rows: BulkRows) -> Refusal | None:
    """Why nothing is appended: the client may not append to the stream of some row, or may not create it."""
    refusal = await refuse_names(exchange, (Action.PIPELINE, Action.APPEND), map(_canonical, rows.lines))
    if refusal is not None:
        return refusal
    created = compress(rows.names, rows.creates)
    return await refuse_names(exchange, (Action.CREATE,), map(_canonical, created))


def _canonical(name: str) -> str:
    # A name that is not valid is refused with its row.
    parsed = names.parse_whole(name)
    return name if isinstance(parsed, Refusal) else parsed


def _answer(exchange: Exchange, outcomes: bytes | None) -> None:
    mute_for_debt(exchange)
    if outcomes is not None:
        exchange.answer(Answer(200, LINES, outcomes))


def render(outcomes: list[Outcome]) -> bytes:
    """The outcomes as an Arrow stream, a row for each."""
    refused = [outcome if isinstance(outcome, Refusal) else None for outcome in outcomes]
    columns = (
        [_status(outcome) for outcome in outcomes],
        [refusal and refusal.code.value for refusal in refused],
        [refusal and refusal.detail for refusal in refused],
        [outcome.next_offset for outcome in outcomes],
        [refusal and refusal.producer_epoch for refusal in refused],
        [outcome.producer_seq if isinstance(outcome, Duplicate) else None for outcome in outcomes],
        [refusal and refusal.expected_seq for refusal in refused],
        [isinstance(outcome, ClosedOnly) or outcome.closed for outcome in outcomes],
    )
    arrays = [pa.array(column, field.type) for column, field in zip(columns, OUTCOMES, strict=True)]
    sink = BytesIO()
    with pa.ipc.new_stream(sink, OUTCOMES) as stream:
        stream.write_batch(pa.record_batch(arrays, OUTCOMES))
    return sink.getvalue()


def _status(outcome: Outcome) -> int:
    if isinstance(outcome, Refusal):
        return REFUSALS[outcome.code][0]
    return 204 if isinstance(outcome, Duplicate) else 200
