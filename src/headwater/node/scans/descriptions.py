"""Descriptions of many streams as an Arrow stream, one row for each; gathered a slice per turn of the loop."""

import heapq
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import groupby, islice
from operator import itemgetter

import pyarrow as pa

from headwater.node.committer import Now
from headwater.node.scans.batches import END
from headwater.node.scans.pace import Pace
from headwater.streams.state import State, Stream

STREAMS_PER_STEP = 1_000
"""How many streams are described in one step: about a millisecond, and one batch of the response."""
SORT_PER_STEP = 5_000
"""How many names are sorted in one step."""

Names = AsyncGenerator[list[str], None]

SCHEMA = pa.schema(
    [
        pa.field("stream", pa.string(), nullable=False),
        pa.field("incarnation", pa.int64(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("tail", pa.int64(), nullable=False),
        pa.field("record_start", pa.int64(), nullable=False),
        pa.field("record_next", pa.int64(), nullable=False),
        pa.field("content_type", pa.string(), nullable=False),
        pa.field("closed", pa.bool_(), nullable=False),
        pa.field("snapshot", pa.int64()),
    ]
)


async def describe(state: State, now: Now, names: Names, limit: int) -> bytes:
    """The living streams of these names, in their order and at most `limit`; others are left out."""
    parts, pace = [SCHEMA.serialize().to_pybytes()], Pace()
    async with aclosing(names):
        async for some in names:
            streams = (state.streams.get(name) for name in some)
            at = now()
            living = [stream for stream in streams if stream is not None and not (stream.deleted or stream.expired(at))]
            if living[:limit]:
                parts.append(_batch(living[:limit]).serialize().to_pybytes())
            limit -= len(living)
            if limit <= 0:
                break
            await pace.rest()
    return b"".join([*parts, END])


def _batch(streams: Sequence[Stream]) -> pa.RecordBatch:
    snapshots = [None if stream.snapshot is None else stream.snapshot.offset for stream in streams]
    columns = [
        [stream.name for stream in streams],
        [stream.incarnation for stream in streams],
        [stream.start for stream in streams],
        [stream.tail for stream in streams],
        [stream.record_start for stream in streams],
        [stream.record_next for stream in streams],
        [stream.content_type for stream in streams],
        [stream.closed for stream in streams],
        snapshots,
    ]
    return pa.record_batch(columns, schema=SCHEMA)


async def in_order(names: Sequence[str]) -> Names:
    """Names sorted and without duplicates, some at a time."""
    blocks: list[list[str]] = []
    pace = Pace()
    for first in range(0, len(names), SORT_PER_STEP):
        blocks.append(sorted(names[first : first + SORT_PER_STEP]))
        await pace.rest()
    merged = map(itemgetter(0), groupby(heapq.merge(*blocks)))
    while some := list(islice(merged, STREAMS_PER_STEP)):
        yield some


async def with_prefix(state: State, prefix: str, after: str) -> Names:
    """The names with a prefix that sort after another name, some at a time, each slice as of its turn."""
    if prefix > after and prefix in state.streams:
        yield [prefix]
    cursor = max(prefix, after)
    while some := list(state.names.after(cursor, STREAMS_PER_STEP)):
        cursor = some[-1]
        if not cursor.startswith(prefix):
            yield [name for name in some if name.startswith(prefix)]
            return
        yield some
