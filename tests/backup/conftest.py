"""A running server with streams of every kind, to be backed up."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing import RunningServer, running_server

from ..http.sockets import Wire
from .servers import fill


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def server(data: Path) -> Iterator[RunningServer]:
    with running_server(data=data) as server:
        with Wire(server.url) as wire:
            fill(wire)
        yield server
