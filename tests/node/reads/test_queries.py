"""Which reads surely reach the tail, so that they need a barrier on a log that others write to."""

import pytest

from headwater.node.reads.queries import Queries
from headwater.streams.apply import apply
from headwater.streams.batches import Batch
from headwater.streams.commands.streams import Create
from headwater.streams.queries import Read, Records
from headwater.streams.state import State

NAME, PAGE_BYTES = "bucket/stream", 100


@pytest.mark.parametrize(
    ("read", "reaches"),
    [
        (Read(NAME, 200), True),
        (Read(NAME, 300), True),
        (Read(NAME, 199), False),
        (Read(NAME, 0), False),
        (Read(NAME, 250, bytes_max=10), False),
        (Read(NAME, 250, records=Records(0)), False),
        (Read("bucket/other", 0), False),
    ],
)
def test_a_read_surely_reaches_the_tail_if_less_than_a_page_is_left(read: Read, reaches: bool) -> None:
    state = State("log")
    apply(state, Batch(1, 1, [Create(NAME, "text/plain", payload=b"x" * 300)]))
    queries = Queries(state, lambda: 1, lambda _: 1, lambda _: None, PAGE_BYTES)
    assert queries.reaches_tail(read) is reaches
