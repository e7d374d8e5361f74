"""An image on demand, on any node: what a cluster whose log is lost is continued from."""

import asyncio

import msgspec

from headwater.log.images.files import ImageDamaged
from headwater.log.seam import MarkDamaged
from headwater.node.chores.imager import ImageLimits, Imager
from headwater.node.cluster.shared_shard import SharedShard
from headwater.protocol.refusals import Code, Refusal
from headwater.storage.store import KeyMissing, StoreFailed
from headwater.streams.images import Walk


class ImageTaken(msgspec.Struct, frozen=True):
    """An image that is stored: of which log, and up to which position and message of it."""

    log_id: str
    position: int
    sequence: int


async def take_image(shard: SharedShard) -> ImageTaken | Refusal:
    """Store an image of what this node has applied; nothing is purged for it."""
    state, images, membership = shard.state, shard.images, shard.membership
    assert membership is not None, "a node of a cluster is a member, or becomes one"
    assert images is not None, "a node of a cluster keeps images in the object store"
    if any(isinstance(observer, Walk) for observer in state.observers):
        return Refusal(Code.OVERLOADED, "The state is being written or hashed already; try again in a few seconds.")
    imager = Imager(state, shard.command_log, images, ImageLimits(log_bytes=0), move_on=lambda: None)
    try:
        position = await imager.write()
        # Of several images at one position the first counts; its message may be an earlier one, without commands since.
        data = await asyncio.get_running_loop().run_in_executor(None, images.mark, position)
        mark = membership.log.read_mark(data)
    except (StoreFailed, KeyMissing, ImageDamaged, MarkDamaged) as error:
        detail = f"The image could not be stored ({str(error).rstrip('.')}); check the object store."
        return Refusal(Code.OVERLOADED, detail)
    finally:
        await imager.stop()
    return ImageTaken(state.log_id, position, mark.sequence)
