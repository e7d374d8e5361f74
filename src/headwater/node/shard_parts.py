"""What a shard is made of, and its limits."""

from typing import NamedTuple

from headwater.log.images.files import Images
from headwater.log.seam import CommandLog
from headwater.node.chores.imager import ImageLimits
from headwater.node.cluster.keeping import NodeId
from headwater.node.lake.parts import LAKE_LIMITS, LakeLimits
from headwater.storage.blobs import BlobStore
from headwater.streams.state import State

PAGE_BYTES = 1024 * 1024


class ShardParts(NamedTuple):
    """What a shard is opened from: its state so far, its log, and where its images and snapshots are."""

    state: State
    command_log: CommandLog
    images: Images | None
    blobs: BlobStore
    node: NodeId = NodeId("", "")
    """Which of the processes that share the log this is."""


class ShardLimits(NamedTuple):
    """The limits of images, pages and the lake."""

    image: ImageLimits
    page_bytes: int = PAGE_BYTES
    lake: LakeLimits = LAKE_LIMITS
