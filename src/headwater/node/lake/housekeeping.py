"""The housekeeping of a lake: flushes, catalogs, compaction and sweeps, for as long as this node does the chores."""

import asyncio
from typing import NamedTuple

from headwater.node.lake.cataloger import Cataloger
from headwater.node.lake.compactor import Compactor
from headwater.node.lake.flusher import Flusher, FlushFailed
from headwater.node.lake.lister import Lister
from headwater.node.lake.parts import STORE_TROUBLE, LakeParts
from headwater.node.lake.purger import LakePurger
from headwater.node.lake.sweeper import LakeSweeper

ENDED = "this node no longer does the chores"


class Counts(NamedTuple):
    """What the housekeeping has done so far."""

    flushed_segments: int = 0
    flushed_bytes: int = 0
    flush_failures: int = 0
    rewrites: int = 0
    rewritten_bytes: int = 0
    rewrite_failures: int = 0
    deleted_objects: int = 0

    def plus(self, other: "Counts") -> "Counts":
        return Counts(*(mine + its for mine, its in zip(self, other, strict=True)))


class Housekeeping:
    """Made when the chores begin, and never used again after they have ended."""

    def __init__(self, parts: LakeParts, epoch: int | None = None) -> None:
        self.epoch = epoch
        self.flusher = Flusher(parts, epoch)
        self.cataloger = Cataloger(parts, lambda: self.flusher.publishing)
        self.compactor = Compactor(parts, lambda: self.cataloger.overdue)
        self.sweeper = LakeSweeper(parts, self.cataloger.needs)
        self.lister = Lister(parts)
        self.purger = LakePurger(
            parts,
            flusher=self.flusher,
            compactor=self.compactor,
            cataloger=self.cataloger,
            lister=self.lister,
            sweeper=self.sweeper,
        )
        self._cold = parts.state.cold
        self._ended = False

    @property
    def counts(self) -> Counts:
        flusher, compactor = self.flusher, self.compactor
        return Counts(
            flusher.segments,
            flusher.bytes,
            flusher.failures,
            compactor.rewrites,
            compactor.bytes_written,
            compactor.failures,
            self.sweeper.deleted,
        )

    def start(self) -> None:
        self.flusher.start()
        self.cataloger.start()
        self.compactor.start()
        self.sweeper.start()
        self.lister.start()

    async def stop(self) -> None:
        self._ended = True
        await self.lister.stop()
        await self.purger.stop()
        await self.sweeper.stop()
        await self.compactor.stop()
        await self.flusher.stop()
        await self.cataloger.stop()
        self._cold.unlisted = None

    async def flush(self, all_tables: bool = False) -> int:
        """Wait until everything applied so far is in the lake and in a catalog; the position up to which it is.

        Optionally also in the tables that are otherwise written at intervals.
        """
        flushing = self.flusher.flush()
        await asyncio.wait([flushing])
        if flushing.cancelled():
            raise FlushFailed(ENDED)
        position = flushing.result()
        try:
            await self.cataloger.write()
            if all_tables:
                await self.lister.write()
        except STORE_TROUBLE as error:
            raise FlushFailed(str(error)) from error
        except RuntimeError as error:  # Its thread has ended.
            if self._ended:
                raise FlushFailed(ENDED) from error
            raise
        return position
