"""A child of the supervisor: forked, told of the supervisor's end by a closed socket, and reporting over another.

The supervisor has one thread and no event loop, so a fork is safe, and a child needs no arguments but Python objects.
"""

import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import msgspec

REPORT_BYTES = 1 << 16


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a child tells the supervisor, as one line of JSON."""

    ready: bool = False
    facts: object = None
    """What a child that is ready has to say of itself."""
    failed: str = ""
    """Why the child cannot start, as one sentence."""
    misused: bool = False
    """Whether it failed because a setting is wrong."""
    stuck_pid: int = 0
    """A sibling that no longer works, and should be ended."""


class Link(NamedTuple):
    """A child's connection to its supervisor."""

    lifeline: socket.socket
    """Readable, at its end, as soon as the supervisor is gone."""
    reports: socket.socket
    others_serve: bool
    """Whether another child of the same kind serves clients already."""
    first_pids: dict[str, int]
    """The children that this one depends on."""

    @property
    def is_cut(self) -> bool:
        """Whether the supervisor is gone."""
        return bool(select.select([self.lifeline], [], [], 0)[0])

    def report(self, report: Report) -> None:
        with suppress(OSError):  # The supervisor is gone; the lifeline says so, too.
            self.reports.sendall(msgspec.json.encode(report) + b"\n")


class Role(NamedTuple):
    """What a child is for."""

    name: str
    kind: str
    run: Callable[[Link], int]
    """Its whole life, which returns its exit code."""
    is_first: bool = False
    """Whether all others depend on it: it starts before them, ends after them, and they end if it dies."""


class Child(NamedTuple):
    """A running child, as the supervisor sees it."""

    role: Role
    pid: int
    reports: socket.socket
    started_at: float


def fork(
    role: Role,
    lifeline: tuple[socket.socket, socket.socket],
    now: float,
    *,
    others_serve: bool,
    first_pids: dict[str, int],
) -> Child:
    """Start a child; `lifeline` is a pair of sockets of which only the supervisor keeps the second one."""
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        theirs.close()
        ours.setblocking(False)
        return Child(role, pid, ours, now)
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
        ours.close()
        lifeline[1].close()
        code = role.run(Link(lifeline[0], theirs, others_serve, first_pids))
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
