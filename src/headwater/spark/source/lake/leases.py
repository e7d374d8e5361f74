"""Leases: while a batch read is under way, the server keeps the objects that its plan refers to.

The plan takes a lease before it reads a catalog, and every task renews it while it reads. Spark tells a data source
neither that a batch has ended nor that its driver was killed; so a lease is not given back, it lapses when no task has
renewed it for a while. The server alone judges whether it has.
"""

import logging
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.spark.failures import LinkFailed, LinkRefused
from headwater.spark.link import Link, LinkSettings

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
