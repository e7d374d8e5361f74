"""Load: files into streams, every row once however often the job is run."""

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

from headwater.spark.jobs.load.files import FORMATS, LINE, PLACE, list_files, read_rows, reading_options, try_rows
from headwater.spark.jobs.load.ledger import File, Ledger, Round
from headwater.spark.jobs.report import Fact, JobFailed, Report
from headwater.spark.link import Link, LinkFailed, LinkRefused
from headwater.spark.options.sink import SinkOptions, parse_sink
from headwater.spark.options.values import OptionRefused
from headwater.spark.sink.rows import find_columns
from headwater.spark.writing import by_stream

FILES_PER_ROUND = 10_000
"""They all stand in one entry of the ledger, which must be an append."""
OWN_OPTIONS = frozenset(
    ("bucket", "close", "contenttype", "ordercolumn", "producerepoch", "producerid", "stream", "target", "url")
)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


@dataclass(frozen=True, slots=True)
class LoadConfig:
    """What to load, and into which streams; expressions are Spark's SQL over the columns of the files."""

    url: str
    paths: Sequence[str]
    format: str
    name: str
    """Of the job: under it the server knows what is in."""
    stream: str | None = None
    key: str | None = None
    """Either an expression for the stream's name, or one for a key that is the end of it."""
    prefix: str = ""
    """Of the names of the streams that keys give."""
    bucket: str | None = None
    value: str | None = None
    """The message; if None the line of a file of lines, or the row as JSON."""
    order: Sequence[str] = ()
    """What rows of a stream are sorted by; those that are equal in it, and all if it is empty, as in the files."""
    content_type: str | None = None
    close: bool = False
    """Whether to close the streams that were written."""
    schema: str | None = None
    reading: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's reader for the format."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of the sink."""
    partitions: int | None = None


def run(spark: SparkSession, config: LoadConfig) -> Report:
    """Load the files that are not in yet, and say how much that was."""
    began = time.monotonic()
    options = _check(config)
    # Spark would look from where its Java was started.
    paths = [path if "://" in path else str(Path(path).absolute()) for path in config.paths]
    listed = list_files(spark, paths)
    recipe = _recipe(config, _base(paths, listed))
    try:
        with Link(options.link) as link:
            ledger = Ledger(link, config.name)
            counts = _Counts()
            plan = partial(_plan, spark, recipe, options)
            while (work := _next_round(ledger, listed, recipe, plan)) is not None:
                counts.add(work, _load(plan(work.files), config, work.epoch))
                ledger.end(work.epoch)
    except (LinkFailed, LinkRefused) as failure:
        raise JobFailed(str(failure)) from failure
    facts: dict[str, Fact] = {
        "job": config.name,
        "ledger": ledger.stream,
        "rounds": counts.rounds,
        "files": counts.files,
        "files_known": len(listed) - counts.files,
        "messages": counts.messages,
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
    """The options of the sink; JobFailed for what cannot be."""
    if config.format not in FORMATS:
        raise JobFailed(f"There is no format {config.format!r}; there are {', '.join(FORMATS)}.")
    if not _NAME.fullmatch(config.name):
        raise JobFailed(f"A load's name is up to 100 letters, digits and _.-, not {config.name!r}.")
    if (config.stream is None) == (config.key is None):
        raise JobFailed("Say where rows go: give one expression, either for the stream's name or for its key.")
    if config.key is None and config.prefix:
        raise JobFailed("A prefix goes before keys; put it into the expression for the stream's name.")
    for name in config.options:
        if name.lower() in OWN_OPTIONS:
            raise JobFailed(f"The option {name} of the sink is the job's own to set; leave it out.")
    if not config.paths:
        raise JobFailed("Say what to load: give the path of a file or a folder.")
    try:
        return parse_sink(_sink_options(config, epoch=0), streaming=False)
    except OptionRefused as refused:
        raise JobFailed(str(refused)) from refused


def _recipe(config: LoadConfig, base: str | None) -> dict[str, Any]:
    """All that decides which rows come of files and how they are cut; a round that goes on must have the same."""
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
    """The folder below which names like day=2026-11-16 are columns, if there is one."""
    only = paths[0].rstrip("/")
    if len(paths) > 1 or set(only) & set("*?[]{}") or any(file.path.endswith(only) for file in listed):
        return None
    return only


def _next_round(
    ledger: Ledger, listed: Sequence[File], recipe: dict[str, Any], plan: Callable[[Sequence[File]], DataFrame]
) -> Round | None:
    """What is to be loaded now: what was begun, or files that are not in; None if there are none."""
    ledger.read()
    if ledger.unfinished is None:
        new = [file for file in listed if file not in ledger.loaded]
        if not new:
            return None
        # Once begun it must be finished as it is, so what cannot be done is found out first.
        try_rows(plan(new[:FILES_PER_ROUND]), recipe)
        ledger.begin(tuple(new[:FILES_PER_ROUND]), recipe)
        ledger.read()
    work = ledger.unfinished
    if work is None:
        # Another run was faster.
        return _next_round(ledger, listed, recipe, plan)
    if work.recipe != recipe:
        raise JobFailed(
            f"An earlier run, told otherwise, has begun to load {len(work.files)} files under the name of "
            f"{ledger.stream!r} and not finished; run it again as it was, or use another name."
        )
    for file in sorted(set(work.files) - set(listed)):
        raise JobFailed(
            f"The file {file.path} has changed or is gone since its load was begun; bring it back as it was, or load "
            "what is missing under another name."
        )
    return work


def _plan(spark: SparkSession, recipe: dict[str, Any], options: SinkOptions, files: Sequence[File]) -> DataFrame:
    """The rows of files as the sink wants them; JobFailed if no such rows can be made."""
    try:
        rows = shape(read_rows(spark, files, recipe), recipe)
        find_columns(rows.schema, options._replace(order=_order(rows)))
    except (AnalysisException, ParseException) as problem:
        raise JobFailed(next(line for line in str(problem).splitlines() if line.strip())) from problem
    except OptionRefused as refused:
        raise JobFailed(str(refused)) from refused
    return rows


def _load(rows: DataFrame, config: LoadConfig, epoch: int) -> dict[str, Any]:
    """Write the rows of a round; how many they were."""
    seen = Observation()
    counted = rows.observe(seen, F.count(F.lit(1)).alias("messages"), F.sum(F.octet_length("value")).alias("bytes"))
    writer = by_stream(counted, config.partitions).write.format("headwater").mode("append")
    writer.options(**_sink_options(config, epoch), orderColumn=",".join(_order(rows))).save()
    return seen.get


def _order(rows: DataFrame) -> tuple[str, ...]:
    return tuple(name for name in rows.columns if name not in ("stream", "value"))


def shape(rows: DataFrame, recipe: dict[str, Any]) -> DataFrame:
    """The rows as the sink wants them: a stream, a value, and the columns that they are ordered by."""
    value = F.expr(recipe["value"]) if recipe["value"] is not None else None
    if value is None and LINE in rows.columns:
        value = F.col(LINE)
    if value is None:
        value = F.to_json(F.struct(*(F.col(f"`{name}`") for name in rows.columns if name not in PLACE)))
    order = [F.expr(text).alias(f"_order{number}") for number, text in enumerate(recipe["order"])]
    return rows.select(F.expr(recipe["stream"]).alias("stream"), value.alias("value"), *order, *PLACE)


def _sink_options(config: LoadConfig, epoch: int) -> dict[str, str]:
    told = {
        "url": config.url,
        "producerId": config.name,
        "producerEpoch": str(epoch),
        "bucket": config.bucket,
        "contentType": config.content_type,
        "close": "true" if config.close else None,
    }
    return {**config.options, **{name: value for name, value in told.items() if value is not None}}


def _literal(text: str) -> str:
    r"""A text as a literal of Spark's SQL.

    >>> print(_literal("it's"), _literal("a\\b"))
    'it\'s' 'a\\b'
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
