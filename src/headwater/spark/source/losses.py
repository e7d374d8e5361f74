"""What to do when something that was to be read is gone: the words for it, and who decides."""

import logging

from headwater.spark.options.reading import SourceOptions

log = logging.getLogger(__name__)


class DataLost(Exception):
    """Something that was to be read is gone; the message is one sentence that says what, and what to do."""


def lose(options: SourceOptions, what: str) -> None:
    """Raise DataLost, or log it and go on, as failOnDataLoss says."""
    if options.fail_on_data_loss:
        raise DataLost(f"{what}; start anew, or go on without it by failOnDataLoss=false.")
    log.warning("%s; it is left out.", what)


def trimmed(stream: str, offset: int, start: int) -> DataLost:
    """The refusal to go on behind what was trimmed."""
    return DataLost(
        f"The stream {stream!r} was trimmed up to {start} and read up to {offset} only; "
        "start anew, or use onTrimmed=skip or onTrimmed=bootstrap."
    )
