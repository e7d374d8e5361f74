"""One server for all tests that need no special settings; each test has its own stream there."""

from collections.abc import Iterator
from itertools import count

import pytest

from headwater.testing import RunningServer, running_server

from .sockets import Wire

_numbers = count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[RunningServer]:
    with running_server() as server:
        yield server
        # Whatever the tests sent: an exception in the server would be in its log.
        first = server.output().partition("Traceback")[1:]
        assert not first[0], "".join(first)[:3000]


@pytest.fixture
def wire(server: RunningServer) -> Iterator[Wire]:
    with Wire(server.url) as wire:
        yield wire


@pytest.fixture
def path() -> str:
    """The path of a stream that no other test uses; nothing exists there yet."""
    return f"/v1/stream/s{next(_numbers)}"


@pytest.fixture
def text(wire: Wire, path: str) -> str:
    """An empty stream of text."""
    assert wire.ask("PUT", path, {"Content-Type": "text/plain"}).status == 201
    return path


@pytest.fixture
def documents(wire: Wire, path: str) -> str:
    """An empty stream of JSON."""
    assert wire.ask("PUT", path, {"Content-Type": "application/json"}).status == 201
    return path
