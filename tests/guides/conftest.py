"""What every guide needs: the packages that its TypeScript imports, and ports that stay the same over restarts."""

import socket
from collections.abc import Callable

import pytest

from .node_project import install


@pytest.fixture(scope="session", autouse=True)
def packages() -> None:
    install()


@pytest.fixture
def free_port() -> Callable[[], int]:
    """Returns the number of a port that nothing listens on."""

    def find() -> int:
        with socket.create_server(("127.0.0.1", 0)) as found:
            port: int = found.getsockname()[1]
            return port

    return find
