"""Stores for images, the one in memory wrapped so that a test can make it fail."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.log.images import ImageFiles, Images
from headwater.log.object_images import ObjectImages
from headwater.storage.memory import MemoryStore
from headwater.storage.opening import open_store
from headwater.testing import FaultyDisk

LOG_ID = "9f2c"


@pytest.fixture(params=["files", "memory", "folder", "s3"])
def open_images(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Images]:
    """Opens the same images every time, as another process would."""
    if request.param == "files":
        disk = FaultyDisk()
        return lambda: ImageFiles(Path("/data/images"), disk, LOG_ID)
    if request.param == "memory":
        store = MemoryStore()
        return lambda: ObjectImages(store, LOG_ID)
    url = str(tmp_path / "lake") if request.param == "folder" else request.getfixturevalue("s3_url")
    return lambda: ObjectImages(open_store(url), LOG_ID)
