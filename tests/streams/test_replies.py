import msgspec
import pytest

from headwater.streams.queries import Query
from headwater.streams.replies import Reply


@pytest.mark.parametrize("kind", [*Reply.__args__, *Query.__args__])
def test_replies_and_queries_are_frozen_values_that_the_collector_need_not_know(kind: type[msgspec.Struct]) -> None:
    config = kind.__struct_config__
    assert (config.frozen, config.gc) == (True, False)
