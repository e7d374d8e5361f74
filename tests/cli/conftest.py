"""A server for each file of tests, and a name for each test."""

import secrets
from collections.abc import Iterator

import pytest

from headwater.testing import running_server

from .commands import Shell


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    """Commands against a server in memory."""
    with running_server() as server:
        yield Shell(server.url)


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"demo/{secrets.token_hex(6)}"
