"""`headwater serve --workers N`: a sequencer, and N workers that are whole servers on one port."""

import asyncio
import logging
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import uvloop

from headwater.cli import logs
from headwater.cli.composition import node_name, open_member, open_worker
from headwater.cli.running import (
    FAILURES,
    Listening,
    Part,
    announce,
    cannot_listen,
    make_audit,
    make_guard,
    reason_of,
    run,
    warn,
)
from headwater.cli.supervising.supervisor import ChildFailed, Link, Ready, Report, Role, Supervisor
from headwater.http.guard.gates import Guard
from headwater.http.server import Server
from headwater.http.workers.siblings import Siblings
from headwater.log.directory import lock, open_for_sequencer
from headwater.log.workers.decided import DecidedPosition
from headwater.log.workers.sequencer import Sequencer
from headwater.node.node import Node
from headwater.settings import Settings, SettingsError

SOCKET = "log"
SOCKET_PATH_BYTES_MAX = 90
"""How long the path of a Unix socket may be, with a margin: systems allow 104 or 108 bytes."""
ORPHAN_DRAIN_SECONDS = 2.0
"""How long running requests may take to finish once the supervisor has died."""
FIRST_SECONDS_MAX = 10.0
"""How much longer than another worker the first one may take to start before the other serves without it."""
STOP_MARGIN_SECONDS = 20.0
"""How much longer than its drain a worker may take to stop before it is killed."""

log = logging.getLogger(__name__)


class _Shared(NamedTuple):
    """What all processes of a server share."""

    settings: Settings
    supervisor_pid: int
    runtime: Path
    decided: DecidedPosition


def supervise(settings: Settings, guard: Guard | None) -> None:
    """Run a sequencer and its workers until a signal stops them."""
    began = time.monotonic()
    with _ports(settings) as found, _runtime() as runtime:
        shared = _Shared(found, os.getpid(), runtime, DecidedPosition())
        roles = []
        if not settings.cluster:
            # In a cluster, NATS orders the batches.
            sequence = partial(_guarded, partial(_sequence, shared))
            roles.append(Role("sequencer", "sequencer", sequence, is_first=True))
        for name in _names(found):
            roles.append(Role(name, "worker", partial(_guarded, partial(_work, shared, name))))
        supervisor = Supervisor(
            roles,
            lambda ready: _announce(found, guard, ready, began),
            stop_seconds=settings.drain_seconds + STOP_MARGIN_SECONDS,
        )
        try:
            code = supervisor.run()
        except ChildFailed as failure:
            raise (SettingsError if failure.misused else ValueError)(str(failure)) from failure
    if code:
        raise ValueError("Not all processes ended in order; the log says which.")


def _announce(settings: Settings, guard: Guard | None, ready: Mapping[str, Ready], began: float) -> None:
    """Announce the server in one line when all processes are ready."""
    facts = msgspec.convert(ready[_names(settings)[0]].facts, Listening)
    announce(settings, facts, time.monotonic() - began, {name: one.pid for name, one in ready.items()})
    warn(settings, guard)


# -- What they share ---------------------------------------------------------------------------------------------------


@contextmanager
def _ports(settings: Settings) -> Iterator[Settings]:
    """Reserve the ports while the server runs, and yield the settings with their numbers."""
    address = settings.ops_address
    port = _reserve(settings.host, settings.port, "--port")
    ops = None if address is None else _reserve(*address, "--ops")
    try:
        found = msgspec.structs.replace(settings, port=port.getsockname()[1])
        if settings.cluster and not settings.node:
            found = msgspec.structs.replace(found, node=node_name())
        if address is not None and ops is not None:
            host = f"[{address[0]}]" if ":" in address[0] else address[0]
            found = msgspec.structs.replace(found, ops=f"{host}:{ops.getsockname()[1]}")
        yield found
    finally:
        port.close()
        if ops is not None:
            ops.close()


def _reserve(host: str, port: int, flag: str) -> socket.socket:
    """Return a socket that holds a port without listening.

    First without SO_REUSEPORT, as any other server: with it two servers could share a port without noticing.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        if port:
            socket.create_server((host, port), family=family).close()
        held = socket.socket(family)
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((host, port))
    except OSError as error:
        raise cannot_listen(f"{host}:{port}", flag, error) from error
    return held


@contextmanager
def _runtime() -> Iterator[Path]:
    """Make a private folder for sockets, with a short path however long the data directory's is."""
    folder = tempfile.gettempdir()
    if len(folder.encode()) > SOCKET_PATH_BYTES_MAX - 40:
        folder = "/tmp"
    path = Path(tempfile.mkdtemp(prefix="headwater-", dir=folder))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


# -- Roles -------------------------------------------------------------------------------------------------------------


def _guarded(work: Callable[[Link], None], link: Link) -> int:
    """Run a process and return its exit code; report a failed start to the supervisor, which prints it once."""
    try:
        work(link)
    except (SettingsError, *FAILURES) as error:
        link.report(Report(failed=reason_of(error), misused=isinstance(error, SettingsError)))
        return 2 if isinstance(error, SettingsError) else 1
    return 0


def _sequence(shared: _Shared, link: Link) -> None:
    """Run the sequencer."""
    logs.name_child("sequencer")
    settings = shared.settings
    lock(settings.data_directory, shared.supervisor_pid)
    journal = open_for_sequencer(settings.data_directory, settings.journal_file_bytes)
    path = shared.runtime / SOCKET
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    sequencer = Sequencer(journal, listener, shared.decided, on_dropped=lambda pid: link.report(Report(stuck_pid=pid)))
    sequencer.start()
    sequencer.stop_with(link.lifeline)
    # The sequencer ends after its workers, whichever process gets the signal: they still have batches in flight.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sequencer.stop())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    link.report(Report(ready=True))
    sequencer.run()
    if link.is_cut:
        shutil.rmtree(shared.runtime, ignore_errors=True)


def _work(shared: _Shared, name: str, link: Link) -> None:
    """Run a worker."""
    logs.name_child(name)
    settings = _share(shared.settings)
    names = _names(settings)
    siblings = Siblings(shared.runtime, name, names, _others(shared, link))
    # At the start one worker answers that the server is alive but not ready. The others listen after it serves, so that
    # no client that found the server ready is then refused by another worker.
    first, seconds_max = names[0], 0.0 if link.others_serve else FIRST_SECONDS_MAX
    part = Part(
        open_node=partial(_open_node, shared, name),
        listens_early=name == first and not link.others_serve,
        may_listen=lambda: siblings.wait_for(first, seconds_max),
        siblings=siblings,
        ready=lambda server, listening, seconds: _ready(link, server, listening, seconds),
        ending=lambda end: _end_with(link, end),
    )
    uvloop.run(run(settings, make_guard(settings), make_audit(settings), part))


def _open_node(shared: _Shared, name: str, settings: Settings) -> Node:
    if settings.cluster:
        return open_member(settings, name)
    return open_worker(settings, name, shared.runtime / SOCKET, shared.decided)


def _names(settings: Settings) -> list[str]:
    """Return the names of the workers; in a cluster each is a member of its own."""
    prefix = f"{settings.node}-" if settings.cluster else "w"
    return [f"{prefix}{number}" for number in range(settings.workers)]


def _others(shared: _Shared, link: Link) -> dict[str, int]:
    """Return the processes that serve no clients; they do not change while a worker lives."""
    return {"supervisor": shared.supervisor_pid, **link.first_pids}


def _share(settings: Settings) -> Settings:
    """Return the settings of one worker: connection limits are divided, memory limits apply to each worker."""
    workers = settings.workers
    return msgspec.structs.replace(
        settings,
        connections_max=-(-settings.connections_max // workers),
        address_connections_max=-(-settings.address_connections_max // workers),
    )


def _ready(link: Link, server: Server, listening: Listening, seconds: float) -> None:
    log.info("worker started", extra={"pid": os.getpid(), "start_seconds": round(seconds, 3)})
    server.report_limits()
    link.report(Report(ready=True, facts=listening))


def _end_with(link: Link, end: Callable[[], None]) -> None:
    """Drain and exit soon after the supervisor has died."""
    loop = asyncio.get_running_loop()

    def orphaned() -> None:
        loop.remove_reader(link.lifeline)
        log.error("the supervisor has died; stopping this process")
        loop.call_later(ORPHAN_DRAIN_SECONDS, os._exit, 1)
        end()

    loop.add_reader(link.lifeline, orphaned)
