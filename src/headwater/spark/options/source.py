"""The options of the source, parsed once and checked together; small, and safe to send to executors."""

import json
import logging
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

from headwater.lake.format import SCHEMA
from headwater.protocol import offsets
from headwater.protocol.limits import SILENCE_SECONDS_MAX, SILENCE_SECONDS_MIN
from headwater.protocol.names import DEFAULT_BUCKET, LEDGER_BUCKET
from headwater.spark.link import LinkSettings, parse_link
from headwater.spark.options.values import OptionRefused, OptionValues, or_default
from headwater.spark.positions import SHARD

# -- Where a read starts and ends: a word, offsets of streams, or a position in the log --------------------------------


Edge = Literal["earliest", "latest"]
EDGES: dict[str, Edge] = {"earliest": "earliest", "-1": "earliest", "latest": "latest", "now": "latest"}


class LogPosition(NamedTuple):
    """A position in the log; it covers all streams."""

    position: int


class StreamOffsets(NamedTuple):
    """An offset, or an edge, for each of some streams, keyed by full name."""

    streams: dict[str, int | Edge]


Boundary = Edge | LogPosition | StreamOffsets


def parse_boundary(values: OptionValues, option: str, bucket: str | None) -> Boundary | None:
    """The boundary that an option names, or None if it is absent. Stream names are full, or relative to `bucket`."""
    text = values.text(option)
    if text is None:
        return None
    edge = EDGES.get(text.strip().lower())
    if edge is not None:
        return edge
    forms = f'earliest, latest, {{"stream": offset}} or {{"shards": {{"{SHARD}": position}}}}'
    malformed = OptionRefused(f"The option {option} must be {forms}, not {text!r}.")
    try:
        parsed = json.loads(text)
    except ValueError:
        raise malformed from None
    if not isinstance(parsed, dict) or not parsed:
        raise malformed
    shards = parsed.get("shards")
    if isinstance(shards, dict):
        if set(shards) != {SHARD} or not _is_offset(shards[SHARD]):
            raise OptionRefused(f"The option {option} must give a position for shard {SHARD}, which is the only shard.")
        return LogPosition(shards[SHARD])
    streams: dict[str, int | Edge] = {}
    for name, value in parsed.items():
        offset = _offset(value)
        if offset is None:
            raise malformed
        streams[full_name(name, bucket)] = offset
    return StreamOffsets(streams)


def _offset(value: object) -> int | Edge | None:
    if isinstance(value, str):
        # Either the server's printed form or a plain number.
        number = offsets.parse(value) if "_" in value else int(value) if value.isascii() and value.isdigit() else None
        return EDGES.get(value.lower()) or (number if _is_offset(number) else None)
    if _is_offset(value):
        assert isinstance(value, int)
        return value
    return "earliest" if value == -1 else None


def _is_offset(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def full_name(name: str, bucket: str | None) -> str:
    """The full name of a stream: in `bucket` if one is given, otherwise as it is, or in the default bucket.

    >>> full_name("notes", "team"), full_name("team/notes", None), full_name("notes", None)
    ('team/notes', 'team/notes', '_default/notes')
    """
    if bucket is not None:
        return f"{bucket}/{name}"
    return name if "/" in name else f"{DEFAULT_BUCKET}/{name}"


# -- All options -------------------------------------------------------------------------------------------------------


MIB = 1024 * 1024
PARTITION_BYTES = 128 * MIB
"""What one task reads by default, as with Spark's own files: about a second of work. A task in Python has an overhead
of 0.1 s, which was a third of the work of 32 MiB."""
FLUSH_INTERVAL_SECONDS = 10.0
RENAMED = {"readerName": "consumerName", "readerSilence": "consumerSilence"}
"""Earlier names of options, still accepted."""
_CONSUMER_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")

Via = Literal["auto", "lake", "live"]
OnTrimmed = Literal["fail", "skip", "bootstrap"]
ValueType = Literal["string", "variant"]


_LEDGERS = f"{LEDGER_BUCKET}/"


class Selection(NamedTuple):
    """The streams to read: those whose full names meet every condition.

    Ledgers of the sink are selected only by their names, or by a prefix that begins with their bucket.
    """

    prefix: str = ""
    names: frozenset[str] | None = None
    pattern: str | None = None
    """A regular expression for the whole name after its first `pattern_from` characters."""
    pattern_from: int = 0

    def has(self, name: str) -> bool:
        """Whether a stream is selected."""
        if self.names is not None:
            if name not in self.names:
                return False
        elif name.startswith(_LEDGERS) and not self.prefix.startswith(_LEDGERS):
            return False
        return name.startswith(self.prefix) and (
            self.pattern is None or re.fullmatch(self.pattern, name[self.pattern_from :]) is not None
        )

    def checks_names(self, first: str, last: str) -> bool:
        """Whether a name between two others may not be selected, although it has the prefix or is in the list."""
        if self.pattern is not None:
            return True
        may_have_ledgers = last >= _LEDGERS and (first <= _LEDGERS or first.startswith(_LEDGERS))
        return self.names is None and may_have_ledgers and _LEDGERS.startswith(self.prefix)


class SourceOptions(NamedTuple):
    """All options for reading streams."""

    link: LinkSettings
    selection: Selection
    via: Via = "auto"
    lake: str | None = None
    starting: Boundary | None = None
    ending: Boundary | None = None
    since: int | None = None
    until: int | None = None
    """Microseconds since 1970; `since` is inclusive, `until` exclusive."""
    trigger_bytes_max: int | None = None
    trigger_records_max: int | None = None
    partitions_min: int = 1
    partition_bytes: int = PARTITION_BYTES
    fail_on_data_loss: bool = True
    on_trimmed: OnTrimmed = "fail"
    columns: tuple[str, ...] | None = None
    value: ValueType | None = None
    pushdown: bool = False
    flush_interval_seconds: float = FLUSH_INTERVAL_SECONDS
    consumer_name: str | None = None
    consumer_silence_seconds: int | None = None
    """How long the query may be silent before the lake keeps nothing more for it; None for the server's default."""

    @property
    def bootstraps(self) -> bool:
        """Whether a snapshot replaces what was trimmed."""
        return self.on_trimmed == "bootstrap"

    def check_batch(self) -> None:
        """Raise OptionRefused for options that only streaming reads have."""
        if self.starting == "latest":
            raise OptionRefused("A batch that starts at the latest offset has no rows; leave startingOffsets out.")
        for name, value in (
            ("maxBytesPerTrigger", self.trigger_bytes_max),
            ("maxRecordsPerTrigger", self.trigger_records_max),
            ("consumerName", self.consumer_name),
            ("consumerSilence", self.consumer_silence_seconds),
        ):
            if value is not None:
                raise OptionRefused(f"The option {name} is for readStream only; leave it out of a batch read.")

    def check_stream(self) -> None:
        """Raise OptionRefused for options that only batch reads have."""
        if self.ending is not None:
            raise OptionRefused("The option endingOffsets is for batch reads only; a streaming read has no end.")
        if self.pushdown:
            raise OptionRefused(
                "The option pushdown is for batch reads only; Spark pushes no filters into a streaming read."
            )


def parse_source(options: Mapping[str, str]) -> SourceOptions:
    """All options of the source; OptionRefused for any that is invalid, alone or combined with others."""
    values = OptionValues(options, RENAMED)
    fail_on_data_loss = values.flag("failOnDataLoss") is not False
    bucket = values.text("bucket")
    parsed = SourceOptions(
        link=parse_link(values),
        selection=_selection(values, bucket),
        via=values.choice("via", get_args(Via)) or "auto",
        lake=values.text("lake"),
        starting=parse_boundary(values, "startingOffsets", bucket),
        ending=parse_boundary(values, "endingOffsets", bucket),
        since=values.time_us("startingTimestamp"),
        until=values.time_us("endingTimestamp"),
        trigger_bytes_max=values.size_bytes("maxBytesPerTrigger"),
        trigger_records_max=values.number("maxRecordsPerTrigger", 1),
        partitions_min=values.number("minPartitions", 1) or 1,
        partition_bytes=values.size_bytes("maxBytesPerPartition") or PARTITION_BYTES,
        fail_on_data_loss=fail_on_data_loss,
        on_trimmed=values.choice("onTrimmed", get_args(OnTrimmed)) or ("fail" if fail_on_data_loss else "skip"),
        columns=_columns(values.words("columns")),
        value=values.choice("value", get_args(ValueType)),
        pushdown=values.flag("pushdown") or False,
        flush_interval_seconds=or_default(values.duration_seconds("flushInterval"), FLUSH_INTERVAL_SECONDS),
        consumer_name=_consumer_name(values.text("consumerName")),
        consumer_silence_seconds=_consumer_silence_seconds(values.duration_seconds("consumerSilence")),
    )
    values.refuse_unknown()
    _refuse_contradictions(parsed)
    return parsed


# -- Single options ----------------------------------------------------------------------------------------------------


def _selection(values: OptionValues, bucket: str | None) -> Selection:
    prefix, pattern = values.text("prefix"), values.text("streamsPattern")
    streams = _names(values.text("streams"), bucket)
    chosen = [name for name, value in (("prefix", prefix), ("streamsPattern", pattern), ("streams", streams)) if value]
    if len(chosen) > 1:
        raise OptionRefused(f"The options {' and '.join(chosen)} exclude each other; choose one.")
    if not chosen and bucket is None:
        raise OptionRefused("Say which streams: give one of the options bucket, prefix, streams or streamsPattern.")
    if bucket is not None and "/" in bucket:
        raise OptionRefused(
            f"{bucket!r} is not a valid bucket name, because it contains '/'; use the option prefix to select streams "
            "by the beginning of their names."
        )
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as problem:
            raise OptionRefused(f"The option streamsPattern is not a valid regular expression: {problem}.") from None
    inside = "" if bucket is None else f"{bucket}/"
    return Selection(inside + (prefix or ""), streams, pattern, len(inside))


def _names(text: str | None, bucket: str | None) -> frozenset[str] | None:
    """Names from a comma-separated list, or from a JSON list for names that contain commas."""
    if text is None:
        return None
    names: Any = [name.strip() for name in text.split(",")]
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            raise OptionRefused("The option streams begins with '[' but is not a JSON list of names.") from None
    if not all(isinstance(name, str) and name for name in names):
        raise OptionRefused(f"The option streams must be names separated by commas or a JSON list, not {text!r}.")
    return frozenset(full_name(name, bucket) for name in names)


def _columns(words: list[str] | None) -> tuple[str, ...] | None:
    if words is None:
        return None
    known = (*SCHEMA.names, "value", "kind")
    for word in words:
        if word not in known:
            raise OptionRefused(f"There is no column {word!r}; the columns are {', '.join(known)}.")
    if len(set(words)) < len(words) or not words:
        raise OptionRefused("The option columns must name at least one column, and each column only once.")
    return tuple(words)


def _consumer_name(text: str | None) -> str | None:
    if text is not None and (not _CONSUMER_NAME.fullmatch(text) or text in (".", "..")):
        raise OptionRefused(
            "The option consumerName must be 1 to 128 letters, digits, '_', '.' and '-', and not only one or two dots; "
            f"it is {text!r}."
        )
    return text


def _consumer_silence_seconds(seconds: float | None) -> int | None:
    if seconds is None:
        return None
    if not SILENCE_SECONDS_MIN <= seconds <= SILENCE_SECONDS_MAX:
        raise OptionRefused(
            f"The option consumerSilence must be from {SILENCE_SECONDS_MIN}s to {SILENCE_SECONDS_MAX // 86_400}d, "
            f"not {seconds:.12g} seconds."
        )
    return round(seconds)


# -- Options together --------------------------------------------------------------------------------------------------


def _refuse_contradictions(options: SourceOptions) -> None:
    columns = options.columns or ()
    boundaries = [boundary for boundary in (options.starting, options.ending) if boundary is not None]
    by_stream = any(isinstance(boundary, StreamOffsets) for boundary in boundaries)
    by_position = any(isinstance(boundary, LogPosition) for boundary in boundaries)
    since, until = options.since, options.until
    contradictions = (
        (
            "value" in columns and options.value is None,
            "The column value needs the option value=string or value=variant.",
        ),
        (
            "kind" in columns and not options.bootstraps,
            "The column kind needs the option onTrimmed=bootstrap.",
        ),
        (
            options.starting is not None and since is not None,
            "The options startingOffsets and startingTimestamp exclude each other; choose one.",
        ),
        (
            options.ending is not None and until is not None,
            "The options endingOffsets and endingTimestamp exclude each other; choose one.",
        ),
        (
            since is not None and until is not None and since >= until,
            "The option startingTimestamp must be before endingTimestamp.",
        ),
        (
            options.ending == "earliest",
            "A batch that ends at the earliest offset has no rows; leave endingOffsets out.",
        ),
        (
            by_stream and by_position,
            "Offsets of streams and positions of shards cannot be mixed; choose one.",
        ),
        (
            by_stream and options.via == "lake",
            "Offsets of streams need via=live; to read the lake, give positions of shards or timestamps.",
        ),
        (
            by_position and options.via == "live",
            "Positions of shards need via=lake; to read live, give offsets of streams or timestamps.",
        ),
        (
            options.bootstraps and (options.via == "lake" or by_position),
            "The lake has no snapshots, so onTrimmed=bootstrap needs via=live.",
        ),
        (
            options.lake is not None and options.via == "live",
            "The options lake and via=live exclude each other; choose one.",
        ),
    )
    for is_contradiction, sentence in contradictions:
        if is_contradiction:
            raise OptionRefused(sentence)
    for boundary in boundaries:
        for name in boundary.streams if isinstance(boundary, StreamOffsets) else ():
            if not options.selection.has(name):
                raise OptionRefused(f"An offset is given for the stream {name!r}, which is not among those selected.")


# -- Lost data ---------------------------------------------------------------------------------------------------------


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
