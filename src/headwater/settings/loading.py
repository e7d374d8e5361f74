"""Loading: take settings from a file, the environment and the flags, and validate them together."""

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import msgspec

from headwater import compiled
from headwater.secret_files import may_be_secret
from headwater.settings.descriptions import ENVIRONMENT_PREFIX, RENAMED, SETTINGS, Setting
from headwater.settings.fields import Mode, Settings, is_loopback

CLIENT_VARIABLES = frozenset(
    {"HEADWATER_URL", "HEADWATER_TOKEN", "HEADWATER_TOKEN_FILE", "HEADWATER_CONTEXT", "HEADWATER_CONFIG"}
)
"""Variables of the command line that are not settings of the server."""
OTHER_VARIABLES = CLIENT_VARIABLES | {compiled.PURE_VARIABLE, compiled.REQUIRED_VARIABLE}
_KUBERNETES = re.compile(r"HEADWATER_(.+_)?(SERVICE_(HOST|PORT|PORT_.+)|PORT_[0-9]+_(TCP|UDP|SCTP)(_.+)?)")
_KUBERNETES_PORT = re.compile(r"HEADWATER_(.+_)?PORT=(tcp|udp|sctp)://.*")
"""Variables that Kubernetes sets in every pod of a namespace with a service named `headwater` or `headwater-...`."""

_NODE = re.compile(r"[a-z0-9-]{1,32}")
_NATS = re.compile(r"(nats|tls)://([^@/\s]+@)?(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?/?")
_PUBLIC_URL = re.compile(r"https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?")
_MOUNT = re.compile(r"(?!/ds(?:/|$))(?!/__)(?:/(?!\.\.?(?:/|$))[A-Za-z0-9._~-]+)+")


class SettingsError(Exception):
    """A setting has an invalid value; the message is one sentence for the operator."""


def load(flags: Mapping[str, Any], config: Path | None = None, environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings in force; a flag is None if it was not given."""
    values: dict[str, Any] = {}
    if config is not None:
        values |= _from_file(config)
    values |= _from_environment(environment)
    given = {name: value for name, value in flags.items() if value is not None}
    _judge_spellings(given, lambda name: "--" + name.replace("_", "-"))
    for name, value in given.items():
        setting = SETTINGS[RENAMED.get(name, name)]
        values[setting.name] = _parsed(setting, value, setting.flag)
    if values.get("memory") and "data" in values:
        raise SettingsError("--data and --memory exclude each other; choose one.")
    if values.get("memory") and values.get("lake"):
        raise SettingsError("--lake and --memory exclude each other: a server in memory keeps no history.")
    if values.get("memory") and values.get("workers", 1) > 1:
        raise SettingsError("--workers and --memory exclude each other: a server in memory is one process.")
    for mount in filter(None, values.get("mount", "").split(",")):
        if _MOUNT.fullmatch(mount) is None:
            raise SettingsError(
                f"{mount!r} cannot be mounted; write a path such as /api/streams, but not /ds or /__..."
            )
    settings = Settings(**values)
    _judge_cluster(settings)
    _judge_tls(settings)
    _judge_exposure(settings)
    return settings


def _judge_spellings(given: Iterable[str], shown: Callable[[str], str]) -> None:
    """Refuse a setting that one source gives by its name and by its earlier name: which one counts would be a guess."""
    names = set(given)
    for earlier, name in RENAMED.items():
        if {earlier, name} <= names:
            raise SettingsError(f"{shown(earlier)} is an earlier name of {shown(name)}; give only {shown(name)}.")


def _judge_cluster(settings: Settings) -> None:
    for name in ("cluster_name", "node", "node_url"):
        value = getattr(settings, name)
        if value and not settings.cluster:
            raise SettingsError(f"{SETTINGS[name].flag} is for nodes of a cluster; give --cluster too.")
        if name == "node_url" and value and _PUBLIC_URL.fullmatch(value) is None:
            raise SettingsError(f"--node-url is {value!r}, but it takes an origin such as http://host:4437.")
        if name != "node_url" and value and _NODE.fullmatch(value) is None:
            raise SettingsError(
                f"{SETTINGS[name].flag} is {value!r}, but it takes 1 to 32 characters from a-z, 0-9 and '-'."
            )
    if not settings.cluster:
        return
    if settings.memory:
        raise SettingsError(
            "--cluster and --memory exclude each other: a cluster stores everything that it acknowledges."
        )
    if not settings.lake:
        raise SettingsError("--cluster needs --lake: all nodes share one, such as s3://bucket/prefix.")
    for url in settings.cluster.split(","):
        if _NATS.fullmatch(url.strip()) is None:
            # A comma in a password would cut it in two, and the first part must not be shown.
            shown = "a URL with credentials" if "@" in settings.cluster else repr(url)
            raise SettingsError(
                f"--cluster has {shown}, which is not a NATS server such as nats://host:4222; percent-encode commas "
                "and slashes in a password."
            )


def _judge_exposure(settings: Settings) -> None:
    if settings.auth and settings.no_auth:
        raise SettingsError("--auth and --no-auth exclude each other; choose one.")
    ops_host = settings.ops_address[0] if settings.ops_address else settings.host
    exposed = next((host for host in (settings.host, ops_host) if not is_loopback(host)), None)
    if settings.mode is Mode.LOCAL and exposed is not None:
        raise SettingsError(
            f"Listening on {exposed or 'all addresses'} without authentication would let any client read and "
            "delete; give --auth FILE (create one with headwater token init), or --no-auth behind a proxy that "
            "authenticates."
        )
    for network in filter(None, settings.proxies.split(",")):
        try:
            ip_network(network.strip())
        except ValueError as error:
            raise SettingsError(f"--proxies has {network!r}, which is not a network such as 10.0.0.0/8.") from error
    if settings.public_url and _PUBLIC_URL.fullmatch(settings.public_url) is None:
        raise SettingsError(
            f"--public-url is {settings.public_url!r}, but it takes an origin such as https://streams.example."
        )


def _judge_tls(settings: Settings) -> None:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise SettingsError("--tls-cert and --tls-key belong together; give both or neither.")
    if settings.tls_client_ca and not settings.tls_cert:
        raise SettingsError("--tls-client-ca needs TLS; give --tls-cert and --tls-key too.")
    for name in ("tls_cert", "tls_key", "tls_client_ca"):
        path = getattr(settings, name)
        if path and not os.path.isfile(path):
            if name == "tls_key" and may_be_secret(path):
                raise SettingsError("--tls-key names a file that does not exist; give its path, not the key itself.")
            raise SettingsError(f"{SETTINGS[name].flag} is {path}, but there is no such file.")
    try:
        address = settings.ops_address
    except ValueError as error:
        raise SettingsError(f"--ops is {settings.ops!r}, but it takes an address such as 127.0.0.1:4438.") from error
    if address is not None and address == (settings.host, settings.port) and settings.port:
        raise SettingsError("--ops is the address of the server itself; choose another port.")


def _from_file(config: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(config.read_text())
    except OSError as error:
        raise SettingsError(f"The settings file {config} cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"The settings file {config} is not valid TOML: {error}.") from error
    _judge_spellings(found, lambda name: f"{name} in {config}")
    values = {}
    for name, value in found.items():
        setting = SETTINGS.get(RENAMED.get(name, name))
        if setting is None:
            raise SettingsError(f"{name} in {config} is not a setting; {_nearest(name)}.")
        values[setting.name] = _parsed(setting, value, f"{name} in {config}")
    return values


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    known = {setting.variable: setting for setting in SETTINGS.values()}
    known |= {ENVIRONMENT_PREFIX + earlier.upper(): SETTINGS[name] for earlier, name in RENAMED.items()}
    _judge_spellings(
        (variable.removeprefix(ENVIRONMENT_PREFIX).lower() for variable in environment if variable in known),
        lambda name: ENVIRONMENT_PREFIX + name.upper(),
    )
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
    near = get_close_matches(name, [*SETTINGS, *RENAMED], n=1)
    if not near:
        return "`headwater serve --help` lists all"
    found = SETTINGS[RENAMED.get(near[0], near[0])]
    return f"the nearest one is {found.variable if variable else found.name}"
