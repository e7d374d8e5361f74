"""What the URL table does for appends to many streams at once."""

import asyncio
from functools import partial
from io import BytesIO

import pyarrow as pa

from headwater.http.addresses import Address
from headwater.http.exchange import FORK, Exchange
from headwater.http.wire.requests import Request
from headwater.http.wire.statuses import REFUSALS, Answer
from headwater.node.bulk.arrow import MEDIA_TYPE
from headwater.node.bulk.lines import BulkAppend, Outcome
from headwater.node.bulk.rows import decode
from headwater.protocol.content_types import media_type
from headwater.protocol.limits import BULK_APPENDS_MAX
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.replies import ClosedOnly, Duplicate

LINES = f"Content-Type: {MEDIA_TYPE}\r\nCache-Control: no-store\r\n"

ANSWERS = pa.schema(
    [
        pa.field("status", pa.int32(), nullable=False),
        pa.field("code", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("next_offset", pa.int64()),
        pa.field("producer_epoch", pa.int64()),
        pa.field("expected_seq", pa.int64()),
        pa.field("closed", pa.bool_(), nullable=False),
    ]
)
"""What is said of each row."""


def append(request: Request, address: Address, exchange: Exchange) -> None:
    """Append to many streams; answered when every row is decided."""
    content_type = request.header(b"content-type")
    if content_type is not None and media_type(content_type) != MEDIA_TYPE:
        exchange.refuse(Code.BAD_REQUEST, f"A bulk append is {MEDIA_TYPE}, not {content_type[:100]!r}.")
    else:
        # Like a fork it takes more than one commit, so what is behind it on the connection waits.
        exchange.run(FORK, _begin, exchange)


def _begin(exchange: Exchange) -> None:
    server = exchange.connection.server
    if server.bulk_appends >= BULK_APPENDS_MAX:
        exchange.refuse(Code.OVERLOADED, f"{BULK_APPENDS_MAX} bulk appends are in progress; try again in a second.")
        return
    server.bulk_appends += 1
    task = asyncio.get_running_loop().create_task(_append(exchange))
    task.add_done_callback(partial(_done, exchange))


async def _append(exchange: Exchange) -> bytes | Refusal | None:
    """What is said of each row; None if nobody waits for it any more."""
    in_thread = partial(asyncio.get_running_loop().run_in_executor, exchange.node.threads)
    rows = await in_thread(decode, exchange.request.body)
    if isinstance(rows, Refusal):
        return rows
    outcomes: list[Outcome] = []
    if rows is not None:
        bulk = BulkAppend(exchange.node, rows, lambda: not exchange.connection.lost, exchange.node.threads)
        if not await bulk.run():
            return None
        outcomes = bulk.outcomes
    return await in_thread(render, outcomes)


def _done(exchange: Exchange, task: "asyncio.Task[bytes | Refusal | None]") -> None:
    exchange.connection.server.bulk_appends -= 1
    if task.cancelled():
        return
    try:
        said = task.result()
        if exchange.connection.lost:
            return
        if isinstance(said, Refusal):
            exchange.reply(said)
        elif said is not None:
            exchange.answer(Answer(200, LINES, said))
    except Exception:
        exchange.fail()


def render(outcomes: list[Outcome]) -> bytes:
    """One row for each outcome, as an Arrow stream."""
    refused = [outcome if isinstance(outcome, Refusal) else None for outcome in outcomes]
    columns = (
        [_status(outcome) for outcome in outcomes],
        [refusal and refusal.code.value for refusal in refused],
        [refusal and refusal.detail for refusal in refused],
        [outcome.next_offset for outcome in outcomes],
        [refusal and refusal.producer_epoch for refusal in refused],
        [refusal and refusal.expected_seq for refusal in refused],
        [isinstance(outcome, ClosedOnly) or outcome.closed for outcome in outcomes],
    )
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ANSWERS, strict=True)]
    sink = BytesIO()
    with pa.ipc.new_stream(sink, ANSWERS) as stream:
        stream.write_batch(pa.record_batch(arrays, ANSWERS))
    return sink.getvalue()


def _status(outcome: Outcome) -> int:
    if isinstance(outcome, Refusal):
        return REFUSALS[outcome.code][0]
    return 204 if isinstance(outcome, Duplicate) else 200
