"""One serving process, from its first listener to its last batch."""

import asyncio
import errno
import gc
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import click
import msgspec

from headwater import __version__
from headwater.access.audit import Audit, Event, Record
from headwater.access.grants import CHANGING
from headwater.access.policy import PolicyError
from headwater.access.policy import load as load_policy
from headwater.cli.composition import open_node
from headwater.compiled import is_compiled
from headwater.http.guard.gates import Guard
from headwater.http.server import Server
from headwater.http.workers.siblings import Siblings
from headwater.lake.ownership import LakeOwned
from headwater.log.directory import DirectoryInUse
from headwater.log.jetstream.streams import LogRefused
from headwater.log.journal.files import JournalDamaged
from headwater.node.node import Node
from headwater.settings import Mode, Settings, SettingsError
from headwater.settings.fields import is_loopback
from headwater.storage.store import KeyMissing, StoreFailed

SWITCH_SECONDS = 0.0005
"""How long a thread that builds a segment or an image may keep the interpreter while the event loop waits for it. By
default it is ten times as long, and the loop asks for it several times for each request."""
COLLECT_AFTER_OBJECTS = 2_000
OLDER_COLLECTION_AFTER = 5
"""How many new containers trigger a young collection, and how many young collections an older one. An object that
replaces another is not counted, so a collection also visits what caches took in since the last one: they are small."""

LIMITS = ("hot_bytes_max", "flush_bytes_max", "page_bytes")
"""The settings that the start line reports, beside limits that the system may have lowered."""

FAILURES = (DirectoryInUse, JournalDamaged, LogRefused, LakeOwned, StoreFailed, KeyMissing, ValueError, OSError)
"""Reasons why a server cannot start that are not bugs of ours."""

READY_CHECK_SECONDS = 0.02
REPORT_SECONDS = 2.0
"""How long a started node may be unready before the log says why."""

READY = """\
Headwater is ready at {url} ({where}). Try it:
  curl -X PUT  {url}/v1/stream/hello -H 'Content-Type: text/plain'{token}
  curl -X POST {url}/v1/stream/hello -H 'Content-Type: text/plain' -d 'hello, world'{token}
  curl -N      '{url}/v1/stream/hello?offset=-1&live=sse'{token}
"""

log = logging.getLogger(__name__)


class Listening(NamedTuple):
    """The addresses of a server, and its limits as the system allows them."""

    url: str
    ops_url: str | None
    limits: dict[str, int]


def _alone(server: Server, listening: Listening, seconds: float) -> None:
    announce(server.settings, listening, seconds)
    warn(server.settings, server.context.guard)
    server.report_limits()


async def _at_once() -> None:
    pass


class Part(NamedTuple):
    """How one of several processes of a server differs from a process that serves alone."""

    open_node: Callable[[Settings], Node] = open_node
    listens_early: bool = True
    """Whether to listen, and answer 503, before the process can serve; not if other processes can."""
    may_listen: Callable[[], Awaitable[None]] = _at_once
    """Awaited before a process that can serve listens, if it did not listen early."""
    siblings: Siblings | None = None
    """The other processes."""
    ready: Callable[[Server, Listening, float], None] = _alone
    """Called when the process serves."""
    ending: Callable[[Callable[[], None]], None] = lambda end: None
    """Called with a function that stops the process early, as a signal does."""


ALONE = Part()


def make_guard(settings: Settings) -> Guard | None:
    """Return the guard that applies the access file, if there is one."""
    if settings.mode is not Mode.GUARDED:
        return None
    try:
        return Guard(load_policy(Path(settings.auth)), settings.proxies, settings.workers)
    except PolicyError as error:
        raise SettingsError(str(error)) from error


def make_audit(settings: Settings) -> Audit | None:
    """Return the audit log, if there is one."""
    if not (settings.audit or settings.mode is Mode.GUARDED):
        return None
    try:
        return Audit(Path(settings.audit) if settings.audit else None)
    except OSError as error:
        raise SettingsError(f"The audit log {settings.audit} cannot be written ({error.strerror}).") from error


def reason_of(error: Exception) -> str:
    """Return one sentence that says why the server cannot start."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"The server cannot use {error.filename} ({error.strerror}); check --data and --lake."
    return f"{str(error).rstrip('.')}."


async def run(settings: Settings, guard: Guard | None = None, audit: Audit | None = None, part: Part = ALONE) -> None:
    """Listen, recover, announce the URL, and serve until a signal arrives."""
    _tune_process()
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[str] = loop.create_future()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, stopping, number.name)
    part.ending(lambda: _stop(stopping, "the supervisor died"))
    server = Server(settings, guard)
    server.context.audit = audit
    loop.add_signal_handler(signal.SIGHUP, server.reload)
    began = time.monotonic()
    listening = await _listen(server) if part.listens_early else None
    # In a thread, so that /healthz and /readyz answer (alive, but not ready) for as long as the recovery takes.
    node = await loop.run_in_executor(None, part.open_node, _found(settings, listening))
    gc.freeze()
    node.start()
    if part.siblings is not None:
        await server.join(part.siblings, node)
    server.serve(node)
    if listening is None:
        await part.may_listen()
        listening = await _listen(server)
    await _ready(node, stopping)
    part.ready(server, listening, time.monotonic() - began)
    if audit is not None:
        audit.record(Record(Event.STARTED))
    why = await stopping
    log.info("draining", extra={"signal": why, "connections": len(server.connections)})
    draining_since = time.monotonic()
    await server.drain()
    drained_at = time.monotonic()
    await node.stop()
    if audit is not None:
        audit.record(Record(Event.STOPPED))
        audit.close()
    took = {"drain_seconds": drained_at - draining_since, "stop_seconds": time.monotonic() - drained_at}
    log.info("stopped", extra={"signal": why} | {name: round(value, 3) for name, value in took.items()})


async def _ready(node: Node, stopping: "asyncio.Future[str]") -> None:
    """Wait until the node can serve; until then it answers that it is not ready, and why."""
    said, since = None, time.monotonic()
    while (outage := node.outage) is not None and not stopping.done():
        if outage != said and time.monotonic() - since > REPORT_SECONDS:
            log.warning("not ready: %s", outage)
            said, since = outage, time.monotonic()
        await asyncio.sleep(READY_CHECK_SECONDS)


def _found(settings: Settings, listening: Listening | None) -> Settings:
    """Return the settings with the actual port."""
    port = None if listening is None else urlsplit(listening.url).port
    return settings if port is None else msgspec.structs.replace(settings, port=port)


async def _listen(server: Server) -> Listening:
    settings = server.settings
    try:
        url = await server.listen()
    except OSError as error:
        raise cannot_listen(f"{settings.host}:{settings.port}", "--port", error) from error
    try:
        ops_url = await server.listen_for_operators()
    except OSError as error:
        raise cannot_listen(settings.ops, "--ops", error) from error
    return Listening(url, ops_url, server.limits)


def warn(settings: Settings, guard: Guard | None) -> None:
    """Warn about settings that an operator may not have intended."""
    if settings.mode is Mode.OPEN:
        log.warning(
            "serving without authentication: any client that can reach this server may read, change and delete "
            "all streams"
        )
    if guard is not None:
        if not (settings.tls_cert or is_loopback(settings.host)):
            log.warning("serving without TLS: credentials are sent unencrypted, unless a proxy terminates TLS")
        anonymous = guard.policy.anonymous
        writing = [action.word for action in CHANGING if anonymous.may_some(action)]
        if writing:
            log.warning("the access file allows anonymous clients to %s", ", ".join(writing))


def cannot_listen(address: str, flag: str, error: OSError) -> OSError:
    """Return an error that says in one sentence why a listener cannot be opened."""
    # For a number of the system, the loop's own text repeats the address; for a failed name lookup it is the reason.
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
    in_use = error.errno == errno.EADDRINUSE
    check = "--host and --port" if flag == "--port" else flag
    free = ", or 0 for a free one" if flag == "--port" else ""
    advice = f"choose another {flag}{free}" if in_use else f"check {check}"
    return OSError(f"Cannot listen on {address} ({reason}); {advice}.")


def _stop(stopping: "asyncio.Future[str]", why: str) -> None:
    if not stopping.done():
        stopping.set_result(why)


def announce(
    settings: Settings, listening: Listening, seconds: float, processes: Mapping[str, int] | None = None
) -> None:
    """Print the URL for people, and log one structured line."""
    url, ops_url, limits = listening
    where = "in memory, nothing is kept" if settings.memory else f"data in {settings.data_directory.resolve()}"
    if settings.cluster:
        where = f"a node of the cluster on {settings.cluster_servers}, lake in {settings.lake}"
    if settings.log_format == "human":
        token = ' -H "Authorization: Bearer $HEADWATER_TOKEN"' if settings.mode is Mode.GUARDED else ""
        operators = "" if ops_url is None else f"Operators are served at {ops_url}.\n"
        click.echo(READY.format(url=url, where=where, token=token) + operators, nl=False)
        sys.stdout.flush()
    facts = {
        "version": __version__,
        "url": url,
        "ops_url": ops_url,
        "data": None if settings.memory or settings.cluster else str(settings.data_directory.resolve()),
        "cluster": settings.cluster_servers or None,
        "lake": None if settings.memory else settings.lake or str(settings.data_directory.resolve() / "lake"),
        "pid": os.getpid(),
        "processes": processes,
        "compiled": is_compiled(),
        "start_seconds": round(seconds, 3),
        "limits": {name: getattr(settings, name) for name in LIMITS} | limits,
    }
    log.info("started", extra=facts)


def _tune_process() -> None:
    """Allow many sockets, let the loop wait briefly for threads, and keep the collector from visiting every stream.

    State has no cycles. Objects that survive a second collection are frozen and never visited again, so the length of a
    pause depends on what was allocated since the last one, not on the number of streams.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(COLLECT_AFTER_OBJECTS, OLDER_COLLECTION_AFTER, 10)
    gc.callbacks.append(_freeze_survivors)


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] > 0:
        gc.freeze()
