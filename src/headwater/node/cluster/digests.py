"""Digests: every node hashes the state that it has at a checkpoint, so that replicas can be compared."""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from headwater.streams.images import Walk
from headwater.streams.state import State

SLICE_SECONDS = 0.001
"""How long encoding may hold the loop before other work gets a turn."""

log = logging.getLogger(__name__)


class Digest(NamedTuple):
    """The state behind a checkpoint: its position, and its hash; None while it is computed, or if it could not be."""

    id: str
    position: int
    sha256: str | None = None
    failed: bool = False


class Digests:
    """Hashes the latest checkpoint; one that comes while another walk of the state is in progress is given up."""

    def __init__(self, state: State, compare: Callable[[str, str], None] | None) -> None:
        """`compare` tells the other nodes the hash, if they are members of a cluster."""
        self._state, self._compare = state, compare
        self._seen = state.cluster.checkpoint
        self.latest: Digest | None = None
        self._task: asyncio.Task[None] | None = None

    def after_batch(self) -> None:
        """Begin if the batch had a checkpoint: all nodes are at the same position now."""
        checkpoint = self._state.cluster.checkpoint
        if checkpoint == self._seen:
            return
        self._seen = checkpoint
        digest = Digest(checkpoint, self._state.position)
        if any(isinstance(observer, Walk) for observer in self._state.observers):
            self.latest = digest._replace(failed=True)
            return
        self.latest = digest
        self._task = asyncio.get_running_loop().create_task(self._hash(digest, Walk(self._state)))
        self._task.add_done_callback(self._hashed)

    async def _hash(self, digest: Digest, walk: Walk) -> None:
        hashed = hashlib.sha256()
        try:
            until = time.monotonic() + SLICE_SECONDS
            for piece in walk.pieces():
                hashed.update(piece)
                if time.monotonic() > until:
                    await asyncio.sleep(0)
                    until = time.monotonic() + SLICE_SECONDS
        finally:
            walk.end()
        self.latest = digest._replace(sha256=hashed.hexdigest())
        if self._compare is not None:
            self._compare(digest.id, hashed.hexdigest())

    def _hashed(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        if not task.cancelled() and task.exception() is not None:
            log.error("the state could not be hashed", exc_info=task.exception())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
