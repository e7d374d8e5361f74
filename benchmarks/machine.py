"""One line about the machine, because a figure without it means little."""

import os
import platform
import time
from pathlib import Path
from statistics import median

SYNCS = 50


def describe(scratch: Path) -> str:
    """Names cores, Python, and what one small synchronous write costs where the servers keep their data."""
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}, "
        f"one synced write of 4 KB takes {sync_seconds(scratch) * 1e3:.2f} ms"
    )


def sync_seconds(scratch: Path) -> float:
    """Measures it: on a file system in memory it is near zero, and durable figures mean nothing there."""
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
