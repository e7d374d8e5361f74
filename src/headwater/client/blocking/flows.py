"""What is read piece by piece, for the blocking client."""

import codecs
from collections.abc import Iterator
from typing import Any

from headwater.client.blocking.io import Carrier, Flow
from headwater.client.errors import ProtocolViolation
from headwater.client.extensions import BootstrapHead
from headwater.client.reading import Reader
from headwater.client.values import Chunk, Snapshot
from headwater.client.wire import Program


class Follower(Flow[Chunk]):
    """The chunks of a stream as they come. Iterate it in a `with` block; `close` may be called from another thread.

    `offset` is where to go on after the last chunk that was given, and is good for another follower.
    """

    def __init__(self, carrier: Carrier, reader: Reader, timeout_seconds: float | None = None) -> None:
        super().__init__(carrier, reader.run(), timeout_seconds)
        self._reader = reader

    def __enter__(self) -> "Follower":
        return self

    @property
    def offset(self) -> str:
        return self._reader.offset

    @property
    def up_to_date(self) -> bool:
        return self._reader.told_up_to_date

    @property
    def closed(self) -> bool:
        """Whether the stream is closed, and all of it was given."""
        return self._reader.closed

    def messages(self) -> Iterator[Any]:
        """The messages of a JSON stream, one by one."""
        for chunk in self:
            yield from chunk.json()

    def text(self) -> Iterator[str]:
        """The text of a stream, in pieces; a character that was cut in two comes whole."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        for chunk in self:
            if piece := decoder.decode(chunk.data):
                yield piece


class Bootstrap(Flow[bytes]):
    """Within a `with` block: a snapshot, and an iterator of the messages behind it.

    The stream goes on at `next_offset`.
    """

    def __init__(self, carrier: Carrier, program: Program[None]) -> None:
        super().__init__(carrier, program)
        self._head: BootstrapHead | None = None

    def __enter__(self) -> "Bootstrap":
        head: Any = next(self, None)
        if not isinstance(head, BootstrapHead):
            raise ProtocolViolation("The bootstrap has no first part.")
        self._head = head
        return self

    @property
    def head(self) -> BootstrapHead:
        assert self._head is not None, "a bootstrap is used in a `with` block"
        return self._head

    @property
    def snapshot(self) -> Snapshot | None:
        return self.head.snapshot

    @property
    def next_offset(self) -> str:
        return self.head.next_offset

    @property
    def up_to_date(self) -> bool:
        return self.head.up_to_date

    @property
    def closed(self) -> bool:
        return self.head.closed
