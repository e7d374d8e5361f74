"""Processes that a test started, and those that these started: found by their parents, killed one by one."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

POLL_SECONDS = 0.02


class Process(NamedTuple):
    """A process as it was seen; the number may be another's by now, so whoever kills looks again."""

    pid: int
    parent: int
    command: str


def family(*pids: int) -> list[Process]:
    """These processes and all that descend from them, parents first; those that have ended are left out."""
    children: dict[int, list[Process]] = {}
    found: list[Process] = []
    for process in _all():
        children.setdefault(process.parent, []).append(process)
        if process.pid in pids:
            found.append(process)
    for process in found:
        found += [child for child in children.get(process.pid, []) if child not in found]
    return found


def _all() -> Iterable[Process]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name in parentheses may hold spaces; what comes behind it is the state and the parent.
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if state != "Z":
                    yield Process(int(entry.name), int(parent), command.strip())


def kill(victims: Iterable[Process], *roots: int) -> list[Process]:
    """End processes at once (SIGKILL): those that are still there and descend from one of ours; which they were."""
    handles: list[tuple[Process, int]] = []
    for victim in victims:
        with contextlib.suppress(ProcessLookupError):
            handles.append((victim, os.pidfd_open(victim.pid)))
    try:
        # A handle is of whoever had the number when it was made; if that is one of ours now, it was ours then.
        ours = family(*roots)
        killed = [(victim, handle) for victim, handle in handles if victim in ours]
        for _, handle in killed:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        return [victim for victim, _ in killed]
    finally:
        for _, handle in handles:
            os.close(handle)


def kill_family(root: int) -> list[Process]:
    """End a process and all that descends from it, at one instant."""
    return kill(family(root), root)


def wait_until(condition: Callable[[], bool], seconds: float, what: Callable[[], str]) -> None:
    """Wait for something that must come to be; what it was is said if it does not."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what()} ({seconds:.0f} s)"
        time.sleep(POLL_SECONDS)
