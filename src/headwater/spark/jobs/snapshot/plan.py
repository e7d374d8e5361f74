"""The plan of a snapshot job: which streams to fold, and from where to where."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.protocol.content_types import is_json
from headwater.protocol.limits import MIB
from headwater.spark.schemas import schema_of

ADDRESSED = r"^[a-z0-9_-]{4,64}/[^/]+$"
NOWHERE = r"(^__)|(\.\.)|(/streams$)|(^(healthz|readyz|metrics|console|openapi)/)"
"""Names with a URL for snapshots have a named bucket and no slash in the stream."""

STREAM_COST_BYTES = 4096
"""The cost of a stream in addition to its bytes: two requests for its snapshots."""
BIN_BYTES = 64 * MIB
"""Approximate payload of one task; a larger stream has a task to itself."""


class Pending(NamedTuple):
    """A stream to fold: its messages from `start` to `tail`."""

    stream: str
    incarnation: int
    start: int
    tail: int
    resumes: bool
    """Whether the fold starts from the snapshot at `start`."""


PENDING = schema_of(Pending)


class Chosen(NamedTuple):
    """The streams to fold, and why others are skipped."""

    pending: pa.Table
    streams: int
    unchanged: int
    not_json: int
    unaddressed: int
    retained_bytes: int
    """Of all streams, folded or not."""

    @property
    def new_bytes(self) -> int:
        return _sum(pc.subtract(self.pending["tail"], self.pending["start"]))


def choose(pages: Iterable[pa.Table], min_bytes: int) -> Chosen:
    """Choose from described streams those with at least `min_bytes` since their last snapshot."""
    found, streams, unchanged, not_json, unaddressed, retained = [], 0, 0, 0, 0, 0
    for page in pages:
        streams += len(page)
        retained += _sum(pc.subtract(page["tail"], page["start"]))
        json = page.filter(_is_json(page["content_type"]))
        not_json += len(page) - len(json)
        known = json.filter(_is_addressed(json["stream"]))
        unaddressed += len(json) - len(known)
        start = pc.coalesce(known["snapshot"], known["start"])
        columns = [known["stream"], known["incarnation"], start, known["tail"], pc.is_valid(known["snapshot"])]
        changed = pa.table(columns, PENDING).filter(pc.greater_equal(pc.subtract(known["tail"], start), min_bytes))
        unchanged += len(known) - len(changed)
        found.append(changed)
    pending = pa.concat_tables(found) if found else PENDING.empty_table()
    return Chosen(pending, streams, unchanged, not_json, unaddressed, retained)


def _is_json(types: pa.ChunkedArray) -> pa.ChunkedArray:
    json = [one for one in pc.unique(types).to_pylist() if is_json(one)]
    return pc.is_in(types, value_set=pa.array(json, pa.string()))


def _is_addressed(names: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.and_not(pc.match_substring_regex(names, ADDRESSED), pc.match_substring_regex(names, NOWHERE))


def _sum(numbers: pa.ChunkedArray) -> int:
    return int(pc.sum(numbers, min_count=0).as_py())


def pending_rows(table: pa.Table) -> Iterator[Pending]:
    """The rows of a table."""
    return map(Pending._make, zip(*(column.to_pylist() for column in table.columns), strict=True))


def split(pending: pa.Table, inherited_to: Mapping[int, int]) -> tuple[pa.Table, pa.Table]:
    """Streams with only bytes of their own to fold, and forks with inherited bytes to fold."""
    lives = zip(pending["incarnation"].to_pylist(), pending["start"].to_pylist(), strict=True)
    inherits = pa.array([inherited_to.get(incarnation, 0) > start for incarnation, start in lives], pa.bool_())
    return pending.filter(pc.invert(inherits)), pending.filter(inherits)


def packed(pending: pa.Table, bins_min: int) -> list[pa.Table]:
    """Bins of adjacent streams with about the same work each; at least `bins_min` if there are enough streams."""
    if not len(pending):
        return []
    costs = pc.add(pc.subtract(pending["tail"], pending["start"]), STREAM_COST_BYTES)
    total = _sum(costs)
    size = max(1, min(BIN_BYTES, -(-total // bins_min)))
    # A stream belongs to the bin that contains its middle.
    middles = pc.subtract(pc.cumulative_sum(costs.combine_chunks()), pc.divide(costs.combine_chunks(), 2))
    numbers = pc.divide(middles, size).to_pylist()
    cuts = [0, *(row for row in range(1, len(numbers)) if numbers[row] != numbers[row - 1]), len(numbers)]
    return [pending.slice(first, last - first) for first, last in pairwise(cuts)]
