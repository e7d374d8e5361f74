"""The options of the source, read once and checked together; small, and safe to send to executors."""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from headwater.lake.format import SCHEMA
from headwater.spark.link import LinkSettings
from headwater.spark.options.places import Offsets, Place, Positions, parse_place, whole_name
from headwater.spark.options.values import Given, OptionRefused

MIB = 1024 * 1024
PARTITION_BYTES = 32 * MIB
"""What one task reads, about, unless told otherwise: under a second of work, and far above what a task costs."""
FLUSH_INTERVAL_SECONDS = 10.0
_DEFAULTS = LinkSettings("")
_READER = re.compile(r"[A-Za-z0-9_.-]{1,128}")

Via = Literal["auto", "lake", "live"]
OnTrimmed = Literal["fail", "skip", "bootstrap"]


class Selection(NamedTuple):
    """Which streams are asked for: those whose whole names meet every condition."""

    prefix: str = ""
    names: frozenset[str] | None = None
    pattern: str | None = None
    """A regular expression for all of a name behind its first `pattern_from` characters."""
    pattern_from: int = 0

    def has(self, name: str) -> bool:
        """Whether a stream is asked for."""
        if self.names is not None and name not in self.names:
            return False
        return name.startswith(self.prefix) and (
            self.pattern is None or re.fullmatch(self.pattern, name[self.pattern_from :]) is not None
        )


class SourceOptions(NamedTuple):
    """Everything that a reader of streams may be told."""

    link: LinkSettings
    selection: Selection
    via: Via = "auto"
    lake: str | None = None
    starting: Place | None = None
    ending: Place | None = None
    since: int | None = None
    until: int | None = None
    """Microseconds since 1970: not before the one, before the other."""
    trigger_bytes_max: int | None = None
    trigger_records_max: int | None = None
    partitions_min: int = 1
    partition_bytes: int = PARTITION_BYTES
    fail_on_data_loss: bool = True
    on_trimmed: OnTrimmed = "fail"
    columns: tuple[str, ...] | None = None
    value: Literal["string", "variant"] | None = None
    pushdown: bool = False
    flush_interval_seconds: float = FLUSH_INTERVAL_SECONDS
    reader_name: str | None = None

    @property
    def bootstraps(self) -> bool:
        """Whether snapshots stand in for what was trimmed."""
        return self.on_trimmed == "bootstrap"

    def check_batch(self) -> None:
        """Raise OptionRefused for what only a stream can have."""
        if self.starting == "latest":
            raise OptionRefused("A batch that starts at the latest offset has no rows; leave startingOffsets out.")
        for name, value in (
            ("maxBytesPerTrigger", self.trigger_bytes_max),
            ("maxRecordsPerTrigger", self.trigger_records_max),
            ("readerName", self.reader_name),
        ):
            if value is not None:
                raise OptionRefused(f"The option {name} is for readStream; a batch has no triggers and no name.")

    def check_stream(self) -> None:
        """Raise OptionRefused for what only a batch can have."""
        if self.ending is not None:
            raise OptionRefused("The option endingOffsets is for batches; a stream has no end.")
        if self.pushdown:
            raise OptionRefused("The option pushdown is for batches: Spark pushes no filters into a stream.")


def parse_source(options: Mapping[str, str]) -> SourceOptions:
    """All options of the source; OptionRefused for those that make no sense, alone or together."""
    given = Given(options)
    fail_on_data_loss = given.flag("failOnDataLoss") is not False
    bucket = given.text("bucket")
    parsed = SourceOptions(
        link=parse_link(given),
        selection=_selection(given, bucket),
        via=_or(given.choice("via", ("auto", "lake", "live")), "auto"),
        lake=given.text("lake"),
        starting=parse_place(given, "startingOffsets", bucket),
        ending=parse_place(given, "endingOffsets", bucket),
        since=given.time_us("startingTimestamp"),
        until=given.time_us("endingTimestamp"),
        trigger_bytes_max=given.size_bytes("maxBytesPerTrigger"),
        trigger_records_max=given.number("maxRecordsPerTrigger", 1),
        partitions_min=given.number("minPartitions", 1) or 1,
        partition_bytes=given.size_bytes("maxBytesPerPartition") or PARTITION_BYTES,
        fail_on_data_loss=fail_on_data_loss,
        on_trimmed=_or(
            given.choice("onTrimmed", ("fail", "skip", "bootstrap")), "fail" if fail_on_data_loss else "skip"
        ),
        columns=_columns(given.words("columns")),
        value=_or(given.choice("value", ("string", "variant")), None),
        pushdown=given.flag("pushdown") or False,
        flush_interval_seconds=_or(given.duration_seconds("flushInterval"), FLUSH_INTERVAL_SECONDS),
        reader_name=_reader_name(given.text("readerName")),
    )
    given.refuse_others()
    _check_together(parsed)
    return parsed


def parse_link(options: Mapping[str, str] | Given) -> LinkSettings:
    """How to reach the server: the options that the source and the sink share."""
    given = options if isinstance(options, Given) else Given(options)
    url = given.text("url")
    if url is None or not url.startswith(("http://", "https://")):
        raise OptionRefused(f"Give the option url as http://host:port or https://host:port, not {url!r}.")
    token, token_file = given.text("token"), given.text("tokenFile")
    if token is not None and token_file is not None:
        raise OptionRefused("The options token and tokenFile exclude each other; choose one.")
    cert, key = given.text("tls.cert"), given.text("tls.key")
    if key is not None and cert is None:
        raise OptionRefused("The option tls.key needs tls.cert, the certificate that it belongs to.")
    retry_ms, timeout_ms = given.number("retryIntervalMs"), given.number("requestTimeoutMs", 1)
    return LinkSettings(
        url=url.rstrip("/"),
        token=token,
        token_file=token_file,
        headers=tuple(sorted(given.below("header.").items())),
        tls_ca=given.text("tls.ca"),
        tls_cert=cert,
        tls_key=key,
        retries=_or(given.number("retries"), _DEFAULTS.retries),
        retry_interval_seconds=_DEFAULTS.retry_interval_seconds if retry_ms is None else retry_ms / 1000,
        timeout_seconds=_DEFAULTS.timeout_seconds if timeout_ms is None else timeout_ms / 1000,
    )


# -- Parts of it -------------------------------------------------------------------------------------------------------


def _selection(given: Given, bucket: str | None) -> Selection:
    prefix, pattern = given.text("prefix"), given.text("streamsPattern")
    streams = _names(given.text("streams"), bucket)
    chosen = [name for name, value in (("prefix", prefix), ("streamsPattern", pattern), ("streams", streams)) if value]
    if len(chosen) > 1:
        raise OptionRefused(f"The options {' and '.join(chosen)} exclude each other; choose one.")
    if not chosen and bucket is None:
        raise OptionRefused("Say which streams: give one of the options bucket, prefix, streams or streamsPattern.")
    if bucket is not None and "/" in bucket:
        raise OptionRefused(f"{bucket!r} is no bucket, which has no '/'; use prefix for the beginning of names.")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as problem:
            raise OptionRefused(f"The option streamsPattern is no regular expression: {problem}.") from None
    inside = "" if bucket is None else f"{bucket}/"
    return Selection(inside + (prefix or ""), streams, pattern, len(inside))


def _names(text: str | None, bucket: str | None) -> frozenset[str] | None:
    """Names joined by commas, or in a JSON list, since they may contain commas."""
    if text is None:
        return None
    names: Any = [name.strip() for name in text.split(",")]
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            raise OptionRefused("The option streams begins with '[' and is no JSON list of names.") from None
    if not all(isinstance(name, str) and name for name in names):
        raise OptionRefused(f"The option streams is names joined by commas, or a JSON list of names, not {text!r}.")
    return frozenset(whole_name(name, bucket) for name in names)


def _columns(words: list[str] | None) -> tuple[str, ...] | None:
    if words is None:
        return None
    known = (*SCHEMA.names, "value", "kind")
    for word in words:
        if word not in known:
            raise OptionRefused(f"There is no column {word!r}; there are {', '.join(known)}.")
    if len(set(words)) < len(words) or not words:
        raise OptionRefused("The option columns names each column once, and one at least.")
    return tuple(words)


def _reader_name(text: str | None) -> str | None:
    if text is not None and not _READER.fullmatch(text):
        raise OptionRefused(f"The option readerName is up to 128 letters, digits and _.-, not {text!r}.")
    return text


def _check_together(options: SourceOptions) -> None:
    """Raise OptionRefused for options that contradict each other."""
    columns = options.columns or ()
    if "value" in columns and options.value is None:
        raise OptionRefused("There is a column value only with the option value=string or value=variant.")
    if "kind" in columns and not options.bootstraps:
        raise OptionRefused("There is a column kind only with the option onTrimmed=bootstrap.")
    if options.starting is not None and options.since is not None:
        raise OptionRefused("The options startingOffsets and startingTimestamp exclude each other; choose one.")
    if options.ending is not None and options.until is not None:
        raise OptionRefused("The options endingOffsets and endingTimestamp exclude each other; choose one.")
    if options.since is not None and options.until is not None and options.since >= options.until:
        raise OptionRefused("The option startingTimestamp must be before endingTimestamp.")
    if options.ending == "earliest":
        raise OptionRefused("A batch that ends at the earliest offset has no rows; leave endingOffsets out.")
    places = [place for place in (options.starting, options.ending) if place is not None]
    for place in places:
        if isinstance(place, Offsets):
            for name in place.streams:
                if not options.selection.has(name):
                    raise OptionRefused(f"The stream {name!r} is given an offset and is not one of those asked for.")
    by_stream = any(isinstance(place, Offsets) for place in places)
    by_position = any(isinstance(place, Positions) for place in places)
    if by_stream and by_position:
        raise OptionRefused("Offsets of streams and positions of shards cannot be mixed; choose one.")
    if by_stream and options.via == "lake":
        raise OptionRefused("Offsets of streams are for via=live; on the lake name positions of shards, or times.")
    if by_position and options.via == "live":
        raise OptionRefused("Positions of shards are for via=lake; live streams have offsets, or use times.")
    if options.bootstraps and (options.via == "lake" or by_position):
        raise OptionRefused("The lake has no snapshots: onTrimmed=bootstrap goes with via=live.")
    if options.lake is not None and options.via == "live":
        raise OptionRefused("The options lake and via=live exclude each other; choose one.")


def _or(given: Any, otherwise: Any) -> Any:
    return otherwise if given is None else given
