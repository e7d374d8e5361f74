"""What the operating system knows about a server process."""

import os
import time
from collections.abc import Callable
from pathlib import Path


def resident_bytes(pid: int) -> int:
    """How much memory a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_files(pid: int) -> int:
    """How many file descriptors a process has open, sockets among them."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether a condition becomes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
