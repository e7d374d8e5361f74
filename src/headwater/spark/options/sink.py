"""The options of the sink, parsed once and checked together; small, and safe to send to executors."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

from headwater.protocol import content_types
from headwater.protocol.limits import APPEND_BYTES_MAX, MESSAGES_PER_APPEND_MAX, NUMBER_MAX, PRODUCER_ID_BYTES_MAX
from headwater.spark.link import LinkSettings, parse_link
from headwater.spark.options.values import OptionRefused, OptionValues

APPEND_BYTES = 1024 * 1024
APPEND_MESSAGES = 10_000
"""The default size of an append: large enough to cost little per message, small enough to be read in one response."""

SPARKS_OWN = ("checkpointLocation", "queryName")
"""Options that Spark itself adds to those of a query."""
_FOR_STREAMS = (
    "producerId",
    "producerEpoch",
    "createStreams",
    "close",
    "maxAppendBytes",
    "maxAppendMessages",
    "stream",
    "orderColumn",
)
"""Options that have no meaning for snapshots."""
_BUCKET = re.compile(r"[^/\0]+")

Target = Literal["streams", "snapshot"]


class SinkOptions(NamedTuple):
    """All options for writing streams."""

    link: LinkSettings
    target: Target = "streams"
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
    """All options of the sink; OptionRefused for any that is invalid, alone or combined with others."""
    values = OptionValues(options)
    parsed = SinkOptions(
        link=parse_link(values),
        target=values.choice("target", get_args(Target)) or "streams",
        bucket=_bucket(values.text("bucket")),
        stream=values.text("stream"),
        producer_id=values.text("producerId"),
        producer_epoch=values.number("producerEpoch"),
        create=values.flag("createStreams") is not False,
        content_type=_content_type(values.text("contentType")),
        close=values.flag("close") or False,
        append_bytes=values.size_bytes("maxAppendBytes") or APPEND_BYTES,
        append_messages=values.number("maxAppendMessages", 1) or APPEND_MESSAGES,
        order=tuple(values.words("orderColumn") or ()),
    )
    query_name = values.text("queryName")
    for name in SPARKS_OWN:
        values.text(name)
    if values.text("path") is not None:
        raise OptionRefused(
            "A write has no path; name the streams in a column or in the option stream, and call save() without one."
        )
    values.refuse_unknown()
    if parsed.target == "snapshot":
        for name in _FOR_STREAMS:
            if values.text(name) is not None:
                raise OptionRefused(f"The option {name} has no effect with target=snapshot; leave it out.")
        return parsed
    _check_limits(parsed)
    return _streaming_producer(parsed, query_name) if streaming else _batch_producer(parsed)


def _check_limits(options: SinkOptions) -> None:
    for name, value, most in (
        ("maxAppendBytes", options.append_bytes, APPEND_BYTES_MAX),
        ("maxAppendMessages", options.append_messages, MESSAGES_PER_APPEND_MAX),
    ):
        if value > most:
            raise OptionRefused(f"The option {name} must be at most {most}, the server's limit for one append.")
    if options.producer_id is not None and len(options.producer_id.encode()) > PRODUCER_ID_BYTES_MAX:
        raise OptionRefused(f"The option producerId must be at most {PRODUCER_ID_BYTES_MAX} bytes long.")


def _streaming_producer(options: SinkOptions, query_name: str | None) -> SinkOptions:
    """Name the producer after the query; Spark's own query id would change if the checkpoint were lost."""
    if options.producer_epoch is not None:
        raise OptionRefused(
            "The option producerEpoch is for batch writes only; a streaming query uses the batch number as its epoch."
        )
    producer_id = options.producer_id or query_name
    if producer_id is None:
        raise OptionRefused(
            "Name the query with queryName, or give the option producerId; the server recognizes a retried batch by "
            "that name."
        )
    return options._replace(producer_id=producer_id)


def _batch_producer(options: SinkOptions) -> SinkOptions:
    if (options.producer_id is None) != (options.producer_epoch is None):
        raise OptionRefused(
            "The options producerId and producerEpoch go together: give the name of the job, and a number that rises "
            "with each of its writes and stays the same when a write is retried."
        )
    if options.producer_epoch is not None and options.producer_epoch > NUMBER_MAX:
        raise OptionRefused(f"The option producerEpoch must be at most {NUMBER_MAX}.")
    return options


def _bucket(text: str | None) -> str | None:
    if text is not None and not _BUCKET.fullmatch(text):
        raise OptionRefused(
            f"{text!r} is not a valid bucket name, because it contains '/'; move the rest into the stream names."
        )
    return text


def _content_type(text: str | None) -> str | None:
    if text is not None and not content_types.is_valid(text):
        raise OptionRefused(
            f"The option contentType must be a content type such as application/json or text/plain, not {text!r}."
        )
    return text
