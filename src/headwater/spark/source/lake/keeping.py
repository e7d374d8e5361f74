"""What makes the server keep rows and objects of the lake that are still to be read: leases and registrations."""

import logging
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from headwater.protocol.refusals import Code
from headwater.spark.failures import LinkFailed, LinkRefused
from headwater.spark.link import Link, LinkSettings
from headwater.spark.positions import by_shard

# -- Leases of batch reads ---------------------------------------------------------------------------------------------
#
# The plan takes a lease before it reads a catalog, and every task renews it while it reads. Spark tells a data source
# neither that a batch has ended nor that its driver was killed, so a lease is never returned: it lapses when no task
# has renewed it for a while. Only the server decides whether it has.


LEASE_SECONDS = 600
"""How long the tasks of a planned read may wait for an executor, and how long a killed driver delays deletions."""
RENEW_SECONDS = 60.0
"""How often a Python worker renews the lease that its tasks read under."""
RENEWED_MAX = 100
"""How many leases a Python worker remembers."""

log = logging.getLogger(__name__)

_renewed_at: dict[str, float] = {}
"""When this process last began to renew each lease: many short tasks need only one renewal."""


def take_lease(link: Link) -> str | None:
    """A lease on everything that the lake has now; None if the server has none to give, and grace has to suffice."""
    lease = f"spark-batch-{secrets.token_hex(8)}"
    try:
        link.lease(lease, LEASE_SECONDS)
    except LinkRefused as refused:
        log.warning("The read has no lease, so it may fail if it takes long: %s", refused)
        return None
    return lease


@contextmanager
def renewing(settings: LinkSettings, lease: str | None) -> Iterator[None]:
    """Renew a lease for as long as the block runs, also while Spark does not ask for more rows."""
    if lease is None:
        yield
        return
    ended = threading.Event()
    threading.Thread(target=_renew, args=(settings, lease, ended), name="lake-lease", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _renew(settings: LinkSettings, lease: str, ended: threading.Event) -> None:
    while not ended.wait(_pause_seconds(lease)):
        while len(_renewed_at) >= RENEWED_MAX:
            del _renewed_at[next(iter(_renewed_at))]
        _renewed_at[lease] = time.monotonic()
        try:
            with Link(settings) as link:
                if not link.renew_lease(lease, LEASE_SECONDS):
                    # The objects may all be there still, so the task reads on.
                    log.warning("The lease of this read has lapsed; if an object is missing, repeat the read.")
                    return
        except (LinkFailed, LinkRefused) as failure:
            log.warning("The lease of this read could not be renewed yet: %s", failure)


def _pause_seconds(lease: str) -> float:
    renewed_at = _renewed_at.get(lease)
    return 0.0 if renewed_at is None else max(renewed_at + RENEW_SECONDS - time.monotonic(), 0.0)


# -- Registrations of streaming queries --------------------------------------------------------------------------------
#
# A query reports when Spark asks it for something, which may be hours apart. If it may be silent for less time than the
# default, a thread of its process renews the last report meanwhile. Spark kills that process when the query stops,
# whatever the reason, so that the silence begins there.


AD_HOC_SILENCE_SECONDS = 600
"""How long the lake keeps rows for a query that nothing can resume: it was stopped, or its driver is restarting."""
BEATS = 4
"""Signs of life in the time that a query may be silent."""


class _Report(NamedTuple):
    log_id: str
    consumer: str
    position: int


class Registrar:
    """Reports how far one query has read."""

    def __init__(self, link: Link, settings: LinkSettings, silence_seconds: int | None, *, beats: int = BEATS) -> None:
        self._link, self._settings = link, settings
        self._silence_seconds, self._beats = silence_seconds, beats
        self._reporting = threading.Lock()
        self._last: _Report | None = None
        self._last_at = 0.0
        self._ended = threading.Event()
        self._heart: threading.Thread | None = None

    @property
    def consumer(self) -> str | None:
        """The name under which the query is registered, as far as is known."""
        last = self._last
        return None if last is None else last.consumer

    def register(self, log_id: str, consumer: str, position: int) -> None:
        """Record how far the query has read."""
        with self._reporting:
            self._link.register(consumer, by_shard(position), self._silence_seconds)
            self._remember(_Report(log_id, consumer, position))

    def renew(self, log_id: str, consumer: str, position: int) -> bool:
        """Record how far it has read, unless the server says that it has lapsed; whether it has not."""
        with self._reporting:
            renewed = self._link.renew(consumer, by_shard(position), self._silence_seconds)
            self._remember(_Report(log_id, consumer, position) if renewed else None)
        return renewed

    def forget(self, consumer: str) -> None:
        """Remove the registration."""
        with self._reporting:
            self._remember(None)
            self._link.forget(consumer)

    def shorten(self, log_id: str, consumer: str, position: int) -> None:
        """Let the registration end soon after the query, where the server can; it is in force."""
        before, self._silence_seconds = self._silence_seconds, AD_HOC_SILENCE_SECONDS
        try:
            self.renew(log_id, consumer, position)
        except LinkRefused as refused:
            if refused.code != Code.NOT_IMPLEMENTED:
                raise
            # A cluster whose nodes are being upgraded.
            self._silence_seconds = before

    def stop(self) -> None:
        """Give no more signs of life. Spark does not always get to call this."""
        self._ended.set()

    def _remember(self, report: _Report | None) -> None:
        self._last, self._last_at = report, time.monotonic()
        if self._silence_seconds is not None and self._heart is None:
            self._heart = threading.Thread(target=self._beat, name="lake-consumer", daemon=True)
            self._heart.start()

    def _beat(self) -> None:
        while not self._ended.wait(self._pause_seconds()):
            with self._reporting:
                if self._pause_seconds() <= 0:
                    self._last_at = time.monotonic()
                    self._sign()

    def _pause_seconds(self) -> float:
        silence_seconds = self._silence_seconds or AD_HOC_SILENCE_SECONDS
        return max(self._last_at + silence_seconds / self._beats - time.monotonic(), 0.0)

    def _sign(self) -> None:
        if self._last is None:
            return
        try:
            # A link is for one thread.
            with Link(self._settings) as link:
                link.expect_log(self._last.log_id)
                # If it has lapsed, the query's own next report finds out what it missed.
                link.renew(self._last.consumer, by_shard(self._last.position), self._silence_seconds)
        except (LinkFailed, LinkRefused) as failure:
            log.warning("The registration of this query could not be renewed yet: %s", failure)


# -- Temporary checkpoints ---------------------------------------------------------------------------------------------
#
# A data source is not told where the checkpoint is. But if a query is started without one, Spark makes a local folder
# whose name has a known form, and writes the end of each batch there before it plans the batch. A query that finds its
# own random name in such a folder knows that it is temporary, and that no other run resumes from it.


PREFIX = "temporary-"
FOLDERS_MAX = 1_000
"""Folders that are looked at, the latest first: those of queries that failed are never deleted."""
OFFSETS_BYTES_MAX = 256 * 1024


def temporary_places() -> set[Path]:
    """Where the driver's Java makes temporary folders: by default, as the environment says, or in a YARN container."""
    return {Path("/tmp"), Path(tempfile.gettempdir()), Path.cwd() / "tmp"}


def is_temporary(consumer: str, places: Iterable[Path] | None = None) -> bool:
    """Whether the checkpoint of the query that is registered under this name is known to be temporary."""
    name = f'"{consumer}"'.encode()
    found = [one for place in (temporary_places() if places is None else places) for one in _folders(place)]
    latest = sorted(found, reverse=True)[:FOLDERS_MAX]
    return any(name in _latest_offsets(folder) for _, folder in latest)


def _folders(place: Path) -> list[tuple[float, Path]]:
    """The temporary folders in a place, each with the time of its last change."""
    found = []
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with suppress(FileNotFoundError):
                    found.append((entry.stat().st_mtime, Path(entry)))
    return found


def _latest_offsets(checkpoint: Path) -> bytes:
    """The end of the latest batch; nothing if it cannot be read, because the folder is another user's or is deleted."""
    try:
        batches = [file for file in (checkpoint / "offsets").iterdir() if file.name.isdecimal() and file.is_file()]
        if not batches:
            return b""
        with max(batches, key=lambda file: int(file.name)).open("rb") as file:
            return file.read(OFFSETS_BYTES_MAX)
    except OSError:
        return b""
