"""Judging lives: the server's description of each against what the server, the lake and the export have of it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.spark.jobs.verify.lives import LIVES, Window
from headwater.spark.schemas import schema_of, spark_schema

Side = Literal["server", "lake", "export"]
Row = Mapping[str, Any]


class Finding(NamedTuple):
    """A problem with a life on one side; `differs` if comparing its rows would explain it."""

    name: str
    incarnation: int
    side: str
    what: str
    differs: bool = False

    def __str__(self) -> str:
        return f"{self.name} (incarnation {self.incarnation}): {self.what}."


FINDINGS = schema_of(Finding)


def together(described: DataFrame, sides: Mapping[Side, DataFrame]) -> DataFrame:
    """One row for every life on any side: the server's description, and a struct for every side."""
    facts = F.struct("start", "tail", "record_start", "record_next").alias("described")
    joined = described.select(F.col("stream").alias("name"), "incarnation", facts)
    for side, lives in sides.items():
        columns = [name for name in LIVES.names if name not in ("name", "incarnation")]
        summaries = lives.select("name", "incarnation", F.struct(*columns).alias(side))
        joined = joined.join(summaries, ["name", "incarnation"], "full_outer")
    return joined


def findings(joined: DataFrame) -> DataFrame:
    """All problems."""
    return joined.mapInArrow(_judge_all, spark_schema(FINDINGS))


def _judge_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = [finding._asdict() for row in batch.to_pylist() for finding in judge(row)]
        if found:
            yield pa.RecordBatch.from_pylist(found, schema=FINDINGS)


def judge(row: Row) -> Iterator[Finding]:
    """The problems of one life."""
    name, incarnation, described = row["name"], row["incarnation"], row["described"]
    lake, export = row.get("lake"), row.get("export")
    if described is None:
        if lake is not None:
            what = f"the lake has {lake['rows']} messages of an incarnation that the server does not know"
            yield Finding(name, incarnation, "lake", what)
    else:
        server = row["server"]
        for what in _serves(described, server):
            yield Finding(name, incarnation, "server", what)
        if "lake" in row and _differs("lake", server, lake):
            yield Finding(name, incarnation, "lake", _counted("lake", server, lake), True)
        if "export" in row and _differs("export", server, export):
            yield Finding(name, incarnation, "export", _counted("export", server, export), True)
            return
    if export is not None and export["flaws"]:
        yield Finding(name, incarnation, "export", f"in the export {_flaws(export)}")


def _serves(described: Row, server: Row | None) -> Iterator[str]:
    """The differences between the server's description of a stream and what it serves."""
    messages = described["record_next"] - described["record_start"]
    size = described["tail"] - described["start"]
    if server is None:
        if size or messages:
            yield f"the server serves none of its {messages} messages"
        return
    if server["flaws"]:
        yield f"on the server {_flaws(server)}"
    for what, wanted, found in (
        ("first offset", described["start"], server["first_offset"]),
        ("end offset", described["tail"], server["end_offset"]),
        ("first record", described["record_start"], server["first_record"]),
        ("number of messages", messages, server["rows"]),
        ("number of bytes", size, server["bytes"]),
    ):
        if wanted != found:
            yield f"the {what} that the server serves is {found}, not {wanted}"


def _flaws(side: Row) -> str:
    more = f" (and {side['flaws'] - 1} more)" if side["flaws"] > 1 else ""
    return f"{side['flaw']}, at offset {side['flaw_at']}{more}"


def _differs(side: Side, server: Row | None, other: Row | None) -> bool:
    wanted, found = ((0, "") if one is None else (one[f"{side}_rows"], one[f"{side}_hash"]) for one in (server, other))
    return wanted != found and bool(wanted[0] or found[0])


def _counted(side: Side, server: Row | None, other: Row | None) -> str:
    wanted, found = (0 if one is None else one[f"{side}_rows"] for one in (server, other))
    if wanted == found:
        return f"the {wanted} messages in the {side} differ from those of the server"
    return f"the {side} has {found} messages, the server has {wanted}"


# -- Which messages of a few lives are on one side only ----------------------------------------------------------------


LIFE = ("name", "incarnation")


def differences(
    server: DataFrame, other: DataFrame, found: Sequence[Finding], starts: Mapping[str, int], window: Window
) -> list[Finding]:
    """The findings, each with the messages in which the two sides differ. Rows are digests.

    `starts` has the current start of each stream; what the other side has below it is not a difference.
    """
    few = server.sparkSession.createDataFrame(
        [(one.name, one.incarnation, starts[one.name]) for one in found], "name string, incarnation long, start long"
    )
    # Messages that a fork inherits are older than the fork; the lake has them under the source.
    own = F.col("position").between(F.col("incarnation"), window.position)
    inside = own & F.col("at").between(window.since, window.until - 1)

    def counted(rows: DataFrame, side: str) -> DataFrame:
        of_few = rows.where(inside).join(F.broadcast(few), [*LIFE]).where("offset >= start")
        return of_few.groupBy(*LIFE, "offset", "digest").agg(F.count("*").alias(side))

    both = counted(server, "here").join(counted(other, "there"), [*LIFE, "offset", "digest"], "full_outer")
    here, there = (F.coalesce(side, F.lit(0)) for side in ("here", "there"))
    # For each offset: messages that only the server has, and messages that the other side has alone or more often.
    offsets = both.groupBy(*LIFE, "offset").agg(
        F.sum(F.when(here > there, here - there).otherwise(0)).alias("lacking"),
        F.sum(F.when(there > here, there - here).otherwise(0)).alias("extra"),
    )
    changed = F.least("lacking", "extra")
    kinds = {"changed": changed, "lacking": F.col("lacking") - changed, "extra": F.col("extra") - changed}
    totals = [F.sum(count).alias(kind) for kind, count in kinds.items()]
    firsts = [F.min(F.when(count > 0, F.col("offset"))).alias(f"{kind}_at") for kind, count in kinds.items()]
    counts = {
        (row["name"], row["incarnation"]): row.asDict()
        for row in offsets.groupBy(*LIFE).agg(*totals, *firsts).collect()
    }
    return [one._replace(what=_explained(one, counts.get((one.name, one.incarnation), {}))) for one in found]


def _explained(finding: Finding, counts: dict[str, int]) -> str:
    side = finding.side
    parts = [
        f"{phrase.format(messages(counts[kind]), side)} at offset {counts[f'{kind}_at']}"
        for kind, phrase in (
            ("lacking", "{} missing from the {}, the first"),
            ("extra", "{} extra or repeated in the {}, the first"),
            ("changed", "{} changed in the {}, the first"),
        )
        if counts.get(kind)
    ]
    return f"{finding.what}: {'; '.join(parts)}" if parts else finding.what


def messages(count: int) -> str:
    """A number of messages, in words.

    >>> messages(1), messages(2)
    ('1 message', '2 messages')
    """
    return f"{count} message" if count == 1 else f"{count} messages"
