"""The tests of the base protocol, of following, producers and extensions, with a server that asks for a token."""

import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from headwater.testing import RunningServer

from ..http.guarded import Guarded, guarded
from . import test_extensions, test_following, test_producers, test_streams
from .conftest import Both

MODULES = (test_streams, test_following, test_producers, test_extensions)
OWN = (" Client(", "AsyncClient(", "urllib", '"Authorization"')
"""What tests have that make requests without the fixture, and so without its token, or have their own credential."""


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    flags = ("--retention", "explicit", "--page-bytes", "1000", "--sse-seconds", "2")
    rights = {"client": ["read,append,create,delete,snapshot,pipeline *"]}
    with guarded(tmp_path_factory.mktemp("access"), rights, *flags) as found:
        yield found


@pytest.fixture(scope="module")
def server(guard: Guarded) -> RunningServer:
    return guard.server


@pytest.fixture
def client_of(client_of: Both, guard: Guarded) -> Both:
    """As for other tests, with a token."""
    return partial(client_of, token=guard.tokens["client"])


def _tests() -> Iterator[tuple[str, Any]]:
    for module in MODULES:
        for name, test in vars(module).items():
            if name.startswith("test_") and {"client_of", "server"} <= inspect.signature(test).parameters.keys():
                source = inspect.getsource(test)
                if not any(own in source for own in OWN):
                    yield name, test


for _name, _test in _tests():
    globals()[_name] = _test


def test_most_tests_are_run_here() -> None:
    assert len(list(_tests())) > 20
