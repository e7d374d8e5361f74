"""Commands about the lake: a publication moves rows into it, a swap moves them within it."""

import msgspec

from headwater.streams.commands.command import COMMAND_BYTES, Command, Row
from headwater.streams.segments import Rows, Segment


class Publication(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A segment whose object is in the store, and which rows of which streams it contains."""

    segment: Segment
    rows: tuple[Rows, ...]


@Row(asked_by="chore", room="frees")
class PublishSegment(Command, frozen=True, tag="publish-segment.1"):
    """Release hot bytes that are now in the lake; refused as a whole after its deadline or if any part does not fit."""

    publication: Publication
    deadline: int
    flushed: int
    """With this segment, every row up to this position is in the lake; 0 while the flush has more segments to come."""
    epoch: int | None = None
    """On a shared log, since when the node that publishes does the chores; refused if another has taken them over."""

    def cost_bytes(self) -> int:
        return COMMAND_BYTES * (1 + len(self.publication.rows))


@Row(asked_by="chore", room="frees")
class SwapSegments(Command, frozen=True, tag="swap-segments.1"):
    """Replace segments by rewritten ones, all or nothing."""

    replaced: tuple[int, ...]
    publications: tuple[Publication, ...]
    deadline: int
    dropped: int
    """The highest position of a row that is in the old segments and in none of the new ones."""

    def cost_bytes(self) -> int:
        return COMMAND_BYTES * (1 + sum(len(publication.rows) for publication in self.publications))


@Row(asked_by="chore", room="frees")
class ForgetSegments(Command, frozen=True, tag="forget-segments.1"):
    """Unused objects have been deleted from the store: forget them."""

    ids: tuple[str, ...]
