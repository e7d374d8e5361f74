"""Commands about buckets, which are opened and dropped on every shard; the first shard decides."""

from headwater.streams.commands.command import Command, Row


@Row(asked_by="client", room="frees")
class OpenBucket(Command, frozen=True, tag="open-bucket.1"):
    """Create a bucket. Idempotent."""

    bucket: str


@Row(asked_by="client", room="frees")
class SealBucket(Command, frozen=True, tag="seal-bucket.1"):
    """Block the creation of streams in a bucket that is about to be dropped, and count those in it."""

    bucket: str
    seal: str
    deadline: int
    decides: bool


@Row(asked_by="chore", room="frees")
class UnsealBucket(Command, frozen=True, tag="unseal-bucket.1"):
    """The bucket stays: remove this seal, and no other."""

    bucket: str
    seal: str


@Row(asked_by="chore", room="frees")
class DropBucket(Command, frozen=True, tag="drop-bucket.1"):
    """Remove a sealed bucket; on the shard that decides, only before the seal's deadline."""

    bucket: str
    seal: str
    decided: bool = False


@Row(asked_by="chore", room="frees")
class SettleBucket(Command, frozen=True, tag="settle-bucket.1"):
    """Ask the first shard, after a seal's deadline, whether it dropped the bucket; afterwards that seal cannot."""

    bucket: str
    seal: str
    deadline: int
