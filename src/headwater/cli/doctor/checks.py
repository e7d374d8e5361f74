"""The checks of `headwater doctor`. They create nothing, except the folder of a lake that does not exist yet."""

import fcntl
import os
import resource
import secrets
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from re import match, search
from shutil import disk_usage
from statistics import median
from tempfile import TemporaryFile
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import httpx2

from headwater.cli.printing import moment, size
from headwater.compiled import PURE, PURE_VARIABLE, is_compiled, missing
from headwater.log.jetstream.durability import NotVerified, judge_sync, monitor_url
from headwater.log.jetstream.streams import ClusterConfig, LogRefused
from headwater.log.jetstream.visiting import Visit
from headwater.log.jetstream.wire import parse_address
from headwater.node.committer import QUEUE_BYTES_MAX
from headwater.protocol.limits import DESCRIPTORS_RESERVE, RESERVED_CONNECTIONS
from headwater.settings import Settings
from headwater.storage.opening import open_store
from headwater.storage.store import KeyExists, KeyMissing, Store, StoreFailed

Verdict = Literal["ok", "warning", "problem"]

PYTHON_MIN = (3, 11)
FREE_BYTES_MIN = 256 * 1024**2
"""Below this a server would soon stop: a journal file, an image and a flush need room at the same time."""
FREE_BYTES_ENOUGH = 2 * 1024**3
SYNCS = 15
SYNC_MS_ENOUGH = 10.0
"""Suitable disks sync faster; every append waits for a sync."""
CLOCK_BEFORE_US = 1_735_689_600_000_000
"""The beginning of 2025: a correct clock shows a later time."""
SKEW_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 10.0
CODE_BYTES = 128 * 1024**2
"""Memory of a process without any data."""
IMAGE_FACTOR = 4
"""How much more metadata takes in memory than in an image."""
CGROUP = Path("/sys/fs/cgroup/memory.max")
NATS_SECONDS = 3.0
SERVERS_ENOUGH = 3


class Finding(NamedTuple):
    """The result of one check, and how to fix what it found."""

    check: str
    verdict: Verdict
    detail: str
    fix: str = ""


# -- This machine ------------------------------------------------------------------------------------------------------


def python() -> Finding:
    detail = f"Python {sys.version.split()[0]}"
    if sys.version_info < PYTHON_MIN:
        return Finding("python", "problem", detail, f"install Python {PYTHON_MIN[0]}.{PYTHON_MIN[1]} or later")
    return Finding("python", "ok", detail)


def compiled_modules() -> Finding:
    """Check that the compiled modules are built and used."""
    if is_compiled():
        return Finding("compiled", "ok", "compiled modules answer the usual requests")
    if PURE:
        return Finding(
            "compiled", "warning", f"{PURE_VARIABLE} is set, so compiled modules are not used", f"unset {PURE_VARIABLE}"
        )
    fix = "install a wheel for this platform, or a C compiler and Python's headers, and then build headwater again"
    names = ", ".join(name.rpartition(".")[2] for name in missing())
    return Finding("compiled", "warning", f"this installation lacks {names}, so requests take more CPU", fix)


def packages() -> Finding:
    """Check that every package of the client and the server is installed."""
    there, missing = [f"headwater {version('headwater')}"], []
    for wanted in requires("headwater") or []:
        found = match(r"[A-Za-z0-9_.-]+", wanted)
        if found is None or ("extra ==" in wanted and not search("extra == .server", wanted)):
            continue
        try:
            there.append(f"{found[0]} {version(found[0])}")
        except PackageNotFoundError:
            missing.append(found[0])
    if missing:
        again = "run `pip install 'headwater[server]'` again"
        return Finding("packages", "problem", f"{', '.join(missing)} missing", again)
    return Finding("packages", "ok", ", ".join(there))


def open_files() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * Settings().connections_max + DESCRIPTORS_RESERVE + RESERVED_CONNECTIONS
    if hard != resource.RLIM_INFINITY and hard < wanted:
        detail = f"a process may open {hard:,} files, and each connection needs up to two"
        return Finding(
            "open files", "warning", detail, f"raise the hard limit to {wanted:,} (`ulimit -Hn`, LimitNOFILE=)"
        )
    return Finding("open files", "ok", "no limit" if hard == resource.RLIM_INFINITY else f"up to {hard:,}")


def memory(workers: int, data: Path | None) -> Finding:
    """Compare the memory that the processes may use with what is available; the newest image estimates metadata."""
    settings = Settings()
    buffers = settings.hot_bytes_max + settings.receiving_bytes_max + settings.sending_bytes_max + QUEUE_BYTES_MAX
    metadata = IMAGE_FACTOR * _newest_image_bytes(data)
    most, there = workers * (CODE_BYTES + buffers + metadata), _memory_bytes()
    detail = f"{size(there)}, of which {_processes(workers)} may take up to {size(most)} with the default limits"
    if most > there:
        fix = "use fewer workers, or lower --hot-bytes-max, --receiving-bytes-max and --sending-bytes-max"
        return Finding("memory", "warning", detail, fix if workers > 1 else fix.partition(", or ")[2])
    return Finding("memory", "ok", detail)


def cores(workers: int) -> Finding:
    """Check that every worker has a core; more workers than cores gain nothing."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    detail = f"{there} for {workers} workers and a sequencer"
    if workers > there:
        return Finding("cores", "warning", detail, f"use at most {there} workers")
    return Finding("cores", "ok", detail)


def _processes(workers: int) -> str:
    return "a server" if workers == 1 else f"{workers} workers"


def _memory_bytes() -> int:
    """Return the memory of this machine, or of the container."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(machine, int(CGROUP.read_text()))
    except (OSError, ValueError):
        return machine


def _newest_image_bytes(data: Path | None) -> int:
    try:
        images = [] if data is None else sorted((data / "images").glob("*.image"))
        return images[-1].stat().st_size if images else 0
    except OSError:
        return 0


def clock(data: Path | None, server_date: str | None) -> Finding:
    """Check the clock, by which streams expire and records are dated."""
    fix = "synchronise the clock (chrony, systemd-timesyncd)"
    now_us = time.time_ns() // 1000
    detail = f"it shows {moment(now_us // 1_000_000 * 1_000_000)}"
    if now_us < CLOCK_BEFORE_US:
        return Finding("clock", "problem", f"{detail}, which is in the past", fix)
    newest = max((one.stat().st_mtime for one in _journal(data)), default=0.0)
    if newest > now_us / 1e6 + SKEW_SECONDS_MAX:
        return Finding("clock", "warning", f"{detail}, but the journal is from {moment(int(newest * 1e6))}", fix)
    if server_date is not None:
        skew = abs(parsedate_to_datetime(server_date).timestamp() - now_us / 1e6)
        if skew > SKEW_SECONDS_MAX:
            return Finding("clock", "warning", f"{detail}, and the server's clock is {skew:.0f} s away", fix)
    return Finding("clock", "ok", detail)


def _journal(data: Path | None) -> Iterator[Path]:
    try:
        yield from [] if data is None else list((data / "journal").iterdir())
    except OSError:
        return


def port(host: str, number: int, answered: bool) -> Finding:
    """Check whether a server could listen there, or does."""
    where = f"{host}:{number}"
    if answered:
        return Finding("port", "ok", f"the server listens on {where}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, number))
    except OSError as error:
        detail = f"{where} is not available: {error.strerror or error}"
        return Finding("port", "problem", detail, "stop the process that uses it, or choose another --port")
    return Finding("port", "ok", f"{where} is free")


# -- The data directory ------------------------------------------------------------------------------------------------


def directory(data: Path) -> Iterator[Finding]:
    """Check the directory of the journal: permissions, free space, and the speed of syncs."""
    place = data
    while not place.exists() and place != place.parent:
        place = place.parent
    detail = f"{data} exists" if place == data else f"{data} will be created in {place}"
    fix = f"make it a folder that {_user()} owns, or choose another --data"
    if not place.is_dir() or not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        yield Finding("permissions", "problem", f"{place} cannot be written to by {_user()}", fix)
        return
    held = _holder(data)
    yield Finding("permissions", "ok", f"{detail}{f', in use by {held}' if held else ''}")
    yield _room(place)
    yield _sync(place)


def _user() -> str:
    return f"user {os.geteuid()}"


def _holder(data: Path) -> str | None:
    """Return the process that uses the directory, if any; the lock is tested, not taken."""
    try:
        with open(data / "lock", "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return file.read(100).decode(errors="replace").strip() or "another process"
    except OSError:
        return None
    return None


def _room(place: Path) -> Finding:
    free = disk_usage(place).free
    if free < FREE_BYTES_ENOUGH:
        verdict: Verdict = "problem" if free < FREE_BYTES_MIN else "warning"
        return Finding(
            "disk space", verdict, f"{size(free)} free in {place}", "free some space, or choose another --data"
        )
    return Finding("disk space", "ok", f"{size(free)} free")


def _sync(place: Path) -> Finding:
    """Measure how long an append waits for the disk."""
    times = []
    try:
        with TemporaryFile(dir=place, prefix=".headwater-doctor-", buffering=0) as file:
            for _ in range(SYNCS):
                file.write(b"x" * 4096)
                began = time.perf_counter()
                os.fdatasync(file.fileno())
                times.append((time.perf_counter() - began) * 1000)
    except OSError as error:
        detail = f"a file in {place} cannot be written and synced: {error.strerror or error}"
        return Finding("disk sync", "problem", detail, "check the disk, or choose another --data")
    detail = f"{median(times):.2f} ms, at most {max(times):.2f} ms"
    if _file_system(place) in ("tmpfs", "ramfs"):
        return Finding("disk sync", "warning", f"{detail}, but {place} is in memory", "choose a --data on a disk")
    if median(times) > SYNC_MS_ENOUGH:
        return Finding("disk sync", "warning", f"{detail}, and every append waits for a sync", "use a faster disk")
    return Finding("disk sync", "ok", detail)


def _file_system(place: Path) -> str:
    """Return the type of the file system of a folder; empty if unknown."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    above = {str(place.resolve()), *map(str, place.resolve().parents)}
    found = [mount for mount in mounts if mount[1] in above]
    return max(found, key=lambda mount: len(mount[1]))[2] if found else ""


# -- The lake and the server -------------------------------------------------------------------------------------------


def lake(url: str) -> Finding:
    """Check that objects can be created, read and deleted."""
    fix = "check the URL, the permissions and, for S3, the AWS_ variables"
    key, data = f"doctor-{secrets.token_hex(8)}", secrets.token_bytes(64)
    try:
        store = open_store(url)
        began = time.perf_counter()
        found = _round_trip(store, key, data)
    except (StoreFailed, KeyExists, KeyMissing, ValueError, OSError) as error:
        return Finding("lake", "problem", f"{url} does not work: {str(error).rstrip('.')}", fix)
    if found != data:
        return Finding("lake", "problem", f"{url} returned other bytes than were stored", fix)
    took_ms = (time.perf_counter() - began) * 1000
    return Finding("lake", "ok", f"{store.url} creates, reads and deletes, in {took_ms:.0f} ms")


def _round_trip(store: Store, key: str, data: bytes) -> bytes:
    store.create(key, data)
    try:
        return store.read(key)
    finally:
        store.delete(key)


class Contact(NamedTuple):
    """The answer of a server, if there was one."""

    finding: Finding
    answered: bool
    date: str | None = None


def server(url: str, headers: dict[str, str], expected: bool, *, verify: ssl.SSLContext | bool = True) -> Contact:
    """Check whether a server is ready; a missing server is a problem only if a URL was given."""
    start = "start it with `headwater serve`, or correct --url"
    try:
        response = httpx2.get(f"{url}/readyz", headers=headers, timeout=ANSWER_SECONDS_MAX, verify=verify)
    except httpx2.HTTPError as error:
        detail = f"no server answers at {url}"
        if expected:
            return Contact(
                Finding("server", "problem", f"{detail} ({str(error) or type(error).__name__})", start), False
            )
        return Contact(Finding("server", "ok", f"{detail}, and no --url was given"), False)
    date = response.headers.get("date")
    if response.status_code == 200:
        name = response.headers.get("server", "something")
        return Contact(Finding("server", "ok", f"{name} is ready at {url}"), True, date)
    detail = f"{url} answers, but is not ready ({response.status_code})"
    return Contact(Finding("server", "problem", detail, "wait until it has started, or see its log"), True, date)


# -- NATS --------------------------------------------------------------------------------------------------------------


def nats_servers(urls: str, monitors: str | None) -> Iterator[Finding]:
    """Check that each NATS server is usable and syncs each message, and that the cluster survives the loss of one."""
    servers = [url.strip() for url in urls.split(",")]
    monitor_urls = monitors.split(",") if monitors else [monitor_url(url) for url in servers]
    clustered = False
    for url in servers:
        try:
            name = parse_address(url).name
        except ValueError as error:
            yield Finding("nats", "problem", str(error), "correct --cluster")
            continue
        try:
            with Visit(ClusterConfig([url]), NATS_SECONDS) as visit:
                info = visit.client.info
        except LogRefused as error:
            yield _parted(f"nats {name}", "problem", error)
        else:
            clustered = clustered or bool(info.cluster)
            yield Finding(f"nats {name}", "ok", f"version {info.version} with JetStream")
    for url in monitor_urls:
        yield _nats_sync(url.strip())
    if clustered and len(servers) >= SERVERS_ENOUGH:
        yield Finding("nats cluster", "ok", f"{len(servers)} servers")
    else:
        detail = f"{len(servers)} of at least {SERVERS_ENOUGH} servers that form a cluster"
        yield Finding("nats cluster", "warning", detail, "run three NATS servers to survive the loss of one")


def _nats_sync(url: str) -> Finding:
    check = f"nats sync {urlsplit(url).netloc}"
    try:
        problem = judge_sync(url)
    except NotVerified as error:
        return _parted(check, "warning", error)
    return Finding(check, "ok", "each message") if problem is None else _parted(check, "problem", problem)


def _parted(check: str, verdict: Verdict, sentence: object) -> Finding:
    """Return a finding for a sentence that ends with the advice."""
    detail, _, advice = str(sentence).rstrip(".").rpartition("; ")
    return Finding(check, verdict, detail, advice)
