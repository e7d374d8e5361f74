"""The sagas of buckets, step by step: what is sent to which of three shards, given their replies."""

from collections.abc import Sequence

import pytest

from headwater.protocol.refusals import Code, Refusal
from headwater.streams import queries
from headwater.streams.buckets import BucketSaga, To, drop_everywhere, inspect, open_everywhere, settle_everywhere
from headwater.streams.commands.buckets import DropBucket, OpenBucket, SealBucket, SettleBucket, UnsealBucket
from headwater.streams.replies import (
    BucketDropped,
    BucketExisted,
    BucketFacts,
    BucketOpened,
    BucketSealed,
    Done,
    Reply,
    Settled,
)

NAME, SEAL, DEADLINE = "team", "seal", 99
NOTHING = BucketFacts(opened=False, streams=0, lives=0)
OPENED = BucketFacts(opened=True, streams=0, lives=0)
USED = BucketFacts(opened=False, streams=2, lives=3)
BUSY = Refusal(Code.OVERLOADED, "being deleted")
LATE = Refusal(Code.OVERLOADED, "too late")

QUERIES = [To(shard, queries.Bucket(NAME)) for shard in range(3)]
OPENS = [To(shard, OpenBucket(NAME)) for shard in range(3)]
SEALS = [To(shard, SealBucket(NAME, SEAL, DEADLINE, decides=shard == 0)) for shard in range(3)]
DROPS = [To(0, DropBucket(NAME, SEAL)), *(To(shard, DropBucket(NAME, SEAL, decided=True)) for shard in (1, 2))]
UNSEALS = [To(shard, UnsealBucket(NAME, SEAL)) for shard in range(3)]


def run(saga: BucketSaga, replies: Sequence[Reply]) -> tuple[list[To], Reply | None]:
    """Every request of a saga, and its answer; it must use all of the replies."""
    requests: list[To] = []
    answer, left = None, list(replies)
    sent: Reply | None = None
    while True:
        try:
            step = saga.send(sent)
        except StopIteration:
            assert not left, f"{left} were never requested"
            return requests, answer
        if isinstance(step, To):
            requests.append(step)
            sent = left.pop(0)
        else:
            assert answer is None, "a saga answers once"
            answer, sent = step, None


def code_of(reply: Reply | None) -> Code | None:
    return reply.code if isinstance(reply, Refusal) else None


# -- Inspecting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ([OPENED, NOTHING, NOTHING], OPENED),
        ([NOTHING, OPENED, NOTHING], OPENED),
        ([USED, OPENED, USED], BucketFacts(opened=True, streams=4, lives=6)),
        ([NOTHING, NOTHING, BucketFacts(False, 0, 1)], BucketFacts(False, 0, 1)),
    ],
)
def test_all_shards_together_know_a_bucket(facts: list[Reply], expected: BucketFacts) -> None:
    assert run(inspect(3, NAME), facts) == (QUERIES, expected)


def test_a_bucket_that_no_shard_knows_is_not_there() -> None:
    requests, answer = run(inspect(3, NAME), [NOTHING] * 3)
    assert (requests, code_of(answer)) == (QUERIES, Code.BUCKET_NOT_FOUND)


# -- Opening ----------------------------------------------------------------------------------------------------------


def test_a_bucket_is_opened_on_every_shard_the_first_one_first() -> None:
    assert run(open_everywhere(3, NAME), [NOTHING] * 3 + [BucketOpened()] * 3) == (QUERIES + OPENS, BucketOpened())


def test_a_second_opening_finishes_the_first_and_says_so() -> None:
    replies: list[Reply] = [OPENED, NOTHING, NOTHING, BucketExisted(), BucketOpened(), BucketOpened()]
    requests, answer = run(open_everywhere(3, NAME), replies)
    assert (requests, code_of(answer)) == (QUERIES + OPENS, Code.BUCKET_EXISTS)


@pytest.mark.parametrize(
    ("facts", "exists"),
    [
        ([USED, NOTHING, NOTHING], True),
        ([NOTHING, NOTHING, USED], True),
        ([NOTHING, BucketFacts(opened=False, streams=1, lives=1), NOTHING], True),
        ([USED, OPENED, NOTHING], False),
    ],
)
def test_a_bucket_that_is_there_through_its_streams_exists(facts: list[Reply], exists: bool) -> None:
    requests, answer = run(open_everywhere(3, NAME), [*facts, *[BucketOpened()] * 3])
    assert requests == QUERIES + OPENS
    assert (code_of(answer) is Code.BUCKET_EXISTS) == exists


@pytest.mark.parametrize("shard", [0, 1, 2])
def test_a_shard_that_refuses_ends_an_opening(shard: int) -> None:
    replies = [NOTHING] * 3 + [BucketOpened()] * shard + [BUSY]
    assert run(open_everywhere(3, NAME), replies) == (QUERIES + OPENS[: shard + 1], BUSY)


# -- Dropping ---------------------------------------------------------------------------------------------------------


def test_an_empty_bucket_is_sealed_everywhere_then_dropped_the_first_shard_first() -> None:
    replies = [OPENED] * 3 + [BucketSealed(0)] * 3 + [BucketDropped()] * 3
    assert run(drop_everywhere(3, NAME, SEAL, DEADLINE), replies) == (QUERIES + SEALS + DROPS, BucketDropped())


def test_a_bucket_that_is_not_there_is_not_dropped() -> None:
    requests, answer = run(drop_everywhere(3, NAME, SEAL, DEADLINE), [NOTHING] * 3)
    assert (requests, code_of(answer)) == (QUERIES, Code.BUCKET_NOT_FOUND)


def test_a_bucket_that_is_there_through_its_streams_is_not_empty_and_not_sealed() -> None:
    requests, answer = run(drop_everywhere(3, NAME, SEAL, DEADLINE), [NOTHING, USED, NOTHING])
    assert (requests, code_of(answer)) == (QUERIES, Code.BUCKET_NOT_EMPTY)
    assert isinstance(answer, Refusal)
    assert " 3 streams" in answer.detail


@pytest.mark.parametrize("shard", [0, 1, 2])
def test_a_stream_on_any_shard_keeps_a_bucket_and_every_seal_is_taken_off(shard: int) -> None:
    sealed: list[Reply] = [BucketSealed(1 if index == shard else 0) for index in range(3)]
    requests, answer = run(drop_everywhere(3, NAME, SEAL, DEADLINE), [OPENED] * 3 + sealed + [Done()] * 3)
    assert (requests, code_of(answer)) == (QUERIES + SEALS + UNSEALS, Code.BUCKET_NOT_EMPTY)


def test_an_opened_bucket_with_streams_is_sealed_all_the_same_for_they_may_be_gone_by_then() -> None:
    facts = [BucketFacts(opened=True, streams=1, lives=1), NOTHING, NOTHING]
    replies: list[Reply] = [*facts, *[BucketSealed(0)] * 3, *[BucketDropped()] * 3]
    assert run(drop_everywhere(3, NAME, SEAL, DEADLINE), replies) == (QUERIES + SEALS + DROPS, BucketDropped())


def test_streams_on_several_shards_are_counted_together() -> None:
    replies = [OPENED] * 3 + [BucketSealed(1), BucketSealed(0), BucketSealed(4)] + [Done()] * 3
    _, answer = run(drop_everywhere(3, NAME, SEAL, DEADLINE), replies)
    assert isinstance(answer, Refusal)
    assert " 5 streams" in answer.detail


@pytest.mark.parametrize("shard", [0, 1, 2])
def test_a_shard_that_cannot_be_sealed_ends_a_drop_and_every_seal_is_taken_off(shard: int) -> None:
    replies = [OPENED] * 3 + [BucketSealed(0)] * shard + [BUSY] + [Done()] * 3
    requests, answer = run(drop_everywhere(3, NAME, SEAL, DEADLINE), replies)
    assert (requests, answer) == (QUERIES + SEALS[: shard + 1] + UNSEALS, BUSY)


def test_a_drop_that_is_decided_against_takes_every_seal_off() -> None:
    replies = [OPENED] * 3 + [BucketSealed(0)] * 3 + [LATE] + [Done()] * 3
    requests, answer = run(drop_everywhere(3, NAME, SEAL, DEADLINE), replies)
    assert (requests, answer) == (QUERIES + SEALS + DROPS[:1] + UNSEALS, LATE)


# -- Settling ---------------------------------------------------------------------------------------------------------

SETTLE = To(0, SettleBucket(NAME, SEAL, DEADLINE))


def test_a_drop_that_was_decided_is_rolled_forward_the_first_shard_last() -> None:
    drops = [To(shard, DropBucket(NAME, SEAL, decided=True)) for shard in (2, 1, 0)]
    replies: list[Reply] = [Settled(held=False), *[BucketDropped()] * 3]
    assert run(settle_everywhere(3, NAME, SEAL, DEADLINE), replies) == ([SETTLE, *drops], None)


def test_a_drop_that_was_not_decided_is_rolled_back_the_first_shard_last() -> None:
    replies: list[Reply] = [Settled(held=True), *[Done()] * 3]
    assert run(settle_everywhere(3, NAME, SEAL, DEADLINE), replies) == ([SETTLE, *UNSEALS[::-1]], None)


def test_before_the_deadline_nothing_is_settled() -> None:
    assert run(settle_everywhere(3, NAME, SEAL, DEADLINE), [LATE]) == ([SETTLE], None)
