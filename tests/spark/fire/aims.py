"""Aims: a kill tells most while a batch is half done, so the killer looks at what was begun and is not finished."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc

from headwater.spark.link import Link, LinkFailed, LinkRefused, LinkSettings

POLL_SECONDS = 0.02
LOOK_SECONDS_MAX = 5.0

Mark = Callable[[], int | None]
"""How much the target of a pipeline holds; None if that cannot be known at the moment."""


class Moment(NamedTuple):
    """A batch that is under way, and whether some of it has been written."""

    batch: int
    written: bool


class Aim:
    """Looks at one pipeline from outside: at the checkpoint of its query, and at what it writes."""

    def __init__(self, checkpoint: Path, mark: Mark) -> None:
        self._checkpoint, self._mark = checkpoint, mark
        self._before: int | None = None

    def begin(self) -> None:
        """What is there by now does not count as written any more."""
        self._before = self._mark()

    def look(self) -> Moment | None:
        """What is half done; None if nothing is. Only who looks often knows what was there before a batch."""
        batch, now = self._under_way(), self._mark()
        if batch is None or self._before is None:
            self._before = now
        return None if batch is None else Moment(batch, now is not None and now != self._before)

    def wait(self, written: bool, tend: Callable[[], None], seconds: float) -> bool:
        """Wait for a batch that is under way, or of which some has been written; whether it came."""
        self.begin()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            moment = self.look()
            if moment is not None and (moment.written or not written):
                return True
            tend()
            time.sleep(POLL_SECONDS)
        return False

    def _under_way(self) -> int | None:
        begun, done = (_numbers(self._checkpoint / part) for part in ("offsets", "commits"))
        return max(begun) if begun and max(begun) not in done else None


def _numbers(folder: Path) -> set[int]:
    try:
        return {int(path.name) for path in folder.iterdir() if path.name.isdigit()}
    except FileNotFoundError:
        return set()


def bytes_of_bucket(url: str, bucket: str) -> Mark:
    """The bytes of all streams of a bucket."""
    settings = LinkSettings(url, retries=0, timeout_seconds=LOOK_SECONDS_MAX)

    def mark() -> int | None:
        try:
            with Link(settings) as link:
                return sum(int(pc.sum(page["tail"]).as_py()) for page in link.describe_all(f"{bucket}/"))
        except (LinkFailed, LinkRefused):
            return None

    return mark


def files_of_folder(folder: Path, except_for: Path) -> Mark:
    """The files below a folder, but for some."""

    def mark() -> int | None:
        try:
            return sum(not path.is_relative_to(except_for) for path in folder.rglob("*"))
        except FileNotFoundError:
            # It went away while it was being looked at.
            return None

    return mark
