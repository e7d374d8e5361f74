"""How far a query is behind, from what Spark says about its progress."""

from typing import Any

import pytest

from headwater.spark.positions import lag_in

LAKE = {"endOffset": '{"shards": {"0": 57}}', "latestOffset": '{"shards": {"0": 60}}'}


@pytest.mark.parametrize(
    ("progress", "lag"),
    [
        (None, None),
        ({"sources": []}, None),
        ({"sources": [LAKE]}, 3),
        ({"sources": [LAKE | {"latestOffset": None}]}, None),
        ({"sources": [{"endOffset": "7", "latestOffset": "9"}, LAKE]}, 3),
        ({"sources": [{"endOffset": "not JSON", "latestOffset": '{"topic": {"0": 5}}'}]}, None),
    ],
)
def test_the_lag_is_that_of_the_source_that_reads_the_lake(progress: dict[str, Any] | None, lag: int | None) -> None:
    """A query has no progress before its first batch, and may join a lake with other sources."""
    assert lag_in(progress) == lag
