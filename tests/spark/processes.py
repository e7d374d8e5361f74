"""Processes that a test started, and their descendants: found by their parents, killed one by one."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

POLL_SECONDS = 0.02


class Process(NamedTuple):
    """A process as observed. Its id may have been reused since, so check again before killing it."""

    pid: int
    parent: int
    command: str


def family(*pids: int) -> list[Process]:
    """These processes and all their descendants, parents first, without those that have ended."""
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
                # The name in parentheses may contain spaces; the state and the parent come after it.
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if state != "Z":
                    yield Process(int(entry.name), int(parent), command.strip())


def kill(victims: Iterable[Process], *roots: int) -> list[Process]:
    """Kill processes (SIGKILL) that still exist and descend from one of `roots`; those that were killed."""
    handles: list[tuple[Process, int]] = []
    for victim in victims:
        with contextlib.suppress(ProcessLookupError):
            handles.append((victim, os.pidfd_open(victim.pid)))
    try:
        # A handle refers to the process that had the id when the handle was opened. If that process is one of ours now,
        # it was ours then.
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
    """Kill a process and all its descendants at once."""
    return kill(family(root), root)


def wait_until(condition: Callable[[], bool], seconds: float, what: Callable[[], str]) -> None:
    """Wait for a condition; fail with the message `what` if it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what()} ({seconds:.0f} s)"
        time.sleep(POLL_SECONDS)
