"""One line about the machine, because a figure without it means little."""

import os
import platform
import time
from pathlib import Path
from statistics import median

SYNCS = 50


def describe(scratch: Path) -> str:
    """Return the cores, the Python version, and what one small synced write costs where the servers keep their data."""
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}, "
        f"one synced write of 4 KB takes {sync_seconds(scratch) * 1e3:.2f} ms"
    )


def sync_seconds(scratch: Path) -> float:
    """Measure one synced write; near zero means a file system in memory, where durable figures mean nothing."""
    path = scratch / "sync"
    seconds = []
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            began = time.monotonic()
            file.write(b"\0" * 4096)
            os.fdatasync(file.fileno())
            seconds.append(time.monotonic() - began)
    path.unlink()
    return median(seconds)
