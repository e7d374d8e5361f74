"""Records: the batches in the messages of the log, which a newer version may have written."""

from headwater.log.jetstream.judging import Record
from headwater.log.jetstream.streams import LogRefused
from headwater.streams import batches
from headwater.streams.batches import Batch


def batch_of(record: Record) -> Batch:
    """The batch in a record; LogRefused if it has a command that this version does not know."""
    try:
        return batches.decode(record.data, record.first_position)
    except ValueError as error:
        raise LogRefused(
            f"The log has a command at position {record.first_position} that this version does not know"
            f" ({str(error).replace('`', '')}); install the version of Headwater that the other nodes have."
        ) from error
