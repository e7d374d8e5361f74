"""Queries on a small lake, as Spark would run them."""

import json
from collections.abc import Iterator
from typing import Any

from headwater.spark.source.lake.stream import LakeStream
from headwater.spark.source.portions import UNLIMITED, TriggerLimits

from .small_lakes import Row, SmallLake, options, rows, tables


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def stream(lake: SmallLake, clock: Clock | None = None, **given: str) -> LakeStream:
    return LakeStream(options(flushInterval="0s", **given), lake.link, lake.store, clock or Clock())


def read(one: LakeStream, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
    # Spark keeps offsets as JSON.
    return rows(tables(one.plan(json.loads(json.dumps(start)), json.loads(json.dumps(end)))))


def batches(one: LakeStream, start: dict[str, Any], limits: TriggerLimits = UNLIMITED) -> Iterator[list[Row]]:
    """Batch after batch until nothing is new, each committed before the next."""
    while (end := one.latest(start, limits)) != start:
        yield read(one, start, end)
        one.commit(end)
        start = end


def registered(lake: SmallLake) -> dict[str, int]:
    return {name: reader.position for name, reader in lake.state.cold.consumers.items()}
