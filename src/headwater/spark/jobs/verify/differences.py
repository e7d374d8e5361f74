"""Differences: which messages of a few lives one side has and the other has not."""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater.spark.jobs.verify.judging import Finding
from headwater.spark.jobs.verify.lives import Window

LIFE = ("name", "incarnation")


def differences(
    server: DataFrame, other: DataFrame, asked: Sequence[Finding], starts: Mapping[str, int], window: Window
) -> list[Finding]:
    """Findings that two sides differ, each with the messages in which they do; the rows are digests.

    `starts` says where each stream begins by now: what the other side has of it below that is no difference.
    """
    few = server.sparkSession.createDataFrame(
        [(one.name, one.incarnation, starts[one.name]) for one in asked], "name string, incarnation long, start long"
    )
    # What a fork has of its source is older than the fork, and stands under the source.
    own = F.col("position").between(F.col("incarnation"), window.position)
    inside = own & F.col("at").between(window.since, window.until - 1)

    def counted(rows: DataFrame, side: str) -> DataFrame:
        of_few = rows.where(inside).join(F.broadcast(few), [*LIFE]).where("offset >= start")
        return of_few.groupBy(*LIFE, "offset", "digest").agg(F.count("*").alias(side))

    both = counted(server, "here").join(counted(other, "there"), [*LIFE, "offset", "digest"], "full_outer")
    here, there = (F.coalesce(side, F.lit(0)) for side in ("here", "there"))
    # Of one offset: what only the server has, and what only the other side has, or has more often.
    offsets = both.groupBy(*LIFE, "offset").agg(
        F.sum(F.when(here > there, here - there).otherwise(0)).alias("lacking"),
        F.sum(F.when(there > here, there - here).otherwise(0)).alias("extra"),
    )
    changed = F.least("lacking", "extra")
    kinds = {"changed": changed, "lacking": F.col("lacking") - changed, "extra": F.col("extra") - changed}
    totals = [F.sum(count).alias(kind) for kind, count in kinds.items()]
    firsts = [F.min(F.when(count > 0, F.col("offset"))).alias(f"{kind}_at") for kind, count in kinds.items()]
    told = {
        (row["name"], row["incarnation"]): row.asDict()
        for row in offsets.groupBy(*LIFE).agg(*totals, *firsts).collect()
    }
    return [one._replace(what=_explained(one, told.get((one.name, one.incarnation), {}))) for one in asked]


def _explained(finding: Finding, told: dict[str, int]) -> str:
    side = finding.side
    parts = [
        f"{sentence.format(messages(told[kind]), side)} at offset {told[f'{kind}_at']}"
        for kind, sentence in (
            ("lacking", "{} of the server not in the {}, the first"),
            ("extra", "{} in the {} not on the server, or twice, the first"),
            ("changed", "{} in the {} changed, the first"),
        )
        if told.get(kind)
    ]
    return f"{finding.what}: {'; '.join(parts)}" if parts else finding.what


def messages(count: int) -> str:
    """So many messages, in words.

    >>> messages(1), messages(2)
    ('1 message', '2 messages')
    """
    return f"{count} message" if count == 1 else f"{count} messages"
