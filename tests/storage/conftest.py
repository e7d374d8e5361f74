"""The contract covers every store that is shipped, including the faulty one while nothing fails."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.storage.memory import MemoryStore
from headwater.storage.opening import open_store
from headwater.storage.store import Store

from ..doubles.faulty_store import FaultyStore


@pytest.fixture(params=["memory", "faulty", "folder", "s3"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens the same empty store every time, as another process would; a store in memory is one object."""
    if request.param in ("memory", "faulty"):
        objects = MemoryStore()
        return lambda: FaultyStore(objects) if request.param == "faulty" else objects
    url = str(tmp_path / "lake") if request.param == "folder" else request.getfixturevalue("s3_url")
    return lambda: open_store(url)
