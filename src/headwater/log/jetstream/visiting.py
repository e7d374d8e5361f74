"""Visits: blocking calls of NATS, before a server has begun to serve. They have a loop of their own, in a thread."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from headwater.log.jetstream.client import Client, NotConnected
from headwater.log.jetstream.streams import ApiRefused, ClusterConfig, LogRefused, judge_server

VISIT_SECONDS_MAX = 60.0
"""How long NATS may take to start, to elect a leader and to answer, before a start fails."""
REPORT_SECONDS = 3.0
"""After how long the log says what a start waits for."""
POLL_SECONDS = 0.05

T = TypeVar("T")

log = logging.getLogger(__name__)


class Visit:
    """A connection to NATS for blocking calls, from any thread but its own."""

    def __init__(self, config: ClusterConfig, seconds_max: float = VISIT_SECONDS_MAX) -> None:
        self._config, self._seconds_max = config, seconds_max
        self.client = Client(config.urls, config.node)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="nats visit", daemon=True)

    def __enter__(self) -> "Visit":
        self._thread.start()
        try:
            self._loop.call_soon_threadsafe(self.client.start)
            self._wait_connected()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        self.call(self.client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait_connected(self) -> None:
        deadline = time.monotonic() + self._seconds_max
        report_at = time.monotonic() + REPORT_SECONDS
        while not self.client.connected:
            if time.monotonic() > deadline:
                raise LogRefused(
                    f"No NATS server can be reached at {self.client.servers} ({self.client.problem}); check --cluster."
                )
            if time.monotonic() > report_at:
                log.warning("waiting for a NATS server: %s", self.client.problem)
                report_at = deadline
            time.sleep(POLL_SECONDS / 5)
        reason = judge_server(self.client.info)
        if reason is not None:
            raise LogRefused(reason)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the visit's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def persist(self, work: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        """Try a call again until NATS answers it: servers may still be starting, or electing a leader."""
        deadline = time.monotonic() + self._seconds_max
        report_at = time.monotonic() + REPORT_SECONDS
        while True:
            try:
                return self.call(work())
            except (NotConnected, TimeoutError) as error:
                reason = str(error) or "no answer"
            except ApiRefused as error:
                if not error.is_passing:
                    raise
                reason = error.description
            if time.monotonic() > deadline:
                raise LogRefused(
                    f"NATS does not {what} ({reason}); check that its servers run with JetStream, three in a cluster."
                )
            if time.monotonic() > report_at:
                log.warning("waiting for NATS to %s: %s", what, reason)
                report_at = deadline
            time.sleep(POLL_SECONDS)
