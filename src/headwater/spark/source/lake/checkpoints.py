"""Whether Spark keeps the progress of a query in a temporary checkpoint, from which no other run resumes.

A data source is not told where the checkpoint is. But if a query is started without one, Spark makes a local folder
whose name has a known form, and writes the end of each batch there before it plans the batch. A query that finds its
own random name in such a folder knows that it is temporary; one that does not find it may have any checkpoint.
"""

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

PREFIX = "temporary-"
FOLDERS_MAX = 1_000
"""Folders that are looked at, the latest first: those of queries that failed are never deleted."""
OFFSETS_BYTES_MAX = 256 * 1024


def temporary_places() -> set[Path]:
    """Where the driver's Java makes temporary folders: by default, as the environment says, or in a YARN container."""
    return {Path("/tmp"), Path(tempfile.gettempdir()), Path.cwd() / "tmp"}


def is_temporary(consumer: str, places: Iterable[Path] | None = None) -> bool:
    """Whether the checkpoint of the query that is registered under this name is known to be temporary."""
    name = f'"{consumer}"'.encode()
    found = [one for place in (temporary_places() if places is None else places) for one in _folders(place)]
    latest = sorted(found, reverse=True)[:FOLDERS_MAX]
    return any(name in _latest_offsets(folder) for _, folder in latest)


def _folders(place: Path) -> list[tuple[float, Path]]:
    """The temporary folders in a place, each with the time of its last change."""
    found = []
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with suppress(FileNotFoundError):
                    found.append((entry.stat().st_mtime, Path(entry)))
    return found


def _latest_offsets(checkpoint: Path) -> bytes:
    """The end of the latest batch; nothing if it cannot be read, because the folder is another user's or is deleted."""
    try:
        batches = [file for file in (checkpoint / "offsets").iterdir() if file.name.isdecimal() and file.is_file()]
        if not batches:
            return b""
        with max(batches, key=lambda file: int(file.name)).open("rb") as file:
            return file.read(OFFSETS_BYTES_MAX)
    except OSError:
        return b""
