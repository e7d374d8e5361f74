"""Health: whether NATS stores what this node sends, and what to do when it does not."""

import logging
import os

from headwater.log.jetstream.client import Client
from headwater.log.jetstream.publishing import Publisher

SWITCH_SECONDS = 2.0
"""After how long without a message of ours coming back the next NATS server is tried."""
OUTAGE_SECONDS = 10.0
"""After how long without one coming back commands are refused: an election takes up to 8 s."""
LOST_SECONDS = 3.0
"""After how long without a connection commands are refused."""
LOST = "No NATS server can be reached; try again in a few seconds, or use another node."
STALLED = "NATS stores no messages, it may have lost its majority; try again in a few seconds."

log = logging.getLogger(__name__)


def end_process(error: BaseException) -> None:
    """End the process: it cannot follow the log any further, so no answer of it could be trusted."""
    log.critical("the log of the cluster cannot be followed, so the server stops: %s", error)
    os._exit(1)


class Health:
    """Watches the connection of one node."""

    def __init__(self, client: Client, publisher: Publisher) -> None:
        self._client, self._publisher = client, publisher
        self._switched_at = 0.0

    def judge(self, now_seconds: float) -> str | None:
        """Why nothing can be decided, as one sentence; tries another server before it comes to that."""
        if not self._client.connected:
            return LOST if now_seconds - self._client.lost_at > LOST_SECONDS else None
        if self._publisher.idle:
            return None
        stalled_since = self._publisher.progress_at
        if now_seconds - max(stalled_since, self._switched_at) > SWITCH_SECONDS:
            self._switched_at = now_seconds
            self._client.switch("it stores no messages")
        return STALLED if now_seconds - stalled_since > OUTAGE_SECONDS else None
