"""Opening a cluster's log at the start of a node: the newest good image, then the log behind it."""

import gc
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from headwater.log.images.files import Images
from headwater.log.images.restoring import newest_good_image
from headwater.log.jetstream.health import end_process
from headwater.log.jetstream.identity import LOG_BYTES_MAX, Established, establish
from headwater.log.jetstream.judging import decode_mark
from headwater.log.jetstream.log import JetStreamLog
from headwater.log.jetstream.streams import ClusterConfig, LogBehind, LogRefused
from headwater.log.seam import MarkDamaged
from headwater.storage.store import Store
from headwater.streams.apply import apply
from headwater.streams.state import State

ATTEMPTS_MAX = 5
"""How often a start begins again because the log was purged behind a newer image while an older one was read."""

log = logging.getLogger(__name__)


class Opened(NamedTuple):
    """A log that is caught up with, and the state as of its end."""

    state: State
    log: JetStreamLog
    images: Images


def open_log(
    config: ClusterConfig,
    store: Store,
    images_of: Callable[[str], Images],
    *,
    clock: Callable[[], int],
    log_bytes_max: int = LOG_BYTES_MAX,
    on_failure: Callable[[BaseException], None] = end_process,
) -> Opened:
    """Find or begin the log, and catch up with it. Blocks for as long as that takes, so call it in a thread.

    `images_of` opens the images of the log with this id. LogRefused says why the node cannot start.
    """
    established = establish(config, store, log_bytes_max=log_bytes_max)
    images = images_of(established.log_id)
    collecting = gc.isenabled()
    gc.disable()
    try:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return _catch_up(config, established, images, clock, on_failure)
            except LogBehind as error:
                log.info("the log was purged behind a newer image, so the start begins again: %s", error)
                if attempt == ATTEMPTS_MAX:
                    raise LogRefused(
                        f"No good image in {store.url} reaches the beginning of the log ({str(error).rstrip('.')});"
                        " restore an image from a copy, or begin anew with headwater cluster rescue."
                    ) from error
    finally:
        if collecting:
            gc.enable()
    raise AssertionError("the last attempt returns or raises")


def _catch_up(
    config: ClusterConfig,
    established: Established,
    images: Images,
    clock: Callable[[], int],
    on_failure: Callable[[BaseException], None],
) -> Opened:
    started = time.monotonic()
    newest = max(images.positions(), default=0)
    restored = newest_good_image(images)
    state, mark = (State(established.log_id), b"") if restored is None else restored
    image_position = state.position
    _check_image(state, mark, established.log_id)
    command_log = JetStreamLog(config, established, mark, clock=clock, on_failure=on_failure)
    for batch in command_log.replay(after=state.position):
        apply(state, batch)
    if state.position < newest:
        raise LogRefused(
            f"The log ends at position {state.position}, but an image covers position {newest}: NATS has lost"
            " acknowledged messages; restore the stream from a copy, or begin anew with headwater cluster rescue."
        )
    if state.position:
        log.info(
            "caught up with %d streams at position %d (image at %d) in %.1f s",
            len(state.streams),
            state.position,
            image_position,
            time.monotonic() - started,
        )
    return Opened(state, command_log, images)


def _check_image(state: State, mark: bytes, log_id: str) -> None:
    """Refuse an image of another log, or one whose mark belongs to another position."""
    if state.log_id != log_id:
        raise LogRefused(f"The newest image is of log {state.log_id}, but this cluster has log {log_id}; check --lake.")
    if not state.position:
        return
    try:
        position = decode_mark(mark).position
    except MarkDamaged as error:
        raise LogRefused(f"The image at position {state.position} cannot be used. {error}") from error
    if position != state.position:
        raise LogRefused(f"The image at position {state.position} names position {position} of the log; it is damaged.")
