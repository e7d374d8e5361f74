"""One server for all tests without special needs; each test runs once per client."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from itertools import count
from typing import Any

import pytest

from headwater.client import AsyncClient, Client, RetryPolicy
from headwater.testing import RunningServer, running_server

from .lifting import Lifted

Both = Callable[..., Any]
Run = Callable[[Coroutine[Any, Any, None]], None]

QUICK = RetryPolicy(attempts_max=5, first_delay_seconds=0.01, delay_seconds_max=0.1)
TEST_SECONDS_MAX = 60.0

_numbers = count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[RunningServer]:
    with running_server("--retention", "explicit", "--page-bytes", "1000", "--sse-seconds", "2") as server:
        yield server


@pytest.fixture
def name() -> str:
    """The name of a stream or bucket that does not exist."""
    return f"fresh-{next(_numbers)}"


@pytest.fixture(params=["sync", "async"])
def client_of(request: pytest.FixtureRequest) -> Both:
    """Makes a client with the methods of the asynchronous one."""

    def make(url: str, **options: Any) -> Any:
        options = {"retry": QUICK, "follow_retry": QUICK, **options}
        return Lifted(Client(url, **options)) if request.param == "sync" else AsyncClient(url, **options)

    return make


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TEST_SECONDS_MAX):
            await coroutine

    asyncio.run(bounded())
