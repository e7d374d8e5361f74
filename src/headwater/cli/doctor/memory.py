"""Whether memory and cores are enough for a server, and for as many workers as it is to have."""

import os
from pathlib import Path

from headwater.cli.doctor.findings import Finding
from headwater.cli.printing import size
from headwater.node.committer import QUEUE_BYTES_MAX
from headwater.settings import Settings

CODE_BYTES = 128 * 1024**2
"""What a process takes before it has any data."""
IMAGE_FACTOR = 4
"""How much more metadata takes in memory than in an image."""
CGROUP = Path("/sys/fs/cgroup/memory.max")


def memory(workers: int, data: Path | None) -> Finding:
    """Compare what the processes may take with what there is; metadata is judged by the newest image."""
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
    """A worker without a core of its own gains nothing."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    detail = f"{there} for {workers} workers and a sequencer"
    if workers > there:
        return Finding("cores", "warning", detail, f"use at most {there} workers")
    return Finding("cores", "ok", detail)


def _processes(workers: int) -> str:
    return "a server" if workers == 1 else f"{workers} workers"


def _memory_bytes() -> int:
    """The memory of this machine, or of the container."""
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
