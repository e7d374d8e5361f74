"""Relabeling: rows of one stream under the name of another that inherited them, as a fork inherits from its sources.

A fork may inherit only a part of a message: then its row says so, and the payload is cut.
"""

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.segments.columns import integers, spread
from headwater.streams.cold import ALL


class StreamRange(msgspec.Struct, frozen=True, gc=False):
    """The stream that rows are listed under, and the range of offsets that it has of them."""

    bucket: str
    stream: str
    incarnation: int
    start: int = 0
    to: int = ALL


def relabel(rows: pa.Table, ranges: Sequence[StreamRange], row_ends: Sequence[int], schema: pa.Schema) -> pa.Table:
    """Rows in this schema under the names of other streams; `row_ends` says where the rows of each range end.

    The given rows need no columns for the names.

    >>> rows = pa.table({"offset": [0, 3], "next_offset": [3, 9], "payload": [b"abc", b"defghi"]})
    >>> schema = pa.schema([("stream", pa.string()), ("next_offset", pa.int64()), ("payload", pa.binary())])
    >>> relabel(rows, [StreamRange("b", "fork", 7, 0, 5)], [2], schema).to_pylist()[1]
    {'stream': 'fork', 'next_offset': 5, 'payload': b'de'}
    """
    rows = rows.combine_chunks()
    index = spread(pa.arange(0, len(ranges)), integers(row_ends))
    columns = _cut(rows, ranges, index)
    for name in ("bucket", "stream", "incarnation"):
        if name in schema.names:
            columns[name] = pa.array([getattr(one, name) for one in ranges]).take(index)
    given = {name: _column(rows, name) for name in schema.names if name not in columns}
    return pa.table([(columns | given)[field.name].cast(field.type) for field in schema], schema)


def _column(rows: pa.Table, name: str) -> pa.Array:
    return rows[name].chunk(0) if rows[name].num_chunks else rows[name].combine_chunks()


def _cut(rows: pa.Table, ranges: Sequence[StreamRange], index: pa.Array) -> dict[str, pa.Array]:
    """The columns that change where a range begins or ends within a message."""
    if all(one.start == 0 and one.to == ALL for one in ranges):
        return {}
    offset, next_offset = _column(rows, "offset"), _column(rows, "next_offset")
    first = integers([one.start for one in ranges]).take(index)
    last = integers([one.to for one in ranges]).take(index)
    changed = {"offset": pc.max_element_wise(offset, first), "next_offset": pc.min_element_wise(next_offset, last)}
    parts = pc.or_(pc.not_equal(changed["offset"], offset), pc.not_equal(changed["next_offset"], next_offset))
    if "payload" in rows.column_names and pc.any(parts, min_count=0).as_py():
        payload = _column(rows, "payload")
        at = pc.indices_nonzero(parts)
        skips = pc.subtract(changed["offset"], offset).take(at).to_pylist()
        sizes = pc.subtract(changed["next_offset"], changed["offset"]).take(at).to_pylist()
        whole = payload.take(at).to_pylist()
        cut = [data[skip : skip + size] for data, skip, size in zip(whole, skips, sizes, strict=True)]
        changed["payload"] = pc.replace_with_mask(payload, parts, pa.array(cut, pa.binary()))
    return changed
