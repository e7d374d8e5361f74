"""Verify: the server against its lake against an export, every message of every stream accounted for.

There are four sides: what the server says of its streams, what it serves, what the segments of its lake hold, what the
files of an export hold. If the server was written to meanwhile, what seems wrong is looked at once more.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.spark.jobs.origin import Origin
from headwater.spark.jobs.report import Fact, JobFailed, Report
from headwater.spark.jobs.verify.differences import differences
from headwater.spark.jobs.verify.export import Export, open_export
from headwater.spark.jobs.verify.judging import Finding, Side, findings, together
from headwater.spark.jobs.verify.lives import EVER, Window, Windows, lives, marks
from headwater.spark.jobs.verify.sides import Described, describe, export_rows, lake_rows, server_rows

PROBLEMS_MAX = 100
"""How many problems are told, and looked at message by message, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class VerifyConfig:
    """What to verify: streams, and perhaps an export of them; without a choice of streams, those of the export."""

    origin: Origin
    export: str | None = None
    catalog: str | None = None
    """Of an export to Iceberg: the URI of its catalog, and the table's name in it."""
    table: str | None = None
    hashes: str | None = None
    """Where to write a Parquet table with the hashes of every stream."""
    problems_max: int = PROBLEMS_MAX


class Look(NamedTuple):
    """What one look at all sides has shown."""

    facts: dict[str, Fact]
    problems: list[Finding]
    """As many as are told of."""
    found: int
    quiet: bool
    """Whether nothing was written to the server meanwhile."""


def run(spark: SparkSession, config: VerifyConfig) -> Report:
    """Verify streams, and say what is wrong with which."""
    began = time.monotonic()
    export = None
    if config.export is not None:
        export = open_export(config.export, config.origin, config.catalog, config.table)
    origin = config.origin if export is None else export.origin
    look = Verifier(spark, origin, export, config).look(config.hashes)
    problems, count = look.problems, look.found
    if problems and not look.quiet:
        names = sorted({finding.name for finding in problems})
        few = replace(origin, bucket=None, prefix=None, pattern=None, streams=names)
        again = Verifier(spark, few, export, config).look()
        problems, count = again.problems, again.found if count <= config.problems_max else count
    told = [str(problem) for problem in problems]
    if count > len(told):
        told.append(f"There are {count - len(told)} more problems.")
    return Report(
        "verify", {**look.facts, "problems_found": count, "seconds": round(time.monotonic() - began, 3)}, tuple(told)
    )


class Verifier:
    """Looks at the streams of one origin."""

    def __init__(self, spark: SparkSession, origin: Origin, export: Export | None, config: VerifyConfig) -> None:
        self._spark, self.origin, self._export, self._config = spark, origin, export, config
        self._options = origin.parsed()
        if self._options.since is not None or self._options.until is not None:
            raise JobFailed("Streams are verified whole; leave startingTimestamp and endingTimestamp out.")

    def look(self, hashes: str | None = None) -> Look:
        """Compare all sides once."""
        with self.origin.link() as link:
            with_lake = link.status().get("lake") is not None
            if with_lake:
                link.flush()
            described = describe(link, self._options.selection)
            windows = self._windows(described, with_lake)
            joined = self._joined(described, windows).persist(StorageLevel.MEMORY_AND_DISK)
            try:
                facts = self._facts(joined)
                found = findings(joined).persist(StorageLevel.MEMORY_AND_DISK)
                first = found.orderBy("name", "incarnation", "side").limit(self._config.problems_max).collect()
                count = found.count()
                if hashes is not None:
                    # Where a relative path leads is for us to say: Spark may run in another folder.
                    where = hashes if "://" in hashes else Path(hashes).absolute().as_uri()
                    _table(joined).write.mode("overwrite").parquet(where)
            finally:
                joined.unpersist()
            problems = self._explained([Finding(**row.asDict()) for row in first], described, windows)
            quiet = max(link.status()["positions"].values()) == described.position
        return Look(facts, problems, count, quiet)

    def _windows(self, described: Described, with_lake: bool) -> Windows:
        """Up to which position sides have to agree: the lake up to now, an export as far as it has come."""
        lake = Window(described.position) if with_lake else None
        export = self._export
        if export is None:
            return Windows(lake, None)
        until = EVER if export.until is None else export.until
        return Windows(lake, Window(min(described.position, export.position), export.since or 0, until))

    def _joined(self, described: Described, windows: Windows) -> DataFrame:
        known = self._spark.createDataFrame(described.table)
        sides: dict[Side, DataFrame] = {"server": lives(self._server(described), windows)}
        if windows.lake is not None:
            sides["lake"] = lives(lake_rows(self._spark, self.origin), windows)
        if self._export is not None:
            rows = self._exported(self._export).unionByName(marks(known))
            sides["export"] = lives(rows, windows, marked=True)
        return together(known, sides)

    def _server(self, described: Described) -> DataFrame:
        return server_rows(self._spark, self._options.link, described)

    def _exported(self, export: Export) -> DataFrame:
        return export_rows(self._spark, export.place, export.files())

    def _facts(self, joined: DataFrame) -> dict[str, Fact]:
        sides = [name for name in ("server", "lake", "export") if name in joined.columns]
        sums = [F.count("said").alias("streams"), F.sum("server.bytes").alias("bytes")]
        sums += [F.sum(f"{side}.rows").alias(f"{side}_messages") for side in sides]
        if "export" in sides:
            ended = F.sum(F.when(F.col("said").isNull(), F.col("export.rows")))
            behind = F.sum("server.own_rows") - F.sum("server.export_rows")
            sums += [ended.alias("export_messages_of_ended_lives"), behind.alias("messages_not_exported_yet")]
        row = joined.agg(*sums).first()
        assert row is not None
        return {name: value or 0 for name, value in row.asDict().items()}

    def _explained(self, problems: list[Finding], described: Described, windows: Windows) -> list[Finding]:
        """Problems with the messages in which sides differ, as far as there are such."""
        for side, window in (("lake", windows.lake), ("export", windows.export)):
            asked = [problem for problem in problems if problem.differs and problem.side == side]
            if not asked or window is None:
                continue
            names = sorted({problem.name for problem in asked})
            few = describe_few(described, names)
            other = self._few_rows(side, names)
            starts = dict(zip(few.table["stream"].to_pylist(), few.table["start"].to_pylist(), strict=True))
            told = differences(self._server(few), other, asked, starts, window)
            problems = sorted([problem for problem in problems if problem not in asked] + told)
        return problems

    def _few_rows(self, side: str, names: list[str]) -> DataFrame:
        if side == "export":
            assert self._export is not None
            return self._exported(self._export)
        return lake_rows(self._spark, replace(self.origin, bucket=None, prefix=None, pattern=None, streams=names))


def describe_few(described: Described, names: list[str]) -> Described:
    """What was said of some streams."""
    wanted = set(names)
    mask = [name in wanted for name in described.table["stream"].to_pylist()]
    return described._replace(table=described.table.filter(mask))


def _table(joined: DataFrame) -> DataFrame:
    """The table of hashes: a row for every stream."""
    told: list[Any] = ["name", "incarnation", "said.start", "said.tail"]
    told += [F.col("server.rows").alias("messages"), F.col("server.lake_hash").alias("hash")]
    if "lake" in joined.columns:
        told.append(F.col("lake.lake_hash").alias("lake_hash"))
    if "export" in joined.columns:
        told += [
            F.col("server.export_hash").alias("hash_as_exported"),
            F.col("export.export_hash").alias("export_hash"),
        ]
    return joined.select(*told).orderBy("name", "incarnation")
