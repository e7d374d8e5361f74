"""The registration of a query as a consumer of the lake, and the signs of life that keep it in force.

A query reports when Spark asks it for something, which may be hours apart. If it may be silent for a shorter time than
the default, a thread of its process renews the last report meanwhile. Spark kills that process when the query stops,
whatever the reason, so that the silence begins there.
"""

import logging
import threading
import time
from typing import NamedTuple

from headwater.protocol.refusals import Code
from headwater.spark.failures import LinkFailed, LinkRefused
from headwater.spark.link import Link, LinkSettings
from headwater.spark.positions import by_shard

AD_HOC_SILENCE_SECONDS = 600
"""How long the lake keeps rows for a query that nothing can resume: it was stopped, or its driver is restarting."""
BEATS = 4
"""Signs of life in the time that a query may be silent."""

log = logging.getLogger(__name__)


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
