import pytest

from .shards import Shards


@pytest.fixture
def shards() -> Shards:
    return Shards()
