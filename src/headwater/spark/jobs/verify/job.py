"""Verify: compare the server, its lake and an export, and account for every message of every stream.

There are four sides: the server's description of its streams, what it serves, what the segments of its lake hold, and
what the files of an export hold. If the server was written to during the comparison, streams with problems are compared
a second time.
"""

import time
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headwater.spark.jobs.origin import Origin, find_lake
from headwater.spark.jobs.report import Fact, JobFailed, Report, spark_path
from headwater.spark.jobs.verify.exported import Export, export_rows, open_export
from headwater.spark.jobs.verify.judging import Finding, Side, differences, findings, together
from headwater.spark.jobs.verify.lives import EVER, Window, Windows, lives, marks
from headwater.spark.jobs.verify.sides import Described, describe, lake_rows, server_rows

PROBLEMS_MAX = 100
"""Problems to list and to inspect message by message, by default."""


@dataclass(frozen=True, slots=True)
class VerifyConfig:
    """What to verify: streams, and optionally an export; if no streams are selected, those of the export."""

    origin: Origin
    export: str | None = None
    catalog: str | None = None
    """Iceberg: the URI of the export's catalog and the table's name in it."""
    table: str | None = None
    hashes: str | None = None
    """A folder for a Parquet table with the hashes of every stream."""
    problems_max: int = PROBLEMS_MAX


class Comparison(NamedTuple):
    """The result of comparing all sides once."""

    facts: dict[str, Fact]
    problems: list[Finding]
    """At most `problems_max` of them."""
    found: int
    """The number of all problems."""
    quiet: bool
    """Whether the server was not written to meanwhile."""


def prepare(config: VerifyConfig) -> tuple[Origin, Export | None]:
    """Make all checks that need no Spark, and write nothing: the streams to verify, and the export if there is one."""
    export = None
    if config.export is not None:
        export = open_export(config.export, config.origin, config.catalog, config.table)
    origin = config.origin if export is None else export.origin
    options = origin.parsed()
    if options.since is not None or options.until is not None:
        raise JobFailed("Verification covers whole streams; remove startingTimestamp and endingTimestamp.")
    with origin.link() as link:
        find_lake(link)
    return origin, export


def run(spark: SparkSession, config: VerifyConfig) -> Report:
    """Verify streams, and report the problems."""
    began = time.monotonic()
    origin, export = prepare(config)
    first = Verifier(spark, origin, export, config).compare(config.hashes)
    problems, count = first.problems, first.found
    if problems and not first.quiet:
        names = sorted({finding.name for finding in problems})
        few = replace(origin, bucket=None, prefix=None, pattern=None, streams=names)
        second = Verifier(spark, few, export, config).compare()
        problems, count = second.problems, second.found if count <= config.problems_max else count
    sentences = [str(problem) for problem in problems]
    if count > len(sentences):
        sentences.append(f"There are {count - len(sentences)} more problems.")
    facts = {**first.facts, "problems_found": count, "seconds": round(time.monotonic() - began, 3)}
    return Report("verify", facts, tuple(sentences))


class Verifier:
    """Compares the streams of one origin."""

    def __init__(self, spark: SparkSession, origin: Origin, export: Export | None, config: VerifyConfig) -> None:
        self._spark, self.origin, self._export, self._config = spark, origin, export, config
        self._options = origin.parsed()

    def compare(self, hashes: str | None = None) -> Comparison:
        """Compare all sides once."""
        with self.origin.link() as link:
            with_lake = find_lake(link) is not None
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
                    _hashes(joined).write.mode("overwrite").parquet(spark_path(hashes))
            finally:
                joined.unpersist()
            problems = self._explained([Finding(**row.asDict()) for row in first], described, windows)
            quiet = link.log().position == described.position
        return Comparison(facts, problems, count, quiet)

    def _windows(self, described: Described, with_lake: bool) -> Windows:
        """Which rows have to agree: in the lake all up to now, in an export those up to its position."""
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
        parts = (export_rows(self._spark, export.location, some, shape) for shape, some in export.files().items())
        return reduce(DataFrame.unionByName, parts)

    def _facts(self, joined: DataFrame) -> dict[str, Fact]:
        sides = [name for name in ("server", "lake", "export") if name in joined.columns]
        sums = [F.count("described").alias("streams"), F.sum("server.bytes").alias("bytes")]
        sums += [F.sum(f"{side}.rows").alias(f"{side}_messages") for side in sides]
        if "export" in sides:
            ended = F.sum(F.when(F.col("described").isNull(), F.col("export.rows")))
            behind = F.sum("server.own_rows") - F.sum("server.export_rows")
            sums += [ended.alias("export_messages_of_ended_lives"), behind.alias("messages_not_exported_yet")]
        row = joined.agg(*sums).first()
        assert row is not None
        return {name: value or 0 for name, value in row.asDict().items()}

    def _explained(self, problems: list[Finding], described: Described, windows: Windows) -> list[Finding]:
        """The problems, with the messages in which two sides differ."""
        for side, window in (("lake", windows.lake), ("export", windows.export)):
            differing = [problem for problem in problems if problem.differs and problem.side == side]
            if not differing or window is None:
                continue
            names = sorted({problem.name for problem in differing})
            few = describe_few(described, names)
            other = self._few_rows(side, names)
            starts = dict(zip(few.table["stream"].to_pylist(), few.table["start"].to_pylist(), strict=True))
            explained = differences(self._server(few), other, differing, starts, window)
            problems = sorted([problem for problem in problems if problem not in differing] + explained)
        return problems

    def _few_rows(self, side: str, names: list[str]) -> DataFrame:
        if side == "export":
            assert self._export is not None
            return self._exported(self._export)
        return lake_rows(self._spark, replace(self.origin, bucket=None, prefix=None, pattern=None, streams=names))


def describe_few(described: Described, names: list[str]) -> Described:
    """The description of some of the streams."""
    wanted = set(names)
    mask = [name in wanted for name in described.table["stream"].to_pylist()]
    return described._replace(table=described.table.filter(mask))


def _hashes(joined: DataFrame) -> DataFrame:
    """The table of hashes: one row for every life."""
    columns: list[Any] = ["name", "incarnation", "described.start", "described.tail"]
    columns += [F.col("server.rows").alias("messages"), F.col("server.lake_hash").alias("hash")]
    if "lake" in joined.columns:
        columns.append(F.col("lake.lake_hash").alias("lake_hash"))
    if "export" in joined.columns:
        columns += [
            F.col("server.export_hash").alias("hash_as_exported"),
            F.col("export.export_hash").alias("export_hash"),
        ]
    return joined.select(*columns).orderBy("name", "incarnation")
