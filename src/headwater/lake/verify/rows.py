"""The checks of a segment's rows, a row group at a time: each reports the first row that is wrong, and how."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.lake.format import name_of
from headwater.protocol.content_types import is_json
from headwater.streams.segments import Segment

_KEYS = ("bucket", "stream", "incarnation", "offset", "next_offset", "record", "append", "position", "committed_at")
_JSON = msgspec.json.Decoder(msgspec.Raw)


class Wrong(NamedTuple):
    """A row, counted from the beginning of its group, and what is wrong with it."""

    row: int
    what: str


class RowChecks:
    """Inspects the row groups of one segment in order, then compares them with the segment's description."""

    def __init__(self, segment: Segment, *, json_values: bool) -> None:
        self._segment, self._json_values = segment, json_values
        self._last: pa.Table | None = None
        self._names: list[str] = []
        self._times: list[int] = []
        self._bounds: dict[str, list[Any]] = {column: [] for column in ("stream", "incarnation", "next_offset")}
        self.rows = self._payload_bytes = 0

    def skip(self) -> None:
        """Note that a group could not be read, so that the next one has no known predecessor."""
        self._last = None

    def inspect(self, table: pa.Table) -> Iterator[Wrong]:
        """What is wrong with the rows of the next group."""
        if not len(table):
            return
        keys = table.select(_KEYS)
        yield from self._alone(table)
        together = keys if self._last is None else pa.concat_tables([self._last, keys])
        before = 0 if self._last is None else 1
        for row, what in _neighbours(together.combine_chunks(), first=self._last is None):
            yield Wrong(row - before, what)
        if self._json_values:
            yield from _json_values(table)
        self._last = keys.slice(len(keys) - 1)
        self.rows += len(table)
        self._payload_bytes += pc.sum(pc.binary_length(table["payload"])).as_py()
        times = pc.min_max(table["committed_at"].cast(pa.int64())).as_py()
        self._times += times["min"], times["max"]
        for column, values in self._bounds.items():
            values.extend(pc.min_max(table[column]).as_py().values())
        ends = (name_of(table["bucket"][row].as_py(), table["stream"][row].as_py()) for row in (0, -1))
        self._names = [*self._names[:1], *ends]

    def _alone(self, table: pa.Table) -> Iterator[Wrong]:
        """Checks of each row by itself."""
        segment, position = self._segment, table["position"]
        lengths = pc.binary_length(table["payload"]).cast(pa.int64())
        outside = pc.or_(pc.less(position, segment.first_position), pc.greater(position, segment.last_position))
        unknown = [pc.is_null(table[name]) for name in ("producer_id", "producer_epoch", "producer_seq")]
        partly = pc.or_(pc.not_equal(unknown[0], unknown[1]), pc.not_equal(unknown[0], unknown[2]))
        extent = pc.subtract(table["next_offset"], table["offset"])
        positions = f"{segment.first_position} to {segment.last_position}"
        conditions = (
            (pc.not_equal(extent, lengths), "the payload is not as long as next_offset - offset"),
            (pc.equal(lengths, 0), "the payload is empty"),
            (outside, f"the position is not within {positions}"),
            (pc.less(position, table["incarnation"]), "the position is below the incarnation"),
            (partly, "some of the producer's columns are null and some are not"),
        )
        for wrong, what in conditions:
            yield from _first(wrong, what)

    def facts(self) -> Iterator[str]:
        """Where the catalog's description of the segment is wrong, once all groups were inspected."""
        segment = self._segment
        for what, stated, actual in (
            ("rows", segment.rows, self.rows),
            ("bytes of payload", segment.payload_bytes, self._payload_bytes),
            ("the first time", segment.first_at, min(self._times, default=0)),
            ("the last time", segment.last_at, max(self._times, default=0)),
            ("the first name", segment.first_name, self._names[0] if self._names else ""),
            ("the last name", segment.last_name, self._names[-1] if self._names else ""),
        ):
            if stated != actual:
                yield _wrong(what, stated, actual)
        if segment.high_stream:
            yield from self._wrong_bounds()

    def _wrong_bounds(self) -> Iterator[str]:
        segment, bounds = self._segment, self._bounds
        for what, stated, actual in (
            ("the lowest stream", segment.low_stream, min(bounds["stream"], default="")),
            ("the highest stream", segment.high_stream, max(bounds["stream"], default="")),
            ("the lowest incarnation", segment.low_incarnation, min(bounds["incarnation"], default=0)),
            ("the highest incarnation", segment.high_incarnation, max(bounds["incarnation"], default=0)),
            ("the highest offset", segment.high_offset, max(bounds["next_offset"], default=0) - 1),
        ):
            if stated != actual:
                yield _wrong(what, stated, actual)


def _wrong(what: str, stated: object, actual: object) -> str:
    return f"the catalog is wrong about {what}: it says {stated!r}, but the segment has {actual!r}"


def _first(wrong: pa.ChunkedArray, what: str) -> Iterator[Wrong]:
    row = pc.index(wrong, True).as_py()
    if row >= 0:
        yield Wrong(row, what)


def _neighbours(table: pa.Table, *, first: bool) -> Iterator[Wrong]:
    """Checks of each row against the one before it."""
    rest = len(table) - 1
    before, after = table.slice(0, rest), table.slice(1)
    names = [pc.binary_join_element_wise(side["bucket"], side["stream"], "/") for side in (before, after)]
    same_name, same_life = pc.equal(*names), pc.equal(before["incarnation"], after["incarnation"])
    life = pc.and_(same_name, same_life)
    in_append = pc.and_(life, pc.equal(after["append"], before["append"]))
    # The first row begins an append, and so does every row that does not continue one.
    begins = pc.not_equal(after["append"], after["offset"])
    if first and table["append"][0].as_py() != table["offset"][0].as_py():
        yield Wrong(0, "the segment begins within an append")
    conditions = (
        (pc.greater(*names), "the names are not in order"),
        (
            pc.and_(same_name, pc.greater(before["incarnation"], after["incarnation"])),
            "the incarnations of a name are not in order",
        ),
        (pc.and_not(same_life, same_name), "two names have the same incarnation"),
        (
            pc.and_(life, pc.not_equal(after["offset"], before["next_offset"])),
            "the offset is not the next_offset of the row before",
        ),
        (
            pc.and_(life, pc.not_equal(after["record"], pc.add(before["record"], 1))),
            "the record does not follow that of the row before",
        ),
        (pc.and_(life, pc.less(after["position"], before["position"])), "the position is below that of the row before"),
        (
            pc.and_(life, pc.less(after["committed_at"], before["committed_at"])),
            "the time is before that of the row before",
        ),
        (pc.and_not(begins, in_append), "the append neither continues that of the row before nor begins here"),
        (
            pc.and_(in_append, pc.not_equal(after["position"], before["position"])),
            "two rows of one append have different positions",
        ),
    )
    for wrong, what in conditions:
        for row, _ in _first(wrong, what):
            yield Wrong(row + 1, what)


def _json_values(table: pa.Table) -> Iterator[Wrong]:
    types = {word for word in table["content_type"].unique().to_pylist() if is_json(word)}
    if types:
        marked = pc.is_in(table["content_type"], value_set=pa.array(sorted(types), pa.string())).combine_chunks()
        for row in pc.indices_nonzero(marked).to_pylist():
            if not is_json_value(table["payload"][row].as_py()):
                yield Wrong(row, "the payload is not a JSON value")


def is_json_value(payload: bytes) -> bool:
    """Whether a payload is one JSON value, as far as can be told: one that is nested too deeply counts."""
    try:
        _JSON.decode(payload)
    except RecursionError:
        return True
    except msgspec.DecodeError:
        # The decoder refuses lone surrogates, which are legal JSON.
        try:
            json.loads(payload.decode(), parse_constant=_refuse)
        except ValueError:
            return False
        except RecursionError:
            return True
    return True


def _refuse(word: str) -> None:
    raise ValueError(word)
