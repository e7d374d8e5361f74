"""The audit log: changes and denied requests with the identity behind them, one JSON object per line.

A thread writes the lines, to standard error or to a file that it only appends to. The server never waits for it: it
drops and counts lines that do not fit into the queue or that the disk refuses. At most 100 denied requests a second get
a line of their own; the rest are counted, and one line a second reports the count.

A line has the fields of `Record` and nothing else of a request: no credential, no query, no payload, and of its headers
only the program's name in `User-Agent`. Everything but ASCII is escaped, so no name of a stream can begin a new line.
"""

import json
import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Lock, Thread
from time import monotonic, time
from typing import NamedTuple, TypeAlias

QUEUE_LINES_MAX = 10_000
DENIED_PER_SECOND_MAX = 100
COUNT_SECONDS = 1.0
"""How often the other denied requests are counted in a line."""
LINES_PER_WRITE_MAX = 256
FIELD_CHARACTERS_MAX = 256
"""What a client chooses is cut to this; names of streams are shorter."""
COMPLAINT_SECONDS = 60.0
"""How often lost lines are reported in the server's log."""
CLOSE_SECONDS = 5.0
"""How long the end waits for lines that are not written yet."""
STANDARD_ERROR = 2

_PROGRAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,31}(/[A-Za-z0-9._+-]{1,16})?")
"""A name and a version; too short for any credential."""

log = logging.getLogger("headwater.audit")


class Event(StrEnum):
    """The events that are recorded. Appends and reads are not among them; the access log has those."""

    DENIED = "denied"
    CREATED = "created"
    DELETED = "deleted"
    FORKED = "forked"
    BUCKET_MADE = "bucket_made"
    BUCKET_DROPPED = "bucket_dropped"
    SNAPSHOT = "snapshot"
    RETAINED = "retained"
    SWAPPED = "swapped"
    PURGED = "purged"
    CONSUMER_REGISTERED = "consumer_registered"
    CONSUMER_DROPPED = "consumer_dropped"
    RELOADED = "reloaded"
    STARTED = "started"
    STOPPED = "stopped"


class Record(NamedTuple):
    """One line; fields that are None are left out."""

    event: Event
    who: str | None = None
    """The name of the identity: the id of a token, the subject of a ticket, the name in a certificate."""
    kind: str | None = None
    address: str | None = None
    action: str | None = None
    name: str | None = None
    """The canonical name of the stream, or the bucket."""
    status: int | None = None
    code: str | None = None
    request_id: str | None = None
    agent: str | None = None
    """The whole `User-Agent`; only the first program's name and version are written."""
    changed: tuple[str, ...] = ()
    """The entries of the access file that a reload has changed, by their ids."""


class _Line(NamedTuple):
    at_seconds: float
    record: Record


class _End(NamedTuple):
    """The last entry of the queue."""


_Entry: TypeAlias = _Line | _End | None
"""None only wakes the thread."""


class Throttle:
    """Limits the lines for denied requests and counts the rest. Use it in one thread at a time."""

    def __init__(self, per_second_max: int) -> None:
        self._per_second_max = per_second_max
        self._window, self._admitted = -1, 0
        self.held = 0

    def admit(self, now_seconds: float) -> bool:
        """Return whether another line may be written in this second; count it as held back if not."""
        window = int(now_seconds)
        if window != self._window:
            self._window, self._admitted = window, 0
        self._admitted += 1
        if self._admitted <= self._per_second_max:
            return True
        self.held += 1
        return False

    def take(self) -> int:
        """Return how many were counted since the last time."""
        held, self.held = self.held, 0
        return held


class Audit:
    """The audit log of a server. `path` is None for standard error; OSError if the file cannot be opened."""

    def __init__(
        self,
        path: Path | None,
        *,
        wall_clock: Callable[[], float] = time,
        clock: Callable[[], float] = monotonic,
        lines_max: int = QUEUE_LINES_MAX,
    ) -> None:
        self._path, self._wall_clock, self._clock = path, wall_clock, clock
        self._file = STANDARD_ERROR if path is None else _open(path)
        self._queue: Queue[_Entry] = Queue(lines_max)
        self._throttle, self._lock = Throttle(DENIED_PER_SECOND_MAX), Lock()
        self._held, self._held_since = False, 0.0
        """Whether denied requests have been counted that no line mentions yet, and since when."""
        self._reopens = False
        self._is_torn = False
        """Whether the file ends within a line."""
        self._not_queued = self._not_written = 0
        """Each is counted by one thread only."""
        self._complained_at = float("-inf")
        self._thread = Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """How many lines were lost."""
        return self._not_queued + self._not_written

    def record(self, record: Record) -> None:
        """Queue a line; never waits and never fails."""
        if record.event is Event.DENIED:
            with self._lock:
                if not self._throttle.admit(self._clock()):
                    self._wake_for_held()
                    return
        try:
            self._queue.put_nowait(_Line(self._wall_clock(), record))
        except Full:
            self._not_queued += 1

    def _wake_for_held(self) -> None:
        """Wake the thread, so that it writes the count of denied requests within a second."""
        if not self._held:
            self._held, self._held_since = True, self._clock()
            self._wake()

    def _wake(self) -> None:
        with suppress(Full):  # Then it is awake.
            self._queue.put_nowait(None)

    def reopen(self) -> None:
        """Open the file again before the next line: it was moved away. If that fails, the old one is kept."""
        self._reopens = True
        self._wake()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Write what is waiting, then end; gives up on a disk that takes too long."""
        try:
            self._queue.put(_End(), timeout=seconds)
        except Full:
            return
        self._thread.join(seconds)

    # -- The thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        ends = False
        while not ends:
            entries = self._next_entries()
            ends = any(isinstance(entry, _End) for entry in entries)
            lines = [_render(entry) for entry in entries if isinstance(entry, _Line)]
            if self._held and (ends or self._clock() - self._held_since >= COUNT_SECONDS):
                lines += self._take_held()
            if self._reopens:
                self._open_again()
            if lines:
                self._write(lines)
        if self._path is not None:
            os.close(self._file)

    def _next_entries(self) -> list[_Entry]:
        """Wait for entries, but not for long if denied requests have been counted."""
        try:
            entries = [self._queue.get(timeout=COUNT_SECONDS if self._held else None)]
            while not self._queue.empty() and len(entries) < LINES_PER_WRITE_MAX:
                entries.append(self._queue.get_nowait())
        except Empty:
            return []
        return entries

    def _take_held(self) -> list[bytes]:
        with self._lock:
            count, self._held = self._throttle.take(), False
        return [_encode({"time": _timestamp(self._wall_clock()), "event": "denied", "count": count})] if count else []

    def _open_again(self) -> None:
        self._reopens = False
        if self._path is None:
            return
        try:
            file = _open(self._path)
        except OSError as error:
            log.error("the audit log %s cannot be opened again, so the old file is used: %s", self._path, error)
            return
        os.close(self._file)
        self._file, self._is_torn = file, False

    def _write(self, lines: list[bytes]) -> None:
        data = b"".join(lines)
        if self._is_torn:
            data = b"\n" + data
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError as error:
            whole = data[:written].count(b"\n") - (self._is_torn and written > 0)
            self._not_written += len(lines) - whole
            if written:
                self._is_torn = not data[:written].endswith(b"\n")
            self._complain(error)
        else:
            self._is_torn = False

    def _complain(self, error: OSError) -> None:
        now = self._clock()
        if now - self._complained_at >= COMPLAINT_SECONDS:
            self._complained_at = now
            log.error("the audit log cannot be written, %d lines are lost so far: %s", self.lost, error)


def _open(path: Path) -> int:
    # A named pipe without a reader is an error instead of a wait.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    file = os.open(path, flags, 0o600)
    os.set_blocking(file, True)
    return file


def _render(line: _Line) -> bytes:
    record = line.record
    fields: dict[str, object] = {"time": _timestamp(line.at_seconds)}
    for name, value in zip(Record._fields, record, strict=True):
        if isinstance(value, str):
            fields[name] = value[:FIELD_CHARACTERS_MAX]
        elif value is not None and value != ():
            fields[name] = value
    if record.agent is not None:
        fields["agent"] = program_of(record.agent)
    return _encode(fields)


def program_of(agent: str) -> str:
    """Return the first program in a `User-Agent`, or "other" if that might be anything else than a name.

    >>> program_of("curl/8.5.0"), program_of("Mozilla/5.0 (X11; Linux x86_64)"), program_of("hw_app_" + "x" * 49)
    ('curl/8.5.0', 'Mozilla/5.0', 'other')
    """
    first = agent.partition(" ")[0]
    return first if _PROGRAM.fullmatch(first) else "other"


def _timestamp(at_seconds: float) -> str:
    return datetime.fromtimestamp(at_seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _encode(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"
