"""The report of a job, its streaming queries, and the options and paths that a person gives to it."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

from headwater.protocol.limits import MIB
from headwater.spark.failures import LinkFailed, LinkRefused
from headwater.spark.options.sink import SinkOptions, parse_sink
from headwater.spark.options.values import OptionRefused
from headwater.spark.sink.delivery import WriteFailed
from headwater.storage.opening import open_table_store
from headwater.storage.store import TableStore

Fact = str | int | float | bool | None


class JobFailed(Exception):
    """The job cannot or must not continue; the message is one sentence for a person."""


@contextmanager
def failing_job() -> Iterator[None]:
    """Raise a refused option, a failed request and a failed write as JobFailed; also a decorator."""
    try:
        yield
    except (OptionRefused, LinkFailed, LinkRefused, WriteFailed) as failure:
        raise JobFailed(str(failure)) from failure


@dataclass(frozen=True, slots=True)
class Report:
    """What a job did, in numbers, and the problems that it found."""

    job: str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


# -- Options of the sink -----------------------------------------------------------------------------------------------


OWN_OPTIONS = frozenset(
    ("bucket", "close", "contenttype", "ordercolumn", "producerepoch", "producerid", "stream", "target", "url")
)
"""Options of the sink, in lower case, that jobs set themselves."""


@failing_job()
def check_sink_options(given: Mapping[str, str], options: Mapping[str, str], *, streaming: bool = False) -> SinkOptions:
    """The options of the sink, parsed; JobFailed if one is invalid, or if the user has given one of the job's own."""
    for name in given:
        if name.lower() in OWN_OPTIONS:
            raise JobFailed(f"The job sets the sink option {name} itself; remove it.")
    return parse_sink(options, streaming=streaming)


# -- Paths -------------------------------------------------------------------------------------------------------------


def open_location(url: str) -> TableStore:
    """The store for the files of a table; JobFailed for a URL that names none."""
    try:
        return open_table_store(url)
    except ValueError as error:
        raise JobFailed(str(error)) from error


def spark_path(path: str) -> str:
    """A path or URL for Spark, which would resolve a relative path from the folder in which its JVM was started.

    >>> spark_path("s3://bucket/x"), spark_path("/data/x")
    ('s3://bucket/x', 'file:///data/x')
    """
    return path if "://" in path else Path(path).absolute().as_uri()


# -- Streaming queries -------------------------------------------------------------------------------------------------


BATCH_BYTES = 256 * MIB
"""Approximate payload of a batch: the most work that is lost if the job is killed."""
POLL_SECONDS = 1
"""How often a wait returns to Python, so that progress is recorded and Ctrl-C is noticed."""


def start_at_earliest(options: dict[str, str]) -> dict[str, str]:
    """Options of the source that begin at the earliest offset, unless they begin at a time.

    >>> start_at_earliest({"bucket": "b"}), start_at_earliest({"startingtimestamp": "2025-11-16"})
    ({'startingOffsets': 'earliest', 'bucket': 'b'}, {'startingtimestamp': '2025-11-16'})
    """
    if "startingtimestamp" in map(str.lower, options):
        return options
    return {"startingOffsets": "earliest", **options}


def stop_between_batches(query: StreamingQuery, stop: threading.Event) -> None:
    """Stop a query if the event is set, unless a batch is in progress."""
    if stop.is_set() and query.isActive and not query.status["isTriggerActive"]:
        query.stop()


def finish(query: StreamingQuery, record: Callable[[], None] = lambda: None) -> None:
    """Wait until the query has ended, and call `record` now and then and at the end."""
    try:
        while not query.awaitTermination(POLL_SECONDS):
            record()
    finally:
        if query.isActive:
            query.stop()
    record()
