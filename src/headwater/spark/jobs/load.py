"""Load: files into streams, every row exactly once, no matter how often the job runs."""

import json
import re
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from headwater.spark.jobs.report import Fact, JobFailed, Report, check_sink_options, failing_job
from headwater.spark.link import Link
from headwater.spark.options.sink import SinkOptions
from headwater.spark.sink.delivery import PAYLOAD_MISMATCH, Producer
from headwater.spark.sink.ledger import Ledger as SinkLedger
from headwater.spark.sink.ledger import append_entry, read_entries
from headwater.spark.sink.rows import find_columns
from headwater.spark.writing import by_stream

# -- The ledger: a JSON stream on the server that records which files are loaded ---------------------------------------
#
# Files are loaded in rounds. The ledger records the beginning of a round, with its files and recipe, before the first
# row is written, and its end after the last. The number of the round is the epoch of the producer, so a repeated round
# writes nothing twice, and a run that is still busy with an earlier round is fenced. A round that was begun is finished
# before the next begins. Concurrent runs agree on the round, because the ledger accepts each beginning and end once.


BUCKET = "_load"
PRODUCER = "ledger"
BEGUN, DONE = 0, 1
"""The sequence numbers of a round's two entries."""


class File(NamedTuple):
    """A file as listed; after a change it counts as another file."""

    path: str
    size: int
    modified_ms: int


class Round(NamedTuple):
    """Files that are loaded together, and the recipe for their rows."""

    epoch: int
    files: tuple[File, ...]
    recipe: dict[str, Any]


class Ledger:
    """The ledger of one job."""

    def __init__(self, link: Link, name: str) -> None:
        self._link, self.name, self.stream = link, name, f"{BUCKET}/{name}"
        self.loaded: set[File] = set()
        self.unfinished: Round | None = None
        self.epoch = -1
        """Of the last round."""

    def read(self) -> None:
        """Read the current state."""
        self.loaded, self.unfinished, self.epoch = set(), None, -1
        for entry in read_entries(self._link, self.stream):
            if entry["state"] == "begun":
                files = tuple(File(*file) for file in entry["files"])
                self.unfinished = Round(entry["epoch"], files, entry["recipe"])
                self.epoch = entry["epoch"]
            elif self.unfinished is not None:
                self.loaded.update(self.unfinished.files)
                self.unfinished = None

    def begin(self, files: tuple[File, ...], recipe: dict[str, Any]) -> None:
        """Begin a round, unless another run has begun one; read the ledger again to find out which."""
        epoch = self.epoch + 1
        entry = {"epoch": epoch, "state": "begun", "recipe": recipe, "files": files}
        self._append(entry, epoch, BEGUN)

    def end(self, epoch: int) -> None:
        """End a round, unless another run has ended it."""
        self._append({"epoch": epoch, "state": "done"}, epoch, DONE)

    def _append(self, entry: dict[str, Any], epoch: int, seq: int) -> None:
        data = json.dumps(entry, ensure_ascii=False).encode()
        answer = append_entry(self._link, self.stream, data, Producer(PRODUCER, epoch), seq, create=True)
        # For a duplicate, an entry in its place or a fenced epoch, another run of the same job has written the entry.
        if answer["status"] not in (200, 204, 403) and answer["code"] != PAYLOAD_MISMATCH:
            raise JobFailed(f"The ledger {self.stream!r} cannot be written: {answer['detail']}")


# -- Files -------------------------------------------------------------------------------------------------------------


FORMATS = ("csv", "json", "parquet", "orc")
LINE = "_line"
PLACE = ("_file", "_block", "_row")
"""Columns with the origin of a row; sorted by them, rows are in the order of the files."""
DEFAULTS = {
    # Without pruning every field of a line is parsed, so a line with too many or too few fields is an error.
    "csv": {"header": "true", "enforceSchema": "false", "mode": "FAILFAST", "columnPruning": "false"},
    "json": {},
    "parquet": {"mergeSchema": "true"},
    "orc": {"mergeSchema": "true"},
}
"""Defaults for the options of Spark's reader. Its own apply the columns of one file to all files, which silently drops
values or puts them under other names."""
PROBLEM_CHARACTERS_MAX = 500
"""Of an error message of Spark, which may quote a file."""
_CODES = re.compile(r"\[[A-Z_.]+\] |\s*SQLSTATE: \w+")
_PATTERN = re.compile(r"[\[\]{}*?\\]")


def list_files(spark: SparkSession, paths: Sequence[str]) -> list[File]:
    """The files at these paths, folders or patterns, sorted by path; JobFailed if there are none."""
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        found = reader.load(list(paths)).select("path", "length", F.unix_millis("modificationTime")).collect()
    except AnalysisException as problem:
        if "PATH_NOT_FOUND" not in str(problem):
            raise
        raise JobFailed(f"No files found at {', '.join(paths)}; check the paths.") from problem
    # Paths may overlap.
    return sorted({File(*row) for row in found})


def reading_options(kind: str, schema: str | None, given: Mapping[str, str]) -> dict[str, str]:
    """The options of Spark's reader: the user's, and our defaults for the others; case does not matter in names.

    >>> reading_options("csv", None, {"MODE": "PERMISSIVE", "sep": ";"})
    {'header': 'true', 'enforceSchema': 'false', 'columnPruning': 'false', 'MODE': 'PERMISSIVE', 'sep': ';'}
    """
    ours = DEFAULTS[kind]
    if kind == "json" and schema is not None:
        # Without a schema, columns are inferred from the lines, and a line may be any value.
        ours = {"mode": "FAILFAST"}
    names = {name.lower() for name in given}
    return {**{name: value for name, value in ours.items() if name.lower() not in names}, **given}


def try_rows(rows: DataFrame, recipe: Mapping[str, Any]) -> None:
    """Compute all rows once without writing them, if only that reveals invalid ones; JobFailed says what is wrong."""
    strict = any(name.lower() == "mode" and value.upper() == "FAILFAST" for name, value in recipe["options"].items())
    if strict or recipe["format"] == "csv" or recipe["schema"] is not None:
        try:
            rows.write.format("noop").mode("overwrite").save()
        except (Py4JJavaError, PySparkException) as problem:
            raise unreadable(problem) from problem


def unreadable(problem: Exception) -> JobFailed:
    """Spark's error about files that it cannot read, as one sentence."""
    messages = [next(line for line in str(problem).splitlines() if line.strip())]
    if isinstance(problem, Py4JJavaError):
        messages, cause = [], problem.java_exception
        while cause is not None:
            messages.append(str(cause.getMessage()))
            cause = cause.getCause()
    # The first message names the file, the last one the problem.
    texts = dict.fromkeys(_CODES.sub("", text) for text in (messages[0], messages[-1]))
    what = textwrap.shorten(" ".join(texts), PROBLEM_CHARACTERS_MAX, placeholder="...").rstrip(".")
    return JobFailed(
        f"The files cannot be read: {what}; correct them, or change the options of the reader with --read."
    )


def read_rows(spark: SparkSession, files: Sequence[File], recipe: dict[str, Any]) -> DataFrame:
    """The rows of files: their columns, the origin of each row, and for JSON Lines the line itself."""
    try:
        return _read(spark, files, recipe)
    except Py4JJavaError as problem:
        raise unreadable(problem) from problem


def _read(spark: SparkSession, files: Sequence[File], recipe: dict[str, Any]) -> DataFrame:
    options = dict(recipe["options"])
    if recipe["base"] is not None:
        options["basePath"] = recipe["base"]
    # Unescaped, a file name with pattern characters could match another file, which would be read twice.
    paths = [_PATTERN.sub(r"\\\g<0>", file.path) for file in files]
    if recipe["format"] == "json":
        return _read_lines(spark, paths, options, recipe["schema"])
    reader = spark.read.format(recipe["format"]).options(**options)
    if recipe["schema"] is not None:
        reader = reader.schema(recipe["schema"])
    rows = reader.load(paths)
    return rows.select("*", *_place())


def _read_lines(spark: SparkSession, paths: list[str], options: dict[str, str], schema: str | None) -> DataFrame:
    """JSON Lines: their fields as columns, and the line itself, which becomes the message unchanged."""
    lines = spark.read.options(**options).format("text").load(paths).where("trim(value) != ''")
    folders = [name for name in lines.columns if name != "value"]
    known = schema or spark.read.options(**options).json(paths).drop(*folders).schema
    fields = F.from_json("value", known, options).alias("_fields")
    rows = lines.select(fields, F.col("value").alias(LINE), *folders, *_place())
    return rows.select(*(["_fields.*"] if known else []), LINE, *folders, *PLACE)


def _place() -> list[Any]:
    # Different tasks may read the blocks of a file, but one task reads the rows of a block, in order.
    return [
        F.col("_metadata.file_path").alias(PLACE[0]),
        F.col("_metadata.file_block_start").alias(PLACE[1]),
        F.monotonically_increasing_id().alias(PLACE[2]),
    ]


# -- The job -----------------------------------------------------------------------------------------------------------


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


@failing_job()
def prepare(config: LoadConfig) -> SinkOptions:
    """Make all checks that need no Spark, and write nothing; JobFailed if one fails."""
    options = _check(config)
    with Link(options.link) as link:
        check_ledger(Ledger(link, config.name), SinkLedger(link, config.name))
    return options


@failing_job()
def run(spark: SparkSession, config: LoadConfig) -> Report:
    """Load the files that are not loaded yet."""
    began = time.monotonic()
    options = _check(config)
    # Spark would resolve a relative path from the folder in which its JVM was started.
    paths = [path if "://" in path else str(Path(path).absolute()) for path in config.paths]
    listed = list_files(spark, paths)
    recipe = _recipe(config, _base(paths, listed))
    with Link(options.link) as link:
        ledger, writes = Ledger(link, config.name), SinkLedger(link, config.name)
        check_ledger(ledger, writes)
        counts, noted = _Counts(), writes.end()
        plan = partial(_plan, spark, recipe, options)
        while (work := _next_round(ledger, listed, recipe, plan)) is not None:
            counts.add(work, _load(plan(work.files), config, work.epoch))
            ledger.end(work.epoch)
        repeated = writes.repeated_since(noted)
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


@failing_job()
def _plan(spark: SparkSession, recipe: dict[str, Any], options: SinkOptions, files: Sequence[File]) -> DataFrame:
    """The rows of files in the form that the sink takes; JobFailed if an expression or a column does not fit."""
    try:
        rows = shape(read_rows(spark, files, recipe), recipe)
        find_columns(rows.schema, options._replace(order=_order(rows)))
    except (AnalysisException, ParseException) as problem:
        raise JobFailed(next(line for line in str(problem).splitlines() if line.strip())) from problem
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
