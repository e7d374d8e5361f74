"""One server for all tests that need no special settings; each test has its own bucket there."""

from collections.abc import Iterator
from itertools import count

import pytest

from headwater.testing import RunningServer, running_server

from ...sockets import Wire
from .pieces import JSON, TEXT, made

_numbers = count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[RunningServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def wire(server: RunningServer) -> Iterator[Wire]:
    with Wire(server.url) as wire:
        yield wire


@pytest.fixture
def free() -> str:
    """The path of a bucket that does not exist."""
    return f"/bucket-{next(_numbers)}"


@pytest.fixture
def bucket(wire: Wire, free: str) -> str:
    """The path of an empty bucket."""
    assert wire.ask("PUT", free).status == 201
    return free


@pytest.fixture
def text(wire: Wire, bucket: str) -> str:
    """An empty stream of text."""
    return made(wire, f"{bucket}/text", TEXT)


@pytest.fixture
def documents(wire: Wire, bucket: str) -> str:
    """An empty stream of JSON."""
    return made(wire, f"{bucket}/documents", JSON)
