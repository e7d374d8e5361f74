"""A bootstrap: everything a new reader needs, as of one instant."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from headwater.node.reads.cold import ColdReads, Stretch
from headwater.streams.reading import Slice
from headwater.streams.replies import Described


class Bootstrap:
    """What a stream is, and where the bytes after its snapshot are, in memory and in the lake."""

    def __init__(self, described: Described, stretches: list[Slice | Stretch], reads: ColdReads | None) -> None:
        self.described = described
        self._stretches, self._reads = stretches, reads

    async def slices(self) -> AsyncIterator[Slice]:
        """The bytes after the snapshot, a slice at a time."""
        for stretch in self._stretches:
            if isinstance(stretch, Slice):
                yield stretch
            else:
                assert self._reads is not None, "only a server with a lake has bytes in it"
                async with aclosing(self._reads.slices(stretch)) as slices:
                    async for slice_ in slices:
                        yield slice_
