"""Commands about snapshots, and about the history that they replace."""

import msgspec

from headwater.protocol.etags import Version
from headwater.streams.commands.command import COMMAND_BYTES, VERSION_BYTES, Command, Row


class Snapshot(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A materialised view of a stream up to an offset; its bytes are stored in a blob."""

    offset: int
    record: int
    blob: str
    content_type: str
    size: int
    digest: str


NO_SNAPSHOT = "none"
"""What a publication replaces if the stream has no snapshot yet; no digest is this."""


@Row(asked_by="client", room="takes")
class PublishSnapshot(Command, frozen=True, tag="publish-snapshot.1"):
    """Make a snapshot visible whose blob is already durable; `trims` says whether history before it is dropped."""

    name: str
    incarnation: int
    snapshot: Snapshot
    trims: bool
    tail: int | None = None
    """Where the stream ended when the offset was found to be a boundary; nothing is known of offsets beyond it."""
    if_match: tuple[Version, ...] | None = None
    replaces: str | None = None
    """The digest that the present snapshot must have; `NO_SNAPSHOT` if there must be none."""
    deadline: int | None = None
    """After this time it is refused: the blob may have been deleted. Blobs of earlier versions have none."""

    def cost_bytes(self) -> int:
        return COMMAND_BYTES + VERSION_BYTES * len(self.if_match or ())


@Row(asked_by="client", room="frees")
class Retain(Command, frozen=True, tag="retain.1"):
    """Drop history before an offset; a snapshot must cover it."""

    name: str
    incarnation: int
    offset: int
    record: int
    tail: int | None = None
    """As in `PublishSnapshot`."""


@Row(asked_by="chore", room="frees")
class Discarded(Command, frozen=True, tag="discarded.1"):
    """An unused blob has been deleted from disk: forget it."""

    blob: str
