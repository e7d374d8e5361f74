"""Load: files into streams, every row exactly once, no matter how often the job runs."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from headwater.spark.failures import LinkFailed, LinkRefused
from headwater.spark.jobs.load.files import FORMATS, LINE, PLACE, list_files, read_rows, reading_options, try_rows
from headwater.spark.jobs.load.ledger import File, Ledger, Round
from headwater.spark.jobs.report import Fact, JobFailed, Report
from headwater.spark.jobs.target import check_sink_options
from headwater.spark.link import Link
from headwater.spark.options.sink import SinkOptions
from headwater.spark.options.values import OptionRefused
from headwater.spark.sink.delivery import WriteFailed
from headwater.spark.sink.ledger import Ledger as SinkLedger
from headwater.spark.sink.rows import find_columns
from headwater.spark.writing import by_stream

FILES_PER_ROUND = 10_000
"""All of them are in one entry of the ledger, which has to fit into an append."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


@dataclass(frozen=True, slots=True)
class LoadConfig:
    """What to load into which streams; expressions are Spark SQL over the columns of the files."""

    url: str
    paths: Sequence[str]
    format: str
    name: str
    """Of the job: its ledger and its producer have this name."""
    stream: str | None = None
    key: str | None = None
    """An expression for the stream's name, or one for the key at the end of the name."""
    prefix: str = ""
    """The part of the name before the key."""
    bucket: str | None = None
    value: str | None = None
    """The message; by default the line of a JSON Lines file, else the row as JSON."""
    order: Sequence[str] = ()
    """What to sort the rows of a stream by; ties, or all rows if it is empty, stay in the order of the files."""
    content_type: str | None = None
    close: bool = False
    """Whether to close the streams after writing them."""
    schema: str | None = None
    reading: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's reader for the format."""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """More options of the sink."""
    partitions: int | None = None


def prepare(config: LoadConfig) -> SinkOptions:
    """Make all checks that need no Spark, and write nothing; JobFailed if one fails."""
    options = _check(config)
    try:
        with Link(options.link) as link:
            check_ledger(Ledger(link, config.name), SinkLedger(link, config.name))
    except (LinkFailed, LinkRefused) as failure:
        raise JobFailed(str(failure)) from failure
    return options


def run(spark: SparkSession, config: LoadConfig) -> Report:
    """Load the files that are not loaded yet."""
    began = time.monotonic()
    options = _check(config)
    # Spark would resolve a relative path from the folder in which its JVM was started.
    paths = [path if "://" in path else str(Path(path).absolute()) for path in config.paths]
    listed = list_files(spark, paths)
    recipe = _recipe(config, _base(paths, listed))
    try:
        with Link(options.link) as link:
            ledger, writes = Ledger(link, config.name), SinkLedger(link, config.name)
            check_ledger(ledger, writes)
            counts, noted = _Counts(), writes.end()
            plan = partial(_plan, spark, recipe, options)
            while (work := _next_round(ledger, listed, recipe, plan)) is not None:
                counts.add(work, _load(plan(work.files), config, work.epoch))
                ledger.end(work.epoch)
            repeated = writes.repeated_since(noted)
    except (LinkFailed, LinkRefused, WriteFailed) as failure:
        raise JobFailed(str(failure)) from failure
    facts: dict[str, Fact] = {
        "job": config.name,
        "ledger": ledger.stream,
        "rounds": counts.rounds,
        "files": counts.files,
        "files_known": len(listed) - counts.files,
        "messages": counts.messages,
        "messages_repeated": repeated,
        "bytes": counts.bytes,
        "seconds": round(time.monotonic() - began, 3),
    }
    return Report("load", facts)


@dataclass(slots=True)
class _Counts:
    rounds: int = 0
    files: int = 0
    messages: int = 0
    bytes: int = 0

    def add(self, work: Round, seen: Mapping[str, Any]) -> None:
        self.rounds += 1
        self.files += len(work.files)
        self.messages += seen["messages"]
        self.bytes += seen["bytes"] or 0


def _check(config: LoadConfig) -> SinkOptions:
    """The options of the sink; JobFailed for a configuration that cannot work."""
    if config.format not in FORMATS:
        raise JobFailed(f"{config.format!r} is not a known format; use one of {', '.join(FORMATS)}.")
    if not _NAME.fullmatch(config.name):
        raise JobFailed(f"{config.name!r} is not a valid job name: use 1 to 100 letters, digits, '_', '.' and '-'.")
    if (config.stream is None) == (config.key is None):
        raise JobFailed("Use either --stream or --key to select the stream of a row.")
    if config.key is None and config.prefix:
        raise JobFailed("The option --prefix needs --key; with --stream, put the prefix into the expression.")
    if not config.paths:
        raise JobFailed("There is nothing to load; pass the path of a file or a folder.")
    return check_sink_options(config.options, _sink_options(config, epoch=0))


def check_ledger(ledger: Ledger, writes: SinkLedger) -> None:
    """Raise JobFailed if rows were written under the name of a load whose ledger is gone: it would begin again."""
    # In this order: a first run at the same time begins a round before it writes.
    written = writes.owner() is not None
    ledger.read()
    if written and ledger.epoch < 0:
        raise JobFailed(
            f"Rows were written under the name {ledger.name!r} before, but there is no ledger {ledger.stream!r}: it "
            "was deleted, or other writes use the name; load under another --name, and only what is not loaded yet."
        )


def _recipe(config: LoadConfig, base: str | None) -> dict[str, Any]:
    """Everything that determines rows and appends; a round that is resumed must have the same recipe."""
    stream = config.stream
    if config.key is not None:
        stream = f"concat({_literal(config.prefix)}, string({config.key}))"
    options = {name.lower(): value for name, value in config.options.items()}
    return {
        "format": config.format,
        "schema": config.schema,
        "options": reading_options(config.format, config.schema, config.reading),
        "base": base,
        "stream": stream,
        "value": config.value,
        "order": list(config.order),
        "bucket": config.bucket,
        "content_type": config.content_type,
        "close": config.close,
        "cut": [options.get(name) for name in ("maxappendbytes", "maxappendmessages")],
    }


def _base(paths: Sequence[str], listed: Sequence[File]) -> str | None:
    """The folder below which folder names like day=2026-11-16 are columns, if there is one."""
    only = paths[0].rstrip("/")
    if len(paths) > 1 or set(only) & set("*?[]{}") or any(file.path.endswith(only) for file in listed):
        return None
    return only


def _next_round(
    ledger: Ledger, listed: Sequence[File], recipe: dict[str, Any], plan: Callable[[Sequence[File]], DataFrame]
) -> Round | None:
    """The round to load now: an unfinished one, else one of new files; None if there are none."""
    ledger.read()
    if ledger.unfinished is None:
        new = [file for file in listed if file not in ledger.loaded]
        if not new:
            return None
        # A round that was begun has to be finished, so find out first whether its rows can be read.
        try_rows(plan(new[:FILES_PER_ROUND]), recipe)
        ledger.begin(tuple(new[:FILES_PER_ROUND]), recipe)
        ledger.read()
    work = ledger.unfinished
    if work is None:
        # Another run has finished the round.
        return _next_round(ledger, listed, recipe, plan)
    if work.recipe != recipe:
        raise JobFailed(
            f"An earlier run with other options has not finished loading {len(work.files)} files under the name "
            f"{ledger.name!r}; run it again with the same options, or use another --name."
        )
    for file in sorted(set(work.files) - set(listed)):
        raise JobFailed(
            f"The file {file.path} was changed or deleted while it was being loaded; restore it, or load the rest "
            "under another --name."
        )
    return work


def _plan(spark: SparkSession, recipe: dict[str, Any], options: SinkOptions, files: Sequence[File]) -> DataFrame:
    """The rows of files in the form that the sink takes; JobFailed if an expression or a column does not fit."""
    try:
        rows = shape(read_rows(spark, files, recipe), recipe)
        find_columns(rows.schema, options._replace(order=_order(rows)))
    except (AnalysisException, ParseException) as problem:
        raise JobFailed(next(line for line in str(problem).splitlines() if line.strip())) from problem
    except OptionRefused as refused:
        raise JobFailed(str(refused)) from refused
    return rows


def _load(rows: DataFrame, config: LoadConfig, epoch: int) -> dict[str, Any]:
    """Write the rows of a round, and count them."""
    seen = Observation()
    counted = rows.observe(seen, F.count(F.lit(1)).alias("messages"), F.sum(F.octet_length("value")).alias("bytes"))
    writer = by_stream(counted, config.partitions).write.format("headwater").mode("append")
    writer.options(**_sink_options(config, epoch), orderColumn=",".join(_order(rows))).save()
    return seen.get


def _order(rows: DataFrame) -> tuple[str, ...]:
    return tuple(name for name in rows.columns if name not in ("stream", "value"))


def shape(rows: DataFrame, recipe: dict[str, Any]) -> DataFrame:
    """The rows in the form that the sink takes: stream, value, and the columns to order by."""
    value = F.expr(recipe["value"]) if recipe["value"] is not None else None
    if value is None and LINE in rows.columns:
        value = F.col(LINE)
    if value is None:
        value = F.to_json(F.struct(*(F.col(f"`{name}`") for name in rows.columns if name not in PLACE)))
    order = [F.expr(text).alias(f"_order{number}") for number, text in enumerate(recipe["order"])]
    return rows.select(F.expr(recipe["stream"]).alias("stream"), value.alias("value"), *order, *PLACE)


def _sink_options(config: LoadConfig, epoch: int) -> dict[str, str]:
    own = {
        "url": config.url,
        "producerId": config.name,
        "producerEpoch": str(epoch),
        "bucket": config.bucket,
        "contentType": config.content_type,
        "close": "true" if config.close else None,
    }
    return {**config.options, **{name: value for name, value in own.items() if value is not None}}


def _literal(text: str) -> str:
    r"""A text as a literal in Spark SQL.

    >>> print(_literal("it's"), _literal("a\\b"))
    'it\'s' 'a\\b'
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
