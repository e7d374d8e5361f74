"""Kills at the worst moments: in the middle of an image, a rotation, an upload, a flush, or anywhere."""

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from headwater.testing import RunningServer

POLL_SECONDS = 0.0005
AIM_SECONDS_MAX = 4.0

SHORT_SYNCS = {"PYTHONPATH": str(Path(__file__).parent / "short_syncs")}
"""The environment of a server that commits on the loop, compiled, whatever the disk; for every second cycle."""


class Killer:
    """Kills a server on a data directory, whose files show what the server was doing."""

    def __init__(self, data: Path, journal_file_bytes: int, random: Random) -> None:
        self._images, self._journal, self._snapshots = data / "images", data / "journal", data / "snapshots"
        self._lake_uploads = data / "lake" / ".uploads"
        self._journal_file_bytes, self._random = journal_file_bytes, random
        self.kills = 0
        self.in_an_image = 0
        self.in_a_spare = 0
        self.in_an_upload = 0
        self.in_a_flush = 0

    def kill(self, server: RunningServer, load_seconds: float) -> None:
        """Let it work for a while, aim at something, and kill it."""
        time.sleep(self._random.uniform(0.2, 1.0) * load_seconds)
        aim = self._random.choice(("image", "image", "image", "spare", "upload", "flush", "flush", "nothing"))
        if aim == "image":
            _wait_for(self._image_is_written)
            time.sleep(self._random.choice((0, 0.0005, 0.002, 0.005)))
        elif aim == "spare":
            _wait_for(self._spare_is_made)
        elif aim == "upload":
            _wait_for(self._snapshot_is_uploaded)
            time.sleep(self._random.choice((0, 0, 0.0005, 0.002)))
        elif aim == "flush":
            _wait_for(self._segment_is_uploaded)
            time.sleep(self._random.choice((0, 0, 0.0005, 0.002, 0.01)))
        server.kill()
        self.kills += 1
        self.in_an_image += self._image_is_written()
        self.in_a_spare += self._spare_is_made()
        self.in_an_upload += self._snapshot_is_uploaded()
        self.in_a_flush += self._segment_is_uploaded()

    def _image_is_written(self) -> bool:
        return any(path.suffix == ".tmp" for path in self._images.glob("*"))

    def _snapshot_is_uploaded(self) -> bool:
        return any(path.suffix == ".tmp" for path in self._snapshots.glob("*"))

    def _segment_is_uploaded(self) -> bool:
        return any(True for _ in self._lake_uploads.glob("*"))

    def _spare_is_made(self) -> bool:
        try:
            return (self._journal / "spare").stat().st_size < self._journal_file_bytes
        except FileNotFoundError:
            return True


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + AIM_SECONDS_MAX
    while not condition() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
