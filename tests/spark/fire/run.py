"""A run under fire: writers write, a pipeline runs, the lake is compacted, processes are killed; no data may differ."""

import json
from pathlib import Path
from random import Random
from threading import Event

from headwater.spark.link import Link, LinkSettings

from ..cluster.standalone import Cluster
from .aims import Aim
from .checks import read_streams
from .drivers import Driver, verb
from .killer import Killer
from .ledger import Ledger, Timeline
from .server import MortalServer
from .writers import Writer

SOURCE, OTHER = "source", "other"
STREAMS = 48
WRITERS = 3
PAUSE_SECONDS = 0.05
"""Between two appends of a writer, so that the pipeline can keep up on the cores that are left."""
COMPACTIONS = 2
"""How often a job compacts the lake, in addition to the server's own compactions."""


class Fire:
    """One server with two buckets, and a pipeline that reads one of them."""

    def __init__(self, folder: Path, cluster: Cluster, server: MortalServer, random: Random, *, hazards: bool) -> None:
        self._folder, self._cluster, self._server, self._random = folder, cluster, server, random
        self._hazards = hazards
        self.ledger, self._other = Ledger(STREAMS, hazards), Ledger(STREAMS // 2, True)
        self.rewrites = 0

    def burn(self, driver: Driver, aim: Aim, kills: int) -> Killer:
        """Kill `kills` times while the pipeline runs, then stop the writers."""
        killer = Killer(self._cluster, self._server, driver, aim, self._random)
        registered, harmless = Event(), Event()
        harmless.set()
        writers = [
            *(self._writer(SOURCE, self.ledger.timelines[number::WRITERS], registered) for number in range(WRITERS)),
            self._writer(OTHER, self._other.timelines, harmless),
        ]
        for writer in writers:
            writer.start()
        turns = [kills * turn // (COMPACTIONS + 1) for turn in range(1, COMPACTIONS + 1)]
        try:
            for number in range(kills):
                killer.strike()
                self._check(registered, writers)
                if number + 1 in turns:
                    self._compact(number)
        finally:
            for writer in writers:
                writer.stop()
        return killer

    def _writer(self, bucket: str, timelines: list[Timeline], may_harm: Event) -> Writer:
        random = Random(self._random.random())
        return Writer(self._server.url, bucket, timelines, random, pause_seconds=PAUSE_SECONDS, may_harm=may_harm)

    def _check(self, registered: Event, writers: list[Writer]) -> None:
        for writer in writers:
            if writer.error is not None:
                raise writer.error
        if self._hazards and not registered.is_set():
            # Until the pipeline is registered as a consumer, the server keeps nothing for it.
            with Link(LinkSettings(self._server.url)) as link:
                if link.consumers():
                    registered.set()

    def _compact(self, number: int) -> None:
        compaction = Driver(verb("compact", None, self._server.url, "--json"), self._folder, f"compact-{number}")
        compaction.finish()
        self.rewrites += json.loads(compaction.output().splitlines()[-1])["rewrites"]

    # -- Results --------------------------------------------------------------------------------------------------

    def check_source(self) -> None:
        """Check that the source streams contain what the writers wrote, as far as it was not trimmed."""
        found = read_streams(self._server.url, SOURCE)
        for timeline in self.ledger.timelines:
            present, messages = timeline.present(), found.pop(timeline.name, [])
            kept = present[len(present) - len(messages) :] if timeline.fate == "trimmed" else present
            assert messages == kept, f"{timeline.name} holds {len(messages)} messages instead of {len(kept)}"
        assert not found, f"no writer wrote {sorted(found)}"

    def summary(self, killer: Killer, driver: Driver) -> str:
        runs, compactions = driver.runs, self._server.counts["compactions"]
        return (
            f"{killer.summary()}; {runs['started']} drivers, {runs['broken']} of which failed.\n"
            f"{self.ledger.summary()}; {compactions} compactions by the server and {self.rewrites} by the job."
        )
