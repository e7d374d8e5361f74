"""Differences: which messages of a few lives are on one side only."""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.spark.jobs.verify.judging import Finding
from headwater.spark.jobs.verify.lives import Window

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
