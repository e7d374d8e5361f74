"""Rescue: continue a cluster whose log is lost, from nodes that still run or from the object store alone.

Nodes that still run have applied everything that they acknowledged. So the image of the most advanced one, and a stream
that begins with the next message, continue the same log.

The object store alone has an image that may be old. What was acknowledged since is lost, so this is a new generation,
as after a restore: a new id, and positions far above those that the old log can have reached. The new image is written
first, the stream is created last; a rescue that was interrupted is repeated.
"""

from functools import partial
from typing import NamedTuple

import msgspec

from headwater.backup.restore import GENERATION_POSITIONS, begin_generation
from headwater.lake.format import segment_key
from headwater.lake.ownership import pass_on
from headwater.log.images.objects import ObjectImages
from headwater.log.images.restoring import newest_good_image
from headwater.log.jetstream import judging, streams
from headwater.log.jetstream.identity import create_stream, record_key, recorded_log_id, replace_record
from headwater.log.jetstream.judging import Mark
from headwater.log.jetstream.streams import ClusterConfig, LogRefused, StreamInfo
from headwater.log.jetstream.visiting import Visit
from headwater.storage.store import Store
from headwater.streams.commands.cluster import Cluster
from headwater.streams.images import image_of
from headwater.streams.segments import Segment
from headwater.streams.state import State


class Found(NamedTuple):
    """What a rescue from the object store can bring back: the state of the newest good image."""

    state: State
    old_log_id: str


def check_no_stream(config: ClusterConfig) -> None:
    """Refuse if NATS has a stream for this cluster: a log that is there is not lost."""
    with Visit(config) as visit:
        _refuse_stream(_info(visit, config), config)


def continue_log(config: ClusterConfig, log_id: str, sequence: int, log_bytes_max: int) -> None:
    """Create a stream that continues a log behind a message. Idempotent."""
    with Visit(config) as visit:
        info = _info(visit, config)
        as_wanted = (log_id, sequence + 1, sequence)
        if info is not None and (info.log_id, info.state.first_seq, info.state.last_seq) == as_wanted:
            return
        _refuse_stream(info, config)
        create_stream(visit, config, log_id, log_bytes_max, sequence + 1)


def _info(visit: Visit, config: ClusterConfig) -> StreamInfo | None:
    return visit.persist(partial(streams.stream_info, visit.client, config), "answer questions about streams")


def _refuse_stream(info: StreamInfo | None, config: ClusterConfig) -> None:
    if info is None:
        return
    first, last = info.state.first_seq, info.state.last_seq
    held = f"holds messages {first} to {last}" if last >= first else "exists already, though it is empty"
    raise LogRefused(
        f"The stream {config.stream} {held}, so nothing was changed; start the nodes, or delete the stream if its"
        " messages are of no use."
    )


def find_image(store: Store, shard: int = 0) -> Found:
    """The newest good image of the cluster whose objects are in a store."""
    log_id = recorded_log_id(store, shard)
    if log_id is None:
        raise LogRefused(f"{store.url} has no {record_key(shard)}, so it is not the lake of a cluster; check --lake.")
    restored = newest_good_image(ObjectImages(store, log_id, shard))
    if restored is None:
        raise LogRefused(f"{store.url} has no image that can be used, so everything was in the log; restore a backup.")
    state = restored.state
    stored = {item.key for item in store.items(f"segments/shard={shard}/")}
    keys = (_key(shard, held.segment) for held in state.cold.segments.values())
    if missing := [key for key in keys if key not in stored]:
        raise LogRefused(
            f"The newest image in {store.url} is too old: {len(missing)} segments that it names were replaced since and"
            f" deleted, such as {missing[0]}; restore a backup."
        )
    return Found(state, log_id)


def _key(shard: int, segment: Segment) -> str:
    return segment_key(shard, segment.first_position, segment.last_position, segment.id)


def begin_anew(config: ClusterConfig, store: Store, found: Found, log_bytes_max: int) -> str:
    """Begin a new generation with the state of an image, and return the id of its log."""
    state = found.state
    newest = max(ObjectImages(store, found.old_log_id, config.shard).positions())
    begin_generation(state)
    state.position = max(state.position, newest + GENERATION_POSITIONS)
    # The new log has no members yet; the level of its commands does not change.
    state.cluster = Cluster(level=state.cluster.level, cataloged=state.cluster.cataloged)
    mark = Mark(judging.VERSION, 0, state.position, state.now, 0, {})
    writer = ObjectImages(store, state.log_id, config.shard).begin(state.position, msgspec.msgpack.encode(mark))
    writer.write(image_of(state))
    writer.finish()
    replace_record(store, config.shard, state.log_id)
    pass_on(store, state.log_id)
    continue_log(config, state.log_id, 0, log_bytes_max)
    return state.log_id
