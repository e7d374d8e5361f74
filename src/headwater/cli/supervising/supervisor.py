"""The supervisor: start the processes of a server, restart those that die, and stop all of them.

    a child that died                     what happens
    any, by its own fault, before the     the server has not started: all end, and the child's sentence is printed
      first time that all were ready
    the first, which others depend on     all others end, and all are restarted
    another                               it is restarted
    any, after a signal to stop           the rest end, the first one last

Restarts of a child that keeps dying back off exponentially.

A child is forked, told of the supervisor's end by a closed socket, and reports over another one. The supervisor has one
thread and no event loop, so a fork is safe, and a child needs no arguments but Python objects.
"""

import logging
import os
import select
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

REPORT_BYTES = 1 << 16
BACKOFF_SECONDS = 0.1
BACKOFF_SECONDS_MAX = 5.0
"""How long to wait before a restart; doubled each time, unless the child ran well for a while."""
WELL_SECONDS = 10.0

log = logging.getLogger(__name__)


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a child tells the supervisor, as one line of JSON."""

    ready: bool = False
    facts: object = None
    """What a ready child reports about itself."""
    failed: str = ""
    """Why the child cannot start, as one sentence."""
    misused: bool = False
    """Whether it failed because a setting is wrong."""
    stuck_pid: int = 0
    """A sibling that is stuck and should be killed."""


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
    """The child's main function; returns the exit code."""
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


class ChildFailed(Exception):
    """A server cannot start; the message is a sentence. `misused` says that a setting is wrong."""

    def __init__(self, reason: str, *, misused: bool) -> None:
        super().__init__(reason)
        self.misused = misused


class Ready(NamedTuple):
    """A child that serves: its process, and what it reported about itself."""

    pid: int
    facts: object


class _Life:
    """A role, and the child that plays it."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.child: Child | None = None
        self.unread = b""
        self.ready: Ready | None = None
        self.pause = BACKOFF_SECONDS
        self.start_at = 0.0
        self.reported = Report()


class Supervisor:
    """Runs in the main thread, which has no event loop."""

    def __init__(
        self,
        roles: Sequence[Role],
        on_ready: Callable[[Mapping[str, Ready]], None],
        *,
        stop_seconds: float,
    ) -> None:
        self._lives = [_Life(role) for role in roles]
        self._on_ready, self._stop_seconds = on_ready, stop_seconds
        self._lifeline = socket.socketpair()
        self._signals: list[int] = []
        self._announced = False
        self._stop_by = float("inf")
        self._told_first = False
        self._failure: ChildFailed | None = None
        self._code = 0
        self._selector = selectors.DefaultSelector()

    def run(self) -> int:
        """Run until a signal arrives and all children have ended; return the exit code."""
        woken, waker = socket.socketpair()
        for sock in (woken, waker):
            sock.setblocking(False)
        self._selector.register(woken, selectors.EVENT_READ, lambda: woken.recv(4096))
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda number, _: self._signals.append(number))
        try:
            self._start_due()
            while any(life.child is not None for life in self._lives) or not self._stopping:
                for key, _ in self._selector.select(self._patience()):
                    key.data()
                self._turn()
        finally:
            # No child outlives the supervisor, whatever error ends it.
            self._kill_all()
            signal.set_wakeup_fd(-1)
        if self._failure is not None:
            raise self._failure
        return self._code

    @property
    def _stopping(self) -> bool:
        return self._stop_by < float("inf")

    def _patience(self) -> float:
        """Return the seconds until something is due."""
        now = time.monotonic()
        due = [life.start_at - now for life in self._lives if self._may_start(life)]
        return max(0.0, min([*due, self._stop_by - now, 60.0]))

    def _may_start(self, life: _Life) -> bool:
        """Whether a child can start: the first when all others have ended, the others while the first serves."""
        if life.child is not None or self._stopping:
            return False
        if life.role.is_first:
            return not any(one.child for one in self._lives if not one.role.is_first)
        return all(one.ready for one in self._lives if one.role.is_first)

    def _turn(self) -> None:
        numbers, self._signals = self._signals, []
        for number in numbers:
            if number == signal.SIGHUP:
                self._tell(signal.SIGHUP, first=False)
            elif number != signal.SIGCHLD and not self._stopping:
                self._stop(signal.Signals(number).name)
        for life in self._lives:
            if life.child is not None and (code := _ended(life.child.pid)) is not None:
                self._bury(life, code)
        if self._stopping:
            self._end_the_rest()
        else:
            self._start_due()

    # -- Starting -------------------------------------------------------------------------------------------------

    def _start_due(self) -> None:
        """Start what is due."""
        now = time.monotonic()
        for life in self._lives:
            if self._may_start(life) and life.start_at <= now:
                serving = any(one.ready for one in self._lives if one.role.kind == life.role.kind)
                firsts = {one.role.name: one.child.pid for one in self._lives if one.role.is_first and one.child}
                child = fork(life.role, self._lifeline, now, others_serve=serving, first_pids=firsts)
                life.child = child
                life.unread, life.reported = b"", Report()
                self._selector.register(child.reports, selectors.EVENT_READ, lambda life=life: self._hear(life))

    def _hear(self, life: _Life) -> bool:
        """Take what a child reports; returns whether there may be more."""
        assert life.child is not None
        try:
            data = life.child.reports.recv(REPORT_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(life.child.reports)
            return False
        *lines, life.unread = (life.unread + data).split(b"\n")
        for line in lines:
            report = msgspec.json.decode(line, type=Report)
            if report.failed:
                life.reported = report
            if report.stuck_pid:
                self._end_stuck(report.stuck_pid)
            if report.ready:
                life.ready = Ready(life.child.pid, report.facts)
        if not self._announced and all(one.ready for one in self._lives):
            self._announced = True
            self._on_ready({one.role.name: one.ready for one in self._lives if one.ready is not None})
        return True

    def _end_stuck(self, pid: int) -> None:
        for life in self._lives:
            if life.child is not None and life.child.pid == pid:
                os.kill(pid, signal.SIGKILL)

    # -- Ends -----------------------------------------------------------------------------------------------------

    def _bury(self, life: _Life, code: int) -> None:
        """Handle the end of a child."""
        child, was_ready = life.child, life.ready is not None
        assert child is not None
        self._hear_the_rest(life)
        if child.reports in self._selector.get_map():
            self._selector.unregister(child.reports)
        child.reports.close()
        life.child = life.ready = None
        now = time.monotonic()
        if now - child.started_at > WELL_SECONDS:
            life.pause = BACKOFF_SECONDS
        life.start_at, life.pause = now + life.pause, min(2 * life.pause, BACKOFF_SECONDS_MAX)
        reason, how = life.reported.failed, f"signal {-code}" if code < 0 else f"exit code {code}"
        if self._stopping:
            if code and was_ready:
                self._code = 1
                log.error("process %s ended with %s%s", life.role.name, how, f": {reason}" if reason else "")
            return
        first_serves = all(one.ready for one in self._lives if one.role.is_first)
        cannot_start = code > 0 and not was_ready and (life.role.is_first or (first_serves and not self._announced))
        if cannot_start:
            reason = reason or f"Process {life.role.name} ended with exit code {code} before it was ready."
            self._failure = ChildFailed(reason, misused=life.reported.misused)
            self._stop("a failed start")
            return
        log.error("process %s ended with %s and is restarted%s", life.role.name, how, f": {reason}" if reason else "")
        if life.role.is_first:
            for other in self._lives:
                if other.child is not None:
                    os.kill(other.child.pid, signal.SIGKILL)

    def _hear_the_rest(self, life: _Life) -> None:
        """Read what a child reported just before its end."""
        assert life.child is not None
        while life.child.reports in self._selector.get_map() and self._hear(life):
            pass

    def _stop(self, why: str) -> None:
        self._stop_by = time.monotonic() + self._stop_seconds
        log.info("stopping all processes", extra={"signal": why})
        self._tell(signal.SIGTERM, first=False)

    def _tell(self, number: signal.Signals, *, first: bool) -> None:
        for life in self._lives:
            if life.child is not None and life.role.is_first is first:
                os.kill(life.child.pid, number)

    def _end_the_rest(self) -> None:
        """Stop the first child after all others, and kill children that take too long."""
        if time.monotonic() >= self._stop_by:
            log.error("processes did not stop within %g s and are killed", self._stop_seconds)
            self._code, self._stop_by = 1, time.monotonic() + self._stop_seconds
            self._tell(signal.SIGKILL, first=True)
            self._tell(signal.SIGKILL, first=False)
        elif not self._told_first and not any(life.child for life in self._lives if not life.role.is_first):
            self._told_first = True  # Once: a second signal may interrupt what the first one began.
            self._tell(signal.SIGTERM, first=True)

    def _kill_all(self) -> None:
        for life in self._lives:
            if life.child is not None:
                os.kill(life.child.pid, signal.SIGKILL)
                os.waitpid(life.child.pid, 0)
        for sock in self._lifeline:
            sock.close()


def _ended(pid: int) -> int | None:
    """The exit code of a child that has ended, negative for a signal."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None
