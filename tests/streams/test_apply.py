import pytest

from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.limits import SECOND_US
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.apply import apply
from headwater.streams.batches import Batch
from headwater.streams.commands import Command
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.replies import Appended, Created, Deleted
from headwater.streams.state import State


def test_the_commands_of_a_batch_are_applied_in_order_and_each_has_its_reply() -> None:
    state = State("journal")
    commands: list[Command] = [
        Create("b/s", "text/plain"),
        Append("b/s", b"abc", content_type="text/plain"),
        Delete("b/s"),
        Create("b/s", "text/plain"),
    ]
    assert apply(state, Batch(1, 0, commands)) == [
        Created(1, "text/plain", 0, False),
        Appended(1, 3, False),
        Deleted(1),
        Created(4, "text/plain", 0, False),
    ]
    assert state.position == 4


@pytest.mark.parametrize("first_position", [0, 1, 3])
def test_a_batch_out_of_order_is_not_applied(first_position: int) -> None:
    state = State("journal")
    apply(state, Batch(1, 0, [Create("b/s", "text/plain")]))
    with pytest.raises(AssertionError, match="hole"):
        apply(state, Batch(first_position, 0, [Delete("b/s")]))
    assert list(state.streams) == ["b/s"]


def test_the_time_of_a_shard_never_goes_back() -> None:
    state = State("journal")
    apply(state, Batch(1, 100 * SECOND_US, [Create("b/s", "text/plain", Lifetime(ttl_seconds=10))]))
    apply(state, Batch(2, 20 * SECOND_US, [Append("b/s", b"x", content_type="text/plain")]))
    assert state.now == state.streams["b/s"].touched_at == 100 * SECOND_US
    [refusal] = apply(state, Batch(3, 111 * SECOND_US, [Delete("b/s")]))
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.STREAM_NOT_FOUND
