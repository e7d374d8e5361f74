"""What happens when data that a read needs no longer exists: fail, or continue without it."""

import logging

from headwater.spark.options.source import SourceOptions

log = logging.getLogger(__name__)


class DataLost(Exception):
    """Data that a read needs no longer exists; the message is one sentence that says what, and what to do."""


def report_loss(options: SourceOptions, what: str) -> None:
    """Raise DataLost, or log a warning and continue, depending on failOnDataLoss."""
    if options.fail_on_data_loss:
        raise DataLost(f"{what}; set failOnDataLoss=false to continue without it, or start a new query.")
    log.warning("%s; the read continues without it.", what)


def trimmed(stream: str, offset: int, start: int) -> DataLost:
    """The error for a stream that was trimmed beyond the point that was read."""
    return DataLost(
        f"The stream {stream!r} was trimmed up to offset {start}, but was read only up to {offset}; "
        "set onTrimmed=skip or onTrimmed=bootstrap, or start a new query."
    )
