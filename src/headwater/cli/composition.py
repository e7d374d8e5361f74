"""The composition root: what a server is made of, built from its settings."""

import secrets
from pathlib import Path

from headwater.lake.ownership import claim
from headwater.log.directory import follow, lock, recover
from headwater.log.memory import MemoryLog
from headwater.log.sequencer.decided import DecidedPosition
from headwater.log.sequencer.shared_journal import SharedJournal
from headwater.node.chores.imager import ImageLimits
from headwater.node.keeping import NodeId
from headwater.node.lake.lake import LakeLimits
from headwater.node.node import Node
from headwater.node.shard_parts import ShardLimits, ShardParts
from headwater.settings import Settings
from headwater.storage.blobs import MemoryBlobs
from headwater.storage.opening import open_store
from headwater.storage.store import Store
from headwater.streams.state import State


def open_node(settings: Settings) -> Node:
    """Recover the state from the data directory, or begin with an empty one in memory. Blocks while it recovers."""
    if settings.memory:
        log_id = secrets.token_hex(8)
        return _node(settings, ShardParts(State(log_id), MemoryLog(log_id), None, MemoryBlobs()))
    lock(settings.data_directory)
    recovered = recover(settings.data_directory, settings.segment_bytes)
    store = open_store(settings.lake_url)
    claim(store, recovered.state.log_id)
    return _node(settings, ShardParts(*recovered), store)


def open_worker(settings: Settings, name: str, sequencer: Path, decided: DecidedPosition) -> Node:
    """As `open_node`, for one of several processes that share a data directory, whose journal a sequencer writes."""
    store = open_store(settings.lake_url)
    followed = follow(
        settings.data_directory, lambda directory, disk: SharedJournal(directory, sequencer, decided, disk)
    )
    claim(store, followed.state.log_id)
    return _node(settings, ShardParts(*followed, node=NodeId(name, secrets.token_hex(8))), store)


def _node(settings: Settings, parts: ShardParts, store: Store | None = None) -> Node:
    return Node(
        [parts],
        limits=ShardLimits(ImageLimits(settings.image_log_bytes), settings.page_bytes, LakeLimits.of(settings)),
        store=store,
    )
