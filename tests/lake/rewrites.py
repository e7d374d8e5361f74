"""Segments in memory, and rewrites of them."""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple

from headwater.lake.compaction.rewriting import Cuts, Keep, Rewritten, rewrite
from headwater.lake.segments.reader import read_all
from headwater.lake.segments.writer import SegmentWriter, Written

from .lives import USUAL, Life, Limits, limited, reading

EVERYTHING = 2**63 - 1
LARGE = Cuts(2**40, 10_000)
ALL_LIVE = Keep(lambda name, incarnation: 0, EVERYTHING)


def segment(id: str, lives: Sequence[Life], limits: Limits = USUAL) -> Written:
    """A segment of these lives, with their range of positions."""
    positions = [hot.position for one in lives for hot in one.appends]
    with limited(limits):
        writer = SegmentWriter(id, min(positions), max(positions))
        for one in lives:
            writer.add(*one)
        return writer.finish()


class Outcome(NamedTuple):
    """The result of a rewrite."""

    outputs: list[Written]
    result: Rewritten

    @property
    def rows(self) -> list[list[dict[str, Any]]]:
        """The rows of each output."""
        return [rows_in(written) for written in self.outputs]


def rows_in(written: Written) -> list[dict[str, Any]]:
    tables = read_all(reading(written.data), written.segment)
    return [row for table in tables for row in table.to_pylist()]


def merge(sources: Iterable[Written], keep: Keep = ALL_LIVE, cuts: Cuts = LARGE, limits: Limits = USUAL) -> Outcome:
    """Rewrite segments in memory."""
    objects = {written.segment: written.data for written in sources}
    outputs: list[Written] = []
    numbers = count()
    with limited(limits):
        result = rewrite(
            lambda segment: reading(objects[segment]),
            list(objects),
            keep,
            cuts,
            new_id=lambda: f"19a89f62001x{next(numbers)}",
            put=outputs.append,
        )
    return Outcome(outputs, result)
