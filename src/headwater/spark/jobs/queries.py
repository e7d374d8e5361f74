"""Streaming queries of jobs, from the start to the end."""

import threading
from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery

from headwater.protocol.limits import MIB

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
