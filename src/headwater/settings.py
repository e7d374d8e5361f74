"""The one Settings: defaults, then a TOML file, then the environment, then flags; frozen once read."""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

ENVIRONMENT_PREFIX = "HEADWATER_"

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class SettingsError(Exception):
    """A setting has no sensible value; the message is one sentence for a person."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything an operator may choose; each field is also a flag and an environment variable."""

    host: str = "127.0.0.1"
    port: Port = 4437
    data: str = "data"
    memory: bool = False
    lake: str = ""
    retention: Literal["snapshot", "explicit"] = "snapshot"
    private: bool = False
    attachments: bool = False
    cors_origins: str = "*"
    cors_expose: str = ""
    log_format: Literal["human", "json"] = "human"
    access_log: bool = False
    long_poll_seconds: Seconds = 20.0
    sse_seconds: Seconds = 60.0
    heartbeat_seconds: Seconds = 15.0
    page_bytes: Count = 1024 * 1024
    segment_bytes: Annotated[int, msgspec.Meta(ge=64 * 1024)] = 64 * 1024 * 1024
    image_log_bytes: Count = 64 * 1024 * 1024
    hot_bytes_max: Count = 512 * 1024 * 1024
    flush_seconds: Seconds = 300.0
    flush_bytes_min: Annotated[int, msgspec.Meta(ge=0)] = 64 * 1024
    flush_bytes_max: Count = 64 * 1024 * 1024
    flush_journal_bytes: Count = 256 * 1024 * 1024
    flush_segment_bytes: Count = 32 * 1024 * 1024
    flush_concurrency: Annotated[int, msgspec.Meta(ge=1, le=16)] = 2
    flush_at_stop: bool = False
    lake_grace_seconds: Seconds = 900.0
    connections_max: Count = 20_000
    header_seconds: Seconds = 10.0
    body_seconds: Seconds = 30.0
    idle_seconds: Seconds = 75.0
    slow_reader_seconds: Seconds = 30.0
    drain_seconds: Seconds = 10.0

    @property
    def data_directory(self) -> Path:
        return Path(self.data)


HELP: dict[str, str] = {
    "host": "Address to listen on.",
    "port": "Port to listen on; 0 takes a free one.",
    "data": "Directory for the journal and its images.",
    "memory": "Keep nothing on disk.",
    "lake": "Where history goes: a folder or s3://bucket/prefix; the folder lake in the data directory if empty.",
    "retention": "When history goes: with each snapshot, or only on request (explicit).",
    "private": "Let only the client's own cache keep responses, not shared ones.",
    "attachments": "Have browsers save byte streams instead of showing them.",
    "cors_origins": "Which sites' pages may read responses: * for all, or origins joined by commas.",
    "cors_expose": "Headers that pages may see beside our own, joined by commas.",
    "log_format": "How the log is written to standard error: human or json.",
    "access_log": "Log every request.",
    "long_poll_seconds": "How long a long-poll waits.",
    "sse_seconds": "How long an SSE connection lasts before the client is asked to come again.",
    "heartbeat_seconds": "How often an idle SSE connection gets a comment.",
    "page_bytes": "How much one catch-up response holds, at least one message.",
    "segment_bytes": "Size of a journal segment file.",
    "image_log_bytes": "How much log is written before a new image is taken.",
    "hot_bytes_max": "How many bytes of streams may be in memory before appends must wait for the lake.",
    "flush_seconds": "How long an append stays in memory before age alone sends it to the lake.",
    "flush_bytes_min": "How much must be in memory for age to count.",
    "flush_bytes_max": "How much in memory is sent to the lake at once.",
    "flush_journal_bytes": "How much journal since the last flush makes one due.",
    "flush_segment_bytes": "How many bytes of messages go into one object of the lake, about.",
    "flush_concurrency": "How many objects are made and uploaded at a time.",
    "flush_at_stop": "Send everything to the lake before the server ends.",
    "lake_grace_seconds": "How long an object of the lake is kept after it was replaced.",
    "connections_max": "How many connections may be open.",
    "header_seconds": "How long a client may take to send a request's headers.",
    "body_seconds": "How long a client may pause within a request's body.",
    "idle_seconds": "How long a connection may stay open without a request.",
    "slow_reader_seconds": "How long a reader may leave a full socket unread before it is dropped.",
    "drain_seconds": "How long running requests may take to finish at shutdown.",
}


def load(flags: Mapping[str, Any], config: Path | None = None, environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings in force; a flag that is None was not given."""
    values: dict[str, Any] = {}
    if config is not None:
        try:
            values |= tomllib.loads(config.read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SettingsError(f"The settings file {config} cannot be read: {error}.") from error
    for name in Settings.__struct_fields__:
        if (text := environment.get(ENVIRONMENT_PREFIX + name.upper())) is not None:
            values[name] = text
    values |= {name: value for name, value in flags.items() if value is not None}
    try:
        settings = msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"A setting is wrong: {_named(str(error))}.") from error
    if settings.memory and "data" in values:
        raise SettingsError("A data directory and --memory exclude each other; choose one.")
    if settings.memory and settings.lake:
        raise SettingsError("A lake and --memory exclude each other: a server that keeps nothing has no history.")
    return settings


def _named(problem: str) -> str:
    """Say where a setting may have come from.

    >>> _named("Expected `int`, got `str` - at `$.port`")
    'Expected `int`, got `str` - for port (--port, HEADWATER_PORT)'
    """
    return re.sub(
        r"at `\$\.(\w+)`",
        lambda match: f"for {match[1]} (--{match[1].replace('_', '-')}, {ENVIRONMENT_PREFIX}{match[1].upper()})",
        problem,
    )
