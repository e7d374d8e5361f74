"""The server's settings: defaults, overridden by a TOML file, then by environment variables, then by flags.

Each setting is described once, at its field: type, limits, unit, choices, default and help. The flags of
`headwater serve`, the environment variables, the reference page and the limits of the lake all derive from it.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from headwater.units import (
    DURATION_EXAMPLES,
    SIZE_EXAMPLES,
    parse_duration,
    parse_size,
    render_duration,
    render_size,
)

ENVIRONMENT_PREFIX = "HEADWATER_"

CLIENT_VARIABLES = frozenset(
    {"HEADWATER_URL", "HEADWATER_TOKEN", "HEADWATER_TOKEN_FILE", "HEADWATER_CONTEXT", "HEADWATER_CONFIG"}
)
"""Variables of the command line that are not settings of the server."""
TEST_VARIABLES = frozenset(
    ENVIRONMENT_PREFIX + name
    for name in (
        "CLIENT_SEEDS",
        "CRASH_CYCLES",
        "CRASH_SEED",
        "EXAMPLES",
        "FUZZ_SECONDS",
        "FUZZ_SEED",
        "HOSTILE_ROUNDS",
        "POWER_SEED",
        "POWER_SEEDS",
        "SCREENSHOTS",
        "SPARK_KILLS",
        "SPARK_SEED",
        "TEST_POLLS",
    )
)
"""Variables of the test suite, which the servers that it starts inherit."""
OTHER_VARIABLES = CLIENT_VARIABLES | TEST_VARIABLES
_KUBERNETES = re.compile(r"HEADWATER_(.+_)?(SERVICE_(HOST|PORT|PORT_.+)|PORT_[0-9]+_(TCP|UDP|SCTP)(_.+)?)")
_KUBERNETES_PORT = re.compile(r"HEADWATER_(.+_)?PORT=(tcp|udp|sctp)://.*")
"""Variables that Kubernetes sets in every pod of a namespace with a service named `headwater` or `headwater-...`."""

_MOUNT = re.compile(r"(?!/ds(?:/|$))(?!/__)(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._~-]+)+")

KIB = 1024
MIB = 1024 * KIB


def about(help: str, **limits: Any) -> Meta:
    """Describe a setting, and add limits to those of its type."""
    return Meta(description=help, **limits)


Port = Annotated[int, Meta(ge=0, le=65535)]
Count = Annotated[int, Meta(ge=1)]
Bytes = Annotated[int, Meta(extra={"unit": "bytes"})]
Size = Annotated[Bytes, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, extra={"unit": "seconds"})]


class SettingsError(Exception):
    """A setting has no usable value; the message is one sentence for a person."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that an operator may choose."""

    host: Annotated[str, about("Address to listen on.")] = "127.0.0.1"
    port: Annotated[Port, about("Port to listen on; 0 picks a free one.")] = 4437
    data: Annotated[str, about("Directory of the journal and its images.")] = "data"
    memory: Annotated[bool, about("Keep everything in memory and nothing on disk.")] = False
    lake: Annotated[
        str,
        about("Where history is stored: a folder or s3://bucket/prefix. Empty: the folder lake in the data directory."),
    ] = ""
    retention: Annotated[
        Literal["snapshot", "explicit"],
        about("When history is trimmed: whenever a snapshot that covers it is published, or only on explicit request."),
    ] = "snapshot"
    private: Annotated[bool, about("Let only clients cache responses, not shared caches such as a CDN.")] = False
    attachments: Annotated[bool, about("Make browsers download byte streams instead of showing them.")] = False
    cors_origins: Annotated[
        str, about("Origins whose pages may read responses: * for all, or a comma-separated list.")
    ] = "*"
    cors_expose: Annotated[
        str, about("Comma-separated response headers that pages may read in addition to Headwater's own.")
    ] = ""
    mount: Annotated[
        str,
        Meta(extra={"repeatable": True}),
        about(
            "Further path where streams are found as below /v1/stream, such as /api/streams; join several by commas."
        ),
    ] = ""
    log_format: Annotated[
        Literal["human", "json"],
        about(
            "Format of the log on standard error. With json every line is a JSON object, the first and the last too."
        ),
    ] = "human"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], about("Least severe level that is logged.")] = (
        "info"
    )
    access_log: Annotated[bool, about("Log every request.")] = False
    long_poll_seconds: Annotated[Seconds, about("How long a long-poll waits for data.")] = 20.0
    sse_seconds: Annotated[Seconds, about("How long an SSE connection lasts before the client has to reconnect.")] = (
        60.0
    )
    heartbeat_seconds: Annotated[Seconds, about("How often an idle SSE connection gets a comment.")] = 15.0
    page_bytes: Annotated[
        Size, about("Maximum size of one catch-up response; a larger JSON message has a response of its own.")
    ] = MIB
    segment_bytes: Annotated[Bytes, about("Size of a journal file.", ge=64 * KIB)] = 64 * MIB
    image_log_bytes: Annotated[Size, about("How much is written to the journal between two images.")] = 64 * MIB
    hot_bytes_max: Annotated[Size, about("How much memory hot data may take before appends wait for the lake.")] = (
        512 * MIB
    )
    flush_seconds: Annotated[Seconds, about("Age at which data in memory is flushed to the lake.")] = 300.0
    flush_bytes_min: Annotated[Bytes, about("Minimum amount of data in memory for a flush because of age.", ge=0)] = (
        64 * KIB
    )
    flush_bytes_max: Annotated[Size, about("Amount of data in memory that starts a flush at once.")] = 64 * MIB
    flush_journal_bytes: Annotated[Size, about("Amount of journal since the last flush that starts the next one.")] = (
        256 * MIB
    )
    flush_segment_bytes: Annotated[Size, about("Approximate payload of one object in the lake.")] = 32 * MIB
    flush_concurrency: Annotated[Count, about("How many objects are built and uploaded at the same time.", le=16)] = 2
    flush_at_stop: Annotated[bool, about("Flush everything to the lake before the server stops.")] = False
    lake_grace_seconds: Annotated[
        Seconds, about("How long a replaced object stays in the lake, for readers that still use it.")
    ] = 900.0
    connections_max: Annotated[
        Count, about("Maximum number of open connections; beyond it only /healthz, /readyz and /metrics answer.")
    ] = 20_000
    receiving_bytes_max: Annotated[
        Bytes,
        about("How much memory request bodies may take together; those larger than 64KiB count.", ge=32 * MIB),
    ] = 256 * MIB
    sending_bytes_max: Annotated[
        Size, about("How much memory responses to clients that do not read may take before only short ones are sent.")
    ] = 256 * MIB
    header_seconds: Annotated[Seconds, about("How long a client may take to send the headers of a request.")] = 10.0
    body_seconds: Annotated[Seconds, about("How long a client may pause within the body of a request.")] = 30.0
    idle_seconds: Annotated[Seconds, about("How long a connection may stay open without a request.")] = 75.0
    slow_reader_seconds: Annotated[
        Seconds, about("How long a reader may take nothing from a full socket before it is disconnected.")
    ] = 30.0
    drain_seconds: Annotated[Seconds, about("How long running requests may take to finish at shutdown.")] = 10.0

    @property
    def data_directory(self) -> Path:
        return Path(self.data)

    @property
    def lake_url(self) -> str:
        """Where the lake is; empty if nothing is kept."""
        return "" if self.memory else self.lake or str(self.data_directory / "lake")


class Setting(NamedTuple):
    """One field of `Settings`, as flags, errors and the reference page need it."""

    name: str
    help: str
    kind: type
    """`str`, `int`, `float` or `bool`."""
    unit: str
    """`bytes`, `seconds` or empty."""
    choices: tuple[str, ...]
    limits: dict[str, float]
    default: Any
    annotation: Any
    repeatable: bool = False
    """Whether its flag may be repeated; the values are joined by commas, as the other sources write them."""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()

    @property
    def meaning(self) -> str:
        """The help, with the choices if there are any."""
        return f"{self.help} Choices: {', '.join(self.choices)}." if self.choices else self.help

    def render(self, value: Any) -> str:
        """Write a value the way a person would."""
        if self.unit == "bytes":
            return render_size(value)
        return render_duration(value) if self.unit == "seconds" else str(value)

    @property
    def expects(self) -> str:
        """What the setting takes, as the end of a sentence.

        >>> SETTINGS["port"].expects, SETTINGS["retention"].expects
        ('a whole number from 0 to 65535', 'snapshot or explicit')
        >>> SETTINGS["segment_bytes"].expects
        'a size such as 512MiB, 64KB or 1048576, at least 64KiB'
        """
        if self.choices:
            return " or ".join([", ".join(self.choices[:-1]), self.choices[-1]])
        if self.kind is bool:
            return "true or false"
        if self.unit == "bytes":
            return f"a size such as {SIZE_EXAMPLES}, at least {render_size(int(self.limits['ge']))}"
        if self.unit == "seconds":
            return f"a duration such as {DURATION_EXAMPLES}, above 0"
        if self.kind is int:
            least, most = self.limits["ge"], self.limits.get("le")
            return f"a whole number, at least {least}" if most is None else f"a whole number from {least} to {most}"
        return "text"

    def parse(self, value: Any) -> Any:
        """Return the value in its own type; `ValueError` if it is not one that the setting takes."""
        if isinstance(value, str):
            if self.unit == "bytes":
                value = parse_size(value)
            elif self.unit == "seconds":
                value = parse_duration(value)
            elif self.kind is not str:
                return msgspec.convert(value, self.annotation, strict=False)
        return msgspec.convert(value, self.annotation)


def _describe(name: str, annotation: Any, default: Any) -> Setting:
    kind, *metas = get_args(annotation)
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    limits: dict[str, float] = {}
    help, unit, repeatable = "", "", False
    for meta in metas:
        limits |= {bound: found for bound in ("ge", "gt", "le") if (found := getattr(meta, bound)) is not None}
        help = meta.description or help
        unit = (meta.extra or {}).get("unit", unit)
        repeatable = repeatable or (meta.extra or {}).get("repeatable", False)
    return Setting(name, help, str if choices else kind, unit, choices, limits, default, annotation, repeatable)


SETTINGS: dict[str, Setting] = {
    name: _describe(name, annotation, getattr(Settings(), name))
    for name, annotation in get_type_hints(Settings, include_extras=True).items()
    if name in Settings.__struct_fields__
}
"""Every setting by its name, in the order of the fields."""


def load(flags: Mapping[str, Any], config: Path | None = None, environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings in force; a flag that is None was not given."""
    values: dict[str, Any] = {}
    if config is not None:
        values |= _from_file(config)
    values |= _from_environment(environment)
    for name, value in flags.items():
        if value is not None:
            values[name] = _parsed(SETTINGS[name], value, SETTINGS[name].flag)
    if values.get("memory") and "data" in values:
        raise SettingsError("--data and --memory exclude each other; choose one.")
    if values.get("memory") and values.get("lake"):
        raise SettingsError("--lake and --memory exclude each other: a server in memory keeps no history.")
    for mount in filter(None, values.get("mount", "").split(",")):
        if _MOUNT.fullmatch(mount) is None:
            raise SettingsError(
                f"{mount!r} cannot be mounted; write a path such as /api/streams, but not /ds or /__..."
            )
    return Settings(**values)


def _from_file(config: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(config.read_text())
    except OSError as error:
        raise SettingsError(f"The settings file {config} cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"The settings file {config} is not valid TOML: {error}.") from error
    for name in found:
        if name not in SETTINGS:
            raise SettingsError(f"{name} in {config} is not a setting; {_nearest(name)}.")
    return {name: _parsed(SETTINGS[name], value, f"{name} in {config}") for name, value in found.items()}


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    known = {setting.variable: setting for setting in SETTINGS.values()}
    values = {}
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in OTHER_VARIABLES:
            continue
        if _KUBERNETES.fullmatch(variable) or _KUBERNETES_PORT.fullmatch(f"{variable}={text}"):
            continue
        if variable not in known:
            near = _nearest(variable.removeprefix(ENVIRONMENT_PREFIX).lower(), variable=True)
            raise SettingsError(f"{variable} is set, but there is no such setting; {near}.")
        values[known[variable].name] = _parsed(known[variable], text, variable)
    return values


def _parsed(setting: Setting, value: Any, origin: str) -> Any:
    try:
        return setting.parse(value)
    except (ValueError, msgspec.ValidationError) as error:
        raise SettingsError(f"{origin} is {value!r}, but it takes {setting.expects}.") from error


def _nearest(name: str, *, variable: bool = False) -> str:
    """Suggest the nearest setting, if one is near enough for a typing error.

    >>> _nearest("prot"), _nearest("hot_bytes", variable=True), _nearest("xyz")
    ('the nearest one is port', 'the nearest one is HEADWATER_HOT_BYTES_MAX', '`headwater serve --help` lists all')
    """
    near = get_close_matches(name, SETTINGS, n=1)
    if not near:
        return "`headwater serve --help` lists all"
    return f"the nearest one is {SETTINGS[near[0]].variable if variable else near[0]}"
