"""Aims: a kill reveals most while a batch is in progress, so the killer watches for batches that are not finished."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc

from headwater.spark.failures import LinkFailed, LinkRefused
from headwater.spark.link import Link, LinkSettings

POLL_SECONDS = 0.02
REQUEST_SECONDS_MAX = 5.0

Mark = Callable[[], int | None]
"""How much the target of a pipeline holds; None if that is unknown at the moment."""


class Moment(NamedTuple):
    """A batch in progress, and whether some of it has been written."""

    batch: int
    written: bool


class Aim:
    """Observes one pipeline from outside: the checkpoint of its query, and what it writes."""

    def __init__(self, checkpoint: Path, mark: Mark) -> None:
        self._checkpoint, self._mark = checkpoint, mark
        self._before: int | None = None

    def begin(self) -> None:
        """Take the present contents as the baseline for what counts as written."""
        self._before = self._mark()

    def observe(self) -> Moment | None:
        """The batch in progress, if there is one. Call it often: the baseline is taken between batches."""
        batch, now = self._in_progress(), self._mark()
        if batch is None or self._before is None:
            self._before = now
        return None if batch is None else Moment(batch, now is not None and now != self._before)

    def wait(self, written: bool, tend: Callable[[], None], seconds: float) -> bool:
        """Wait for a batch in progress, or for one that is partly written; whether it came in time."""
        self.begin()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            moment = self.observe()
            if moment is not None and (moment.written or not written):
                return True
            tend()
            time.sleep(POLL_SECONDS)
        return False

    def _in_progress(self) -> int | None:
        begun, done = (_numbers(self._checkpoint / part) for part in ("offsets", "commits"))
        return max(begun) if begun and max(begun) not in done else None


def _numbers(folder: Path) -> set[int]:
    try:
        return {int(path.name) for path in folder.iterdir() if path.name.isdigit()}
    except FileNotFoundError:
        return set()


def bytes_of_bucket(url: str, bucket: str) -> Mark:
    """The bytes of all streams of a bucket."""
    settings = LinkSettings(url, retries=0, timeout_seconds=REQUEST_SECONDS_MAX)

    def mark() -> int | None:
        try:
            with Link(settings) as link:
                return sum(int(pc.sum(page["tail"]).as_py()) for page in link.describe_all(f"{bucket}/"))
        except (LinkFailed, LinkRefused):
            return None

    return mark


def files_of_folder(folder: Path, except_for: Path) -> Mark:
    """The number of files in a folder, without those in `except_for`."""

    def mark() -> int | None:
        try:
            return sum(not path.is_relative_to(except_for) for path in folder.rglob("*"))
        except FileNotFoundError:
            # A file disappeared while the folder was listed.
            return None

    return mark
