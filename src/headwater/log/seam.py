"""The seam between a shard and the log that orders its commands."""

from collections.abc import Callable, Iterator
from typing import Protocol

from headwater.streams.commands import Batch, Command

Deliver = Callable[[Batch], None]


class CommandLog(Protocol):
    """An ordered, durable log of commands; positions count commands and never restart."""

    @property
    def log_id(self) -> str:
        """The log's id, random at its first start and never another one after."""

    @property
    def has_room(self) -> bool:
        """Whether commands that need space may be appended; those that free some always may."""

    @property
    def size_bytes(self) -> int:
        """How much has been replayed and appended since the start; only differences mean anything."""

    def replay(self, after: int) -> Iterator[Batch]:
        """Every batch above a position, in order; once, before `start`."""

    def start(self, deliver: Deliver) -> None:
        """From now on call `deliver` on the running event loop with every batch that has been decided, in order."""

    def append(self, at: int, commands: list[Command]) -> None:
        """Order these commands, make them durable, then deliver them."""

    def forget(self, upto: int) -> None:
        """Nothing up to this position will ever be replayed again."""

    def close(self) -> None:
        """Finish what was appended and let go of every resource."""
