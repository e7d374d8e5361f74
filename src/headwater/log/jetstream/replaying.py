"""Replaying: at the start, every message behind a mark is read back, before the loop serves anything."""

import time
from collections.abc import Iterator
from functools import partial

from headwater.log.jetstream import streams
from headwater.log.jetstream.fetching import Fetcher
from headwater.log.jetstream.judging import Judge, Taken
from headwater.log.jetstream.streams import ClusterConfig, LogRefused, StreamInfo
from headwater.log.jetstream.visiting import Visit

REPLAY_SECONDS_MAX = 30.0
"""How long a replay waits for the next message that NATS says is there."""
STALE_SECONDS_MAX = 30.0
"""How long a leader that was cut off may answer before it notices."""
POLL_SECONDS = 0.1


def replay(config: ClusterConfig, log_id: str, judge: Judge) -> Iterator[tuple[bytes, Taken | None]]:
    """Every message from where the judge stands to where the log ends now, judged. Blocks.

    LogBehind if the log begins too late for that.
    """
    with Visit(config) as visit:
        info = _current_info(visit, config, log_id, judge.sequence)
        if (behind := info.behind(judge.sequence)) is not None:
            raise behind
        fetcher = Fetcher(visit.client, config)
        arrived_at = time.monotonic()
        while judge.sequence < info.state.last_seq:
            for stored in visit.persist(partial(fetcher.fetch, judge.sequence + 1), "return stored messages"):
                arrived_at = time.monotonic()
                yield stored.data, judge.take(stored.sequence, stored.data)
            if time.monotonic() - arrived_at > REPLAY_SECONDS_MAX:
                raise LogRefused(f"NATS does not return message {judge.sequence + 1} of the stream {config.stream}.")


def _current_info(visit: Visit, config: ClusterConfig, log_id: str, applied: int) -> StreamInfo:
    """What JetStream says of the stream, once that is not older than what an image of the state has applied.

    A former leader that was cut off from the others may answer; a log that stays too short has lost messages.
    """
    deadline = time.monotonic() + STALE_SECONDS_MAX
    while True:
        info = visit.persist(partial(streams.stream_info, visit.client, config), "answer questions about streams")
        if info is None or info.log_id != log_id:
            raise LogRefused(f"The stream {config.stream} was removed or replaced during the start; start again.")
        if info.state.last_seq >= applied:
            return info
        if time.monotonic() > deadline:
            raise LogRefused(
                f"The stream {config.stream} ends at message {info.state.last_seq}, but an image covers {applied}: NATS"
                " has lost acknowledged messages; restore the stream, or begin anew with headwater cluster rescue."
            )
        time.sleep(POLL_SECONDS)
