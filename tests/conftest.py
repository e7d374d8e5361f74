"""What all tests share: one S3 server, in which each test has its own prefix, and how Hypothesis is run."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from headwater.storage.memory import MemoryStore
from headwater.storage.opening import open_store
from headwater.storage.store import Store
from headwater.testing.s3_server import RunningS3, running_s3

_numbers = count(1)

# A busy machine is no finding.
settings.register_profile("headwater", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headwater")


@pytest.fixture(scope="session")
def s3() -> Iterator[RunningS3]:
    with running_s3() as s3:
        yield s3


@pytest.fixture
def s3_url(s3: RunningS3, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a store that no other test uses, with the environment variables to reach it."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{s3.bucket}/test{next(_numbers)}/lake"


@pytest.fixture(params=["memory", "folder", "s3"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens the same empty store every time, as another process would; the store in memory is one object."""
    if request.param == "memory":
        store = MemoryStore()
        return lambda: store
    url = str(tmp_path / "lake") if request.param == "folder" else request.getfixturevalue("s3_url")
    return lambda: open_store(url)


@pytest.fixture
def store(reopen: Callable[[], Store]) -> Store:
    """An empty store."""
    return reopen()
