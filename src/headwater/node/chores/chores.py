"""The chores of a shard, for as long as this node does them: one tenure."""

from typing import NamedTuple

from headwater.log.images.files import Images
from headwater.log.seam import CommandLog
from headwater.node.chores.blob_sweeper import BlobSweeper
from headwater.node.chores.debts import Debts, SettleBucket
from headwater.node.chores.imager import ImageLimits, Imager
from headwater.node.committer import Now, Submit
from headwater.node.lake.lake import Lake
from headwater.node.purges.purger import Purger
from headwater.streams.commands.lake import ForgetSegments
from headwater.streams.state import State


class ChoreParts(NamedTuple):
    """What the chores of a shard work with."""

    state: State
    command_log: CommandLog
    images: Images | None
    image_limits: ImageLimits
    sweeper: BlobSweeper
    lake: Lake | None
    submit: Submit
    now: Now


class Chores:
    """Debts, images, blobs, purges and the lake. What remembers anything is made anew with each tenure."""

    def __init__(self, parts: ChoreParts) -> None:
        self._state, self._submit = parts.state, parts.submit
        self._sweeper, self._lake = parts.sweeper, parts.lake
        self._debts = Debts(parts.state, parts.now, parts.submit)
        self.imager: Imager | None = None
        if parts.images is not None:
            log, limits = parts.command_log, parts.image_limits
            self.imager = Imager(parts.state, log, parts.images, limits, self._move_on)
        self.purger = Purger(
            parts.state, parts.command_log, parts.submit, sweeper=parts.sweeper, lake=parts.lake, imager=self.imager
        )

    def start(self, route: Submit, settle_bucket: SettleBucket, epoch: int | None) -> None:
        """Begin. Debts of forks are paid on the shards of their sources, which `route` finds."""
        self._debts.start(route, settle_bucket)
        self._sweeper.start()
        if self.imager is not None:
            self.imager.start()
        if self._lake is not None:
            self._lake.begin_housekeeping(epoch)
        self.purger.start(epoch)

    def after_batch(self) -> None:
        if self._state.owed:
            self._debts.pay()
        if self._state.discarded:
            self._sweeper.sweep()
        if self.imager is not None:
            self.imager.begin_if_due()
        if self._state.cold.purges:
            self.purger.begin_if_asked()

    async def stop(self) -> None:
        """End every chore but the imager, which must outlive the last batch of a process."""
        await self.purger.stop()
        self._debts.stop()
        await self._sweeper.stop()
        if self._lake is not None:
            await self._lake.end_housekeeping()

    async def stop_imager(self) -> None:
        if self.imager is not None:
            await self.imager.stop()

    def _move_on(self) -> None:
        """Have a command without effect decided, so that the next image has another position."""
        self._submit(ForgetSegments(()), lambda _: None)
