"""`headwater serve`: run the server until a signal stops it."""

import asyncio
import errno
import gc
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click
import uvloop

from headwater import __version__
from headwater import settings as settings_module
from headwater.access.audit import Audit, Event, Record
from headwater.access.grants import CHANGING
from headwater.access.policy import PolicyError
from headwater.access.policy import load as load_policy
from headwater.cli import logs
from headwater.cli.composition import open_node
from headwater.cli.examples import examples
from headwater.http.gates import Guard
from headwater.http.server import Server
from headwater.lake.ownership import LakeOwned
from headwater.log.directory import DirectoryInUse
from headwater.log.journal.files import JournalDamaged
from headwater.settings import SETTINGS, Mode, Setting, Settings, SettingsError
from headwater.settings.modes import is_loopback
from headwater.storage.store import KeyMissing, StoreFailed

COLLECT_AFTER_OBJECTS = 2_000
OLDER_COLLECTION_AFTER = 5
"""How many new containers trigger a young collection, and how many young collections an older one. An object that
replaces another is not counted, so a collection also visits what caches took in since the last one: they are small."""

LIMITS = ("hot_bytes_max", "flush_bytes_max", "page_bytes")
"""The settings that the start line reports, beside limits that the system may have lowered."""

READY = """\
Headwater is ready at {url} ({where}). Try it:
  curl -X PUT  {url}/v1/stream/hello -H 'Content-Type: text/plain'{token}
  curl -X POST {url}/v1/stream/hello -H 'Content-Type: text/plain' -d 'hello, world'{token}
  curl -N      '{url}/v1/stream/hello?offset=-1&live=sse'{token}
"""

METAVARS = {"bytes": "SIZE", "seconds": "DURATION"}

log = logging.getLogger(__name__)


def _flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add one flag for each setting."""
    for setting in reversed(SETTINGS.values()):
        command = _flag(setting)(command)
    return command


def _flag(setting: Setting) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    # No default and no type: `settings.load` must know which flags were given, and parses all sources alike.
    if setting.kind is bool:
        return click.option(setting.flag, setting.name, is_flag=True, default=None, help=setting.help)
    metavar = f"[{'|'.join(setting.choices)}]" if setting.choices else METAVARS.get(setting.unit)
    default = f"  [default: {setting.render(setting.default)}]" if setting.default != "" else ""
    return click.option(
        setting.flag,
        setting.name,
        default=None,
        metavar=metavar or {int: "INTEGER", str: "TEXT"}[setting.kind],
        help=setting.help + default,
        multiple=setting.repeatable,
        callback=_joined if setting.repeatable else None,
    )


def _joined(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> str | None:
    return ",".join(given) or None


@click.command(
    epilog=examples(
        "headwater serve --data /var/lib/headwater --log-format json",
        "headwater serve --memory --port 0",
        "headwater serve --lake s3://history/headwater --hot-bytes-max 2GiB",
    )
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=None,
    envvar="HEADWATER_CONFIG",
    show_envvar=True,
    help="TOML file with settings.",
)
@_flags
def serve(config: Path | None, **flags: Any) -> None:
    """Run a server.

    It runs until SIGTERM or Ctrl-C, and then lets running requests finish.

    Each option is also an environment variable (--port is HEADWATER_PORT) and a line of the file given by --config.
    Sizes take units (512MiB, 64KB), and so do durations (500ms, 30s, 5min).
    """
    try:
        settings = settings_module.load(flags, config)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    guard, audit = _guard(settings), _audit(settings)
    logs.set_up(settings.log_format, settings.log_level)
    try:
        uvloop.run(run(settings, guard, audit))
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    except (DirectoryInUse, JournalDamaged, LakeOwned, StoreFailed, KeyMissing, ValueError, OSError) as error:
        _fail(settings, _reason(error))


def _guard(settings: Settings) -> Guard | None:
    """The guard that decides by the access file, if there is one."""
    if settings.mode is not Mode.GUARDED:
        return None
    try:
        return Guard(load_policy(Path(settings.auth)), settings.proxies)
    except PolicyError as error:
        raise click.UsageError(str(error)) from error


def _audit(settings: Settings) -> Audit | None:
    """The audit log, if there is one."""
    if not (settings.audit or settings.mode is Mode.GUARDED):
        return None
    try:
        return Audit(Path(settings.audit) if settings.audit else None)
    except OSError as error:
        raise click.UsageError(f"The audit log {settings.audit} cannot be written ({error.strerror}).") from error


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"The server cannot use {error.filename} ({error.strerror}); check --data and --lake."
    return f"{str(error).rstrip('.')}."


def _fail(settings: Settings, reason: str) -> NoReturn:
    if settings.log_format == "json":
        log.critical(reason)
    else:
        click.echo(f"Error: {reason}", err=True)
    sys.exit(1)


async def run(settings: Settings, guard: Guard | None = None, audit: Audit | None = None) -> None:
    """Listen, recover, announce the URL, and serve until a signal arrives."""
    _tune_process()
    stopping: asyncio.Future[signal.Signals] = asyncio.get_running_loop().create_future()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _stop, stopping, number)
    server = Server(settings, guard)
    server.context.audit = audit
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, server.reload)
    began = time.monotonic()
    try:
        url = await server.listen()
    except OSError as error:
        raise OSError(_cannot_listen(f"{settings.host}:{settings.port}", "--port", error)) from error
    try:
        ops_url = await server.listen_for_operators()
    except OSError as error:
        raise OSError(_cannot_listen(settings.ops, "--ops", error)) from error
    # In a thread, so that /healthz and /readyz answer (alive, but not ready) for as long as the recovery takes.
    node = await asyncio.get_running_loop().run_in_executor(None, open_node, settings)
    gc.freeze()
    node.start()
    server.serve(node)
    _announce(server, url, ops_url, time.monotonic() - began)
    server.report_limits()
    _warn(settings, guard)
    if audit is not None:
        audit.record(Record(Event.STARTED))
    why = await stopping
    log.info("draining", extra={"signal": why.name, "connections": len(server.connections)})
    draining_since = time.monotonic()
    await server.drain()
    drained_at = time.monotonic()
    await node.stop()
    if audit is not None:
        audit.record(Record(Event.STOPPED))
        audit.close()
    took = {"drain_seconds": drained_at - draining_since, "stop_seconds": time.monotonic() - drained_at}
    log.info("stopped", extra={"signal": why.name} | {name: round(value, 3) for name, value in took.items()})


def _warn(settings: Settings, guard: Guard | None) -> None:
    """Log what an operator may not have meant."""
    if settings.mode is Mode.OPEN:
        log.warning(
            "serving without authentication: any client that reaches this server may read, change and delete all"
        )
    if guard is not None:
        if not (settings.tls_cert or is_loopback(settings.host)):
            log.warning("serving without TLS: credentials can be read on the way, unless a proxy in front has TLS")
        anonymous = guard.policy.anonymous
        writing = [action.word for action in CHANGING if anonymous.may_some(action)]
        if writing:
            log.warning("the access file lets everybody %s without a credential", ", ".join(writing))


def _cannot_listen(address: str, flag: str, error: OSError) -> str:
    # For a number of the system, the loop's own text repeats the address; for a failed name lookup it is the reason.
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
    in_use = error.errno == errno.EADDRINUSE
    check = "--host and --port" if flag == "--port" else flag
    advice = f"choose another {flag}, or 0 for a free one" if in_use else f"check {check}"
    return f"Cannot listen on {address} ({reason}); {advice}."


def _stop(stopping: "asyncio.Future[signal.Signals]", number: signal.Signals) -> None:
    if not stopping.done():
        stopping.set_result(number)


def _announce(server: Server, url: str, ops_url: str | None, seconds: float) -> None:
    """Print the URL for people, and log one structured line."""
    settings = server.settings
    where = "in memory, nothing is kept" if settings.memory else f"data in {settings.data_directory.resolve()}"
    if settings.log_format == "human":
        token = ' -H "Authorization: Bearer $HEADWATER_TOKEN"' if settings.mode is Mode.GUARDED else ""
        operators = "" if ops_url is None else f"Operators are served at {ops_url}.\n"
        click.echo(READY.format(url=url, where=where, token=token) + operators, nl=False)
        sys.stdout.flush()
    facts = {
        "version": __version__,
        "url": url,
        "ops_url": ops_url,
        "data": None if settings.memory else str(settings.data_directory.resolve()),
        "lake": None if settings.memory else settings.lake or str(settings.data_directory.resolve() / "lake"),
        "pid": os.getpid(),
        "start_seconds": round(seconds, 3),
        "limits": {name: getattr(settings, name) for name in LIMITS} | server.limits,
    }
    log.info("started", extra=facts)


def _tune_process() -> None:
    """Allow as many sockets as the system does, and keep the garbage collector from visiting every stream.

    State has no cycles. Objects that survive a second collection are frozen and never visited again, so the length of a
    pause depends on what was allocated since the last one, not on the number of streams.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.set_threshold(COLLECT_AFTER_OBJECTS, OLDER_COLLECTION_AFTER, 10)
    gc.callbacks.append(_freeze_survivors)


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] > 0:
        gc.freeze()
