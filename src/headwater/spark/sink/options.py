"""The options of the sink, read once and checked against each other and the columns; safe to send to executors."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from headwater.protocol import content_types
from headwater.protocol.limits import APPEND_BYTES_MAX, MESSAGES_PER_APPEND_MAX, NUMBER_MAX, PRODUCER_ID_BYTES_MAX
from headwater.spark.link import LinkSettings
from headwater.spark.options.reading import parse_link
from headwater.spark.options.values import Given, OptionRefused

APPEND_BYTES = 1024 * 1024
APPEND_MESSAGES = 10_000
"""A chunk, unless told otherwise: large enough that appends cost little, small enough to be read in one go."""

SPARKS_OWN = ("checkpointLocation", "queryName")
"""What Spark puts among the options of a query."""
_FOR_STREAMS = ("producerId", "producerEpoch", "createStreams", "close", "maxAppendBytes", "maxAppendMessages")
_BUCKET = re.compile(r"[^/\0]+")


class SinkOptions(NamedTuple):
    """Everything that a writer of streams may be told."""

    link: LinkSettings
    target: Literal["streams", "snapshot"] = "streams"
    bucket: str | None = None
    stream: str | None = None
    producer_id: str | None = None
    producer_epoch: int | None = None
    create: bool = True
    content_type: str | None = None
    close: bool = False
    append_bytes: int = APPEND_BYTES
    append_messages: int = APPEND_MESSAGES
    order: tuple[str, ...] = ()


def parse_sink(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """All options of the sink; OptionRefused for those that make no sense, alone or together."""
    given = Given(options)
    found = SinkOptions(
        link=parse_link(given),
        target="snapshot" if given.choice("target", ("streams", "snapshot")) == "snapshot" else "streams",
        bucket=_bucket(given.text("bucket")),
        stream=given.text("stream"),
        producer_id=given.text("producerId"),
        producer_epoch=given.number("producerEpoch"),
        create=given.flag("createStreams") is not False,
        content_type=_content_type(given.text("contentType")),
        close=given.flag("close") or False,
        append_bytes=given.size_bytes("maxAppendBytes") or APPEND_BYTES,
        append_messages=given.number("maxAppendMessages", 1) or APPEND_MESSAGES,
        order=tuple(given.words("orderColumn") or ()),
    )
    query = given.text("queryName")
    for name in SPARKS_OWN:
        given.text(name)
    if given.text("path") is not None:
        raise OptionRefused("A write has no path: name the streams in a column or an option stream, and call save().")
    given.refuse_others()
    if found.target == "snapshot":
        for name in (*_FOR_STREAMS, "stream", "orderColumn"):
            if given.text(name) is not None:
                raise OptionRefused(f"The option {name} does nothing for target=snapshot; leave it out.")
        return found
    _check_sizes(found)
    return _named(found, query) if streaming else _numbered(found)


def _check_sizes(options: SinkOptions) -> None:
    if options.append_bytes > APPEND_BYTES_MAX:
        raise OptionRefused(f"The option maxAppendBytes is at most {APPEND_BYTES_MAX}, what a server takes at once.")
    if options.append_messages > MESSAGES_PER_APPEND_MAX:
        raise OptionRefused(
            f"The option maxAppendMessages is at most {MESSAGES_PER_APPEND_MAX}, what a server takes at once."
        )
    if options.producer_id is not None and len(options.producer_id.encode()) > PRODUCER_ID_BYTES_MAX:
        raise OptionRefused(f"The option producerId is at most {PRODUCER_ID_BYTES_MAX} bytes long.")


def _named(options: SinkOptions, query: str | None) -> SinkOptions:
    """A streaming query's producer is named after it: its id would be a new one when the checkpoint is lost."""
    if options.producer_epoch is not None:
        raise OptionRefused(
            "The option producerEpoch is for batch writes; of a streaming query the batch is the epoch."
        )
    producer_id = options.producer_id or query
    if producer_id is None:
        raise OptionRefused(
            "Give the query a name with queryName, or the option producerId: what it writes is known by that name "
            "when a batch is tried again."
        )
    return options._replace(producer_id=producer_id)


def _numbered(options: SinkOptions) -> SinkOptions:
    if (options.producer_id is None) != (options.producer_epoch is None):
        raise OptionRefused(
            "The options producerId and producerEpoch go together: the name of a job, and a number that is higher for "
            "each of its writes and the same when one is tried again."
        )
    if options.producer_epoch is not None and options.producer_epoch > NUMBER_MAX:
        raise OptionRefused(f"The option producerEpoch is at most {NUMBER_MAX}.")
    return options


def _bucket(text: str | None) -> str | None:
    if text is not None and not _BUCKET.fullmatch(text):
        raise OptionRefused(f"{text!r} is no bucket, which has no '/'; put the rest into the names of the streams.")
    return text


def _content_type(text: str | None) -> str | None:
    if text is not None and not content_types.is_valid(text):
        raise OptionRefused(f"The option contentType is like application/json or text/plain, not {text!r}.")
    return text
