"""The composition root: what a server is made of, built from its settings."""

import fcntl
import os
import re
import secrets
import socket
import tempfile
from pathlib import Path

from headwater.lake.ownership import claim
from headwater.log.directory import follow, lock, recover
from headwater.log.images.objects import ObjectImages
from headwater.log.jetstream.opening import open_log
from headwater.log.jetstream.streams import ClusterConfig
from headwater.log.memory import MemoryLog
from headwater.log.workers.decided import DecidedPosition
from headwater.log.workers.shared_journal import SharedJournal
from headwater.node.chores.imager import ImageLimits
from headwater.node.clock import Clock
from headwater.node.cluster.keeping import NodeId
from headwater.node.cluster.membership import Profile
from headwater.node.cluster.shared_shard import SharedShard
from headwater.node.lake.parts import LakeLimits
from headwater.node.node import Node
from headwater.node.shard_parts import ShardLimits, ShardParts
from headwater.settings import Settings
from headwater.storage.blobs import MemoryBlobs
from headwater.storage.object_blobs import ObjectBlobs
from headwater.storage.opening import open_store
from headwater.storage.store import Store
from headwater.streams.commands.command import LEVEL
from headwater.streams.state import State

HOST_CHARACTERS_MAX = 24
NUMBERS_MAX = 1_000
"""The most processes on one machine that can get a name by default."""


def open_node(settings: Settings) -> Node:
    """Recover the state from the data directory, the cluster's log, or nowhere. Blocks while it recovers."""
    if settings.cluster:
        return open_member(settings, settings.node or node_name())
    if settings.memory:
        log_id = secrets.token_hex(8)
        return _node(settings, ShardParts(State(log_id), MemoryLog(log_id), None, MemoryBlobs()))
    lock(settings.data_directory)
    recovered = recover(settings.data_directory, settings.journal_file_bytes)
    store = open_store(settings.lake_url)
    claim(store, recovered.state.log_id)
    return _node(settings, ShardParts(*recovered), store)


def open_worker(settings: Settings, name: str, sequencer: Path, decided: DecidedPosition) -> Node:
    """Open the node of a worker: workers share a data directory, and a sequencer writes its journal."""
    store = open_store(settings.lake_url)
    followed = follow(
        settings.data_directory, lambda directory, disk: SharedJournal(directory, sequencer, decided, disk)
    )
    claim(store, followed.state.log_id)
    return _node(settings, ShardParts(*followed, node=NodeId(name, secrets.token_hex(8))), store)


def open_member(settings: Settings, name: str, clock: Clock | None = None) -> Node:
    """Open a node of a cluster, which has no data directory, only the log in NATS and the object store."""
    store, clock = open_store(settings.lake_url), clock or Clock()
    identity = NodeId(name, secrets.token_hex(8))
    level = min(settings.level_max or LEVEL, LEVEL)
    config = ClusterConfig(settings.cluster_urls, settings.cluster_name, 0, *identity, settings.address, level)
    opened = open_log(
        config,
        store,
        lambda log_id: ObjectImages(store, log_id),
        clock=clock.now,
        log_bytes_max=settings.cluster_log_bytes,
    )
    claim(store, opened.log.log_id)
    parts = ShardParts(opened.state, opened.log, opened.images, ObjectBlobs(store), identity)
    node = _node(settings, parts, store, clock)
    shard = node.only
    assert isinstance(shard, SharedShard)
    shard.join(Profile(identity, settings.address, level), opened.log)
    return node


def _node(settings: Settings, parts: ShardParts, store: Store | None = None, clock: Clock | None = None) -> Node:
    return Node(
        [parts],
        limits=ShardLimits(ImageLimits(settings.image_log_bytes), settings.page_bytes, LakeLimits.of(settings)),
        store=store,
        clock=clock,
    )


def node_name(folder: Path | None = None) -> str:
    """Return a name that no other process of this user on this machine uses while this process lives."""
    host = re.sub(r"[^a-z0-9]+", "-", socket.gethostname().lower()).strip("-")[:HOST_CHARACTERS_MAX] or "node"
    folder = folder or Path(tempfile.gettempdir()) / f"headwater-nodes-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for number in range(1, NUMBERS_MAX + 1):
        # The descriptor is kept open, and with it the lock, until the process ends.
        held = os.open(folder / f"{host}-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(held)
            continue
        return f"{host}-{number}"
    raise OSError(f"{NUMBERS_MAX} nodes run on this machine; give this one a name with --node.")
