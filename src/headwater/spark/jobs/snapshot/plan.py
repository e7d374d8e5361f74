"""Which streams to fold, from where and up to where."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.protocol.content_types import is_json

WANTS = pa.schema(
    [
        pa.field("stream", pa.string()),
        pa.field("incarnation", pa.int64()),
        pa.field("start", pa.int64()),
        pa.field("tail", pa.int64()),
        pa.field("goes_on", pa.bool_()),
    ]
)
"""One row per stream that is folded; a fold that goes on begins with the snapshot that stands at its start."""

ADDRESSED = r"^[a-z0-9_-]{4,64}/[^/]+$"
NOWHERE = r"(^__)|(\.\.)|(/streams$)|(^(healthz|readyz|metrics|console|openapi)/)"
"""Which names there is a snapshot's URL for: it has a bucket of its own, and a stream in one part."""

STREAM_COST_BYTES = 4096
"""What a stream costs beside its bytes: two requests for its snapshots."""
BIN_BYTES = 64 * 1024 * 1024
"""What one task folds, about; a larger stream is a task of its own."""


class Want(NamedTuple):
    """A stream that is to be folded: its messages from `start` up to `tail`."""

    stream: str
    incarnation: int
    start: int
    tail: int
    goes_on: bool


class Chosen(NamedTuple):
    """The streams to fold, and why others are left alone."""

    wants: pa.Table
    streams: int
    unchanged: int
    not_json: int
    unaddressed: int
    retained_bytes: int
    """Of all streams that were looked at."""

    @property
    def new_bytes(self) -> int:
        return _sum(pc.subtract(self.wants["tail"], self.wants["start"]))


def choose(pages: Iterable[pa.Table], min_bytes: int) -> Chosen:
    """What to fold of streams as a server describes them: those with at least so many bytes since their snapshot."""
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
        changed = pa.table(columns, WANTS).filter(pc.greater_equal(pc.subtract(known["tail"], start), min_bytes))
        unchanged += len(known) - len(changed)
        found.append(changed)
    wants = pa.concat_tables(found) if found else WANTS.empty_table()
    return Chosen(wants, streams, unchanged, not_json, unaddressed, retained)


def _is_json(types: pa.ChunkedArray) -> pa.ChunkedArray:
    json = [one for one in pc.unique(types).to_pylist() if is_json(one)]
    return pc.is_in(types, value_set=pa.array(json, pa.string()))


def _is_addressed(names: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.and_not(pc.match_substring_regex(names, ADDRESSED), pc.match_substring_regex(names, NOWHERE))


def _sum(numbers: pa.ChunkedArray) -> int:
    return int(pc.sum(numbers, min_count=0).as_py())


def wants_of(table: pa.Table) -> Iterator[Want]:
    """The rows of a table, a value each."""
    return map(Want._make, zip(*(column.to_pylist() for column in table.columns), strict=True))


def split(wants: pa.Table, heirs: Mapping[int, int]) -> tuple[pa.Table, pa.Table]:
    """Streams of which only bytes of their own are wanted, and forks of which inherited ones are."""
    lives = zip(wants["incarnation"].to_pylist(), wants["start"].to_pylist(), strict=True)
    inherited = pa.array([heirs.get(incarnation, 0) > start for incarnation, start in lives], pa.bool_())
    return wants.filter(pc.invert(inherited)), wants.filter(inherited)


def packed(wants: pa.Table, bins_min: int) -> list[pa.Table]:
    """Neighbours together, about as much work in each bin; at least so many bins, if there are as many streams."""
    if not len(wants):
        return []
    costs = pc.add(pc.subtract(wants["tail"], wants["start"]), STREAM_COST_BYTES)
    total = _sum(costs)
    size = max(1, min(BIN_BYTES, -(-total // bins_min)))
    # A stream belongs to the bin in which its middle lies.
    middles = pc.subtract(pc.cumulative_sum(costs.combine_chunks()), pc.divide(costs.combine_chunks(), 2))
    numbers = pc.divide(middles, size).to_pylist()
    cuts = [0, *(row for row in range(1, len(numbers)) if numbers[row] != numbers[row - 1]), len(numbers)]
    return [wants.slice(first, last - first) for first, last in pairwise(cuts)]
