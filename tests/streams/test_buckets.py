"""Buckets on one shard: the commands one by one, facts and listings; `tests/model` has the sagas."""

import pytest

from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.message_ends import pack
from headwater.protocol.refusals import Code, Refusal
from headwater.streams import buckets, queries
from headwater.streams.commands import Command
from headwater.streams.commands.buckets import DropBucket, OpenBucket, SealBucket, SettleBucket, UnsealBucket
from headwater.streams.commands.streams import Create, Delete
from headwater.streams.queries import Listing
from headwater.streams.replies import (
    BucketDropped,
    BucketEntry,
    BucketExisted,
    BucketFacts,
    BucketOpened,
    BucketSealed,
    BucketsListed,
    Created,
    Done,
    Entry,
    Existed,
    Listed,
    Reply,
    Settled,
)
from headwater.streams.state import Bucket, State

from .shards import START_US, Shards

BUCKET, SEAL = "agents", "seal"
DEADLINE = START_US + 10_000_000
BRIEF = Lifetime(ttl_seconds=0)


def do(shards: Shards, command: Command) -> Reply:
    return shards.all[0].submit([command], shards.now)[0]


def state_of(shards: Shards) -> State:
    return shards.all[0].state


def code_of(reply: Reply) -> Code | None:
    return reply.code if isinstance(reply, Refusal) else None


def create(shards: Shards, stream: str, *, needs_bucket: bool = True, lifetime: Lifetime | None = None) -> Reply:
    name = f"{BUCKET}/{stream}"
    return do(shards, Create(name, "text/plain", lifetime or Lifetime(), needs_bucket=needs_bucket))


def seal(seal_id: str = SEAL, *, decides: bool = True) -> SealBucket:
    return SealBucket(BUCKET, seal_id, DEADLINE, decides)


@pytest.fixture
def opened(shards: Shards) -> Shards:
    do(shards, OpenBucket(BUCKET))
    return shards


# -- Opening, and creation in the bucket -------------------------------------------------------------------------------


def test_a_bucket_is_opened_once(shards: Shards) -> None:
    assert do(shards, OpenBucket(BUCKET)) == BucketOpened()
    assert state_of(shards).buckets == {BUCKET: Bucket(START_US)}
    shards.wait(1)
    assert do(shards, OpenBucket(BUCKET)) == BucketExisted()
    assert state_of(shards).buckets == {BUCKET: Bucket(START_US)}


def test_without_its_bucket_no_stream_is_made_where_one_is_needed(shards: Shards) -> None:
    assert code_of(create(shards, "a")) is Code.BUCKET_NOT_FOUND
    assert code_of(shards.finish(shards.fork(f"{BUCKET}/f", "b/missing", needs_bucket=True))) is Code.STREAM_NOT_FOUND
    assert not shards.streams


def test_a_bucket_is_there_while_it_holds_a_stream(shards: Shards) -> None:
    assert isinstance(create(shards, "flat", needs_bucket=False), Created)
    assert isinstance(create(shards, "a"), Created)
    do(shards, Delete(f"{BUCKET}/flat"))
    assert isinstance(create(shards, "b"), Created)
    do(shards, Delete(f"{BUCKET}/a"))
    do(shards, Delete(f"{BUCKET}/b"))
    assert code_of(create(shards, "c")) is Code.BUCKET_NOT_FOUND


def test_a_fork_needs_its_bucket_too_and_leaves_no_pin_where_there_is_none(shards: Shards) -> None:
    shards.ask(Create("b/source", "text/plain"))
    fork = shards.fork(f"{BUCKET}/f", "b/source", needs_bucket=True)
    assert code_of(shards.finish(fork)) is Code.BUCKET_NOT_FOUND
    assert shards.stream("b/source").pins is None
    do(shards, OpenBucket(BUCKET))
    assert isinstance(shards.finish(shards.fork(f"{BUCKET}/f", "b/source", needs_bucket=True)), Created)


# -- Sealing -----------------------------------------------------------------------------------------------------------


def test_a_seal_blocks_the_creation_of_streams_on_every_surface(opened: Shards) -> None:
    create(opened, "a")
    assert do(opened, seal()) == BucketSealed(1)
    assert code_of(create(opened, "b")) is Code.OVERLOADED
    assert code_of(create(opened, "b", needs_bucket=False)) is Code.OVERLOADED
    assert code_of(do(opened, OpenBucket(BUCKET))) is Code.OVERLOADED
    assert isinstance(create(opened, "a"), Existed)


def test_a_seal_may_be_put_on_twice_but_not_by_two(opened: Shards) -> None:
    assert do(opened, seal()) == BucketSealed(0)
    assert do(opened, seal()) == BucketSealed(0)
    assert code_of(do(opened, seal("other"))) is Code.OVERLOADED
    assert state_of(opened).buckets[BUCKET].seal == SEAL


def test_where_it_is_decided_only_a_bucket_can_be_sealed(shards: Shards) -> None:
    assert code_of(do(shards, seal())) is Code.BUCKET_NOT_FOUND
    assert do(shards, seal(decides=False)) == BucketSealed(0)
    assert state_of(shards).buckets == {BUCKET: Bucket(START_US, SEAL, DEADLINE)}


def test_a_seal_buries_what_has_expired_and_counts_the_rest(opened: Shards) -> None:
    create(opened, "a", lifetime=BRIEF)
    create(opened, "b")
    create(opened, "c", lifetime=BRIEF)
    do(opened, Create("agentsx/a", "text/plain", BRIEF))
    assert do(opened, seal()) == BucketSealed(1)
    assert sorted(state_of(opened).streams) == ["agents/b", "agentsx/a"]


def test_a_seal_counts_what_only_forks_keep(opened: Shards) -> None:
    create(opened, "a", lifetime=Lifetime(ttl_seconds=1))
    opened.finish(opened.fork("b/fork", f"{BUCKET}/a", lifetime=Lifetime(ttl_seconds=100)))
    opened.wait(2)
    assert do(opened, seal()) == BucketSealed(1)
    assert opened.stream(f"{BUCKET}/a").deleted
    assert do(opened, seal()) == BucketSealed(1)


def test_only_its_own_seal_is_taken_off(opened: Shards) -> None:
    do(opened, seal())
    assert do(opened, UnsealBucket(BUCKET, "other")) == Done()
    assert state_of(opened).buckets[BUCKET].seal == SEAL
    for _ in range(2):
        assert do(opened, UnsealBucket(BUCKET, SEAL)) == Done()
        assert state_of(opened).buckets == {BUCKET: Bucket(START_US)}
    assert do(opened, UnsealBucket("missing", SEAL)) == Done()
    assert isinstance(create(opened, "a"), Created)


# -- Dropping ----------------------------------------------------------------------------------------------------------


def test_a_sealed_bucket_is_dropped(opened: Shards) -> None:
    do(opened, seal())
    assert do(opened, DropBucket(BUCKET, SEAL)) == BucketDropped()
    assert state_of(opened).buckets == {}
    assert code_of(create(opened, "a")) is Code.BUCKET_NOT_FOUND


@pytest.mark.parametrize("sealed", [False, True])
def test_without_its_seal_no_bucket_is_dropped(sealed: bool, opened: Shards) -> None:
    if sealed:
        do(opened, seal("other"))
    before = dict(state_of(opened).buckets)
    assert code_of(do(opened, DropBucket(BUCKET, SEAL))) is Code.BUCKET_NOT_FOUND
    assert do(opened, DropBucket(BUCKET, SEAL, decided=True)) == BucketDropped()
    assert state_of(opened).buckets == before


@pytest.mark.parametrize(("late_us", "dropped"), [(0, True), (1, False)])
def test_a_drop_is_decided_before_the_deadline_or_never(late_us: int, dropped: bool, opened: Shards) -> None:
    do(opened, seal())
    opened.now = DEADLINE + late_us
    reply = do(opened, DropBucket(BUCKET, SEAL))
    assert code_of(reply) is (None if dropped else Code.OVERLOADED)
    assert (BUCKET in state_of(opened).buckets) is not dropped
    assert do(opened, DropBucket(BUCKET, SEAL, decided=True)) == BucketDropped()
    assert state_of(opened).buckets == {}


def test_nothing_is_settled_before_the_deadline(opened: Shards) -> None:
    do(opened, seal())
    for opened.now in (START_US, DEADLINE - 1, DEADLINE):
        assert code_of(do(opened, SettleBucket(BUCKET, SEAL, DEADLINE))) is Code.OVERLOADED
    opened.now = DEADLINE + 1
    assert do(opened, SettleBucket(BUCKET, SEAL, DEADLINE)) == Settled(held=True)
    do(opened, DropBucket(BUCKET, SEAL, decided=True))
    assert do(opened, SettleBucket(BUCKET, SEAL, DEADLINE)) == Settled(held=False)
    do(opened, OpenBucket(BUCKET))
    assert do(opened, SettleBucket(BUCKET, SEAL, DEADLINE)) == Settled(held=True)


# -- Facts and listings ------------------------------------------------------------------------------------------------


def test_the_facts_count_streams_and_lives(opened: Shards) -> None:
    assert buckets.facts(state_of(opened), queries.Bucket(BUCKET)) == BucketFacts(True, 0, 0)
    for stream in "abc":
        create(opened, stream)
    opened.finish(opened.fork("b/fork", f"{BUCKET}/a"))
    do(opened, Delete(f"{BUCKET}/a"))
    do(opened, Delete(f"{BUCKET}/b"))
    assert buckets.facts(state_of(opened), queries.Bucket(BUCKET)) == BucketFacts(True, 1, 2)
    assert buckets.facts(state_of(opened), queries.Bucket("b")) == BucketFacts(False, 1, 1)
    do(opened, Delete("b/fork"))
    opened.tidy()
    assert buckets.facts(state_of(opened), queries.Bucket(BUCKET)) == BucketFacts(True, 1, 1)
    assert buckets.facts(state_of(opened), queries.Bucket("b")) == BucketFacts(False, 0, 0)


def listed(shards: Shards, prefix: str = "", after: str = "", limit: int = 1000) -> tuple[list[str], bool]:
    page = buckets.listing(state_of(shards), Listing(BUCKET, prefix, after, limit), shards.now)
    assert isinstance(page, Listed)
    return [entry.stream_id for entry in page.streams], page.has_more


def test_a_listing_tells_of_every_stream(opened: Shards) -> None:
    create(opened, "a")
    opened.wait(1.5)
    do(opened, Create(f"{BUCKET}/b", "application/json", closed=True, payload=b"12", ends=pack((1, 2))))
    page = buckets.listing(state_of(opened), Listing(BUCKET, "", "", 10), opened.now)
    first, second = START_US // 1000, START_US // 1000 + 1500
    assert page == Listed(
        [
            Entry("a", "Open", "text/plain", 0, first, first),
            Entry("b", "Closed", "application/json", 2, second, second),
        ],
        has_more=False,
    )


def test_a_listing_holds_what_is_in_its_bucket_by_utf8_and_nothing_else(opened: Shards) -> None:
    names = ["B", "a", "a!", "a-b", "aa", "b/c", "ä", "\uffee", "\U0001f600"]
    for name in reversed(names):
        create(opened, name)
    for other in ("agent/z", "agents!/z", "agents0/z", "a/agents/z"):
        do(opened, Create(other, "text/plain"))
    assert sorted(names, key=str.encode) == names
    assert listed(opened) == (names, False)


def test_pages_follow_each_other_whatever_their_size(opened: Shards) -> None:
    names = [f"{number:02}" for number in range(10)]
    for name in names:
        create(opened, name)
    for limit in range(1, 12):
        found: list[str] = []
        more = True
        while more:
            page, more = listed(opened, after=found[-1] if found else "", limit=limit)
            assert len(page) == limit or not more
            found += page
        assert found == names


@pytest.mark.parametrize("others", [[], ["zoo/a"]])
def test_a_full_page_says_whether_it_is_the_last(others: list[str], opened: Shards) -> None:
    for name in "abc":
        create(opened, name)
    for other in others:
        do(opened, Create(other, "text/plain"))
    assert listed(opened, limit=2) == (["a", "b"], True)
    assert listed(opened, limit=3) == (["a", "b", "c"], False)
    assert listed(opened, prefix="c", limit=1) == (["c"], False)


@pytest.mark.parametrize(
    ("prefix", "after", "found"),
    [
        ("a", "", ["a", "a1", "a2"]),
        ("a", "a", ["a1", "a2"]),
        ("a", "a1", ["a2"]),
        ("a", "0", ["a", "a1", "a2"]),
        ("a", "b", []),
        ("a1", "a", ["a1"]),
        ("c", "", []),
        ("", "a2", ["b"]),
        ("", "a11", ["a2", "b"]),
    ],
)
def test_a_prefix_and_a_cursor_narrow_a_listing(prefix: str, after: str, found: list[str], opened: Shards) -> None:
    for name in ("a", "a1", "a2", "b"):
        create(opened, name)
    assert listed(opened, prefix, after) == (found, False)


def test_a_listing_passes_over_what_has_expired_and_what_only_forks_keep(opened: Shards) -> None:
    for number in range(9):
        create(opened, f"{number}", lifetime=BRIEF if number in (0, 1, 2, 5, 8) else None)
    opened.finish(opened.fork("b/fork", f"{BUCKET}/6"))
    do(opened, Delete(f"{BUCKET}/6"))
    assert listed(opened) == (["3", "4", "7"], False)
    assert listed(opened, limit=1) == (["3"], True)
    assert listed(opened, limit=1, after="4") == (["7"], False)
    assert listed(opened, limit=2) == (["3", "4"], True)
    assert listed(opened, prefix="0") == ([], False)


def test_without_a_bucket_a_listing_holds_whole_names(opened: Shards) -> None:
    for name in ("a/1", "a/2", "ab/1", "b/x/y"):
        do(opened, Create(name, "text/plain"))
    create(opened, "z")

    def whole(prefix: str = "", after: str = "") -> list[str]:
        page = buckets.listing(state_of(opened), Listing(None, prefix, after, 1000), opened.now)
        return [entry.stream_id for entry in page.streams]

    assert whole() == ["a/1", "a/2", "ab/1", f"{BUCKET}/z", "b/x/y"]
    assert whole("a/") == ["a/1", "a/2"]
    assert whole("a/2") == ["a/2"]
    assert whole("a", "a/2") == ["ab/1", f"{BUCKET}/z"]


def listed_buckets(shards: Shards, prefix: str = "", after: str = "", limit: int = 1000) -> BucketsListed:
    return buckets.bucket_listing(state_of(shards), queries.Buckets(prefix, after, limit))


def test_buckets_are_listed_while_they_are_open_or_hold_a_stream(opened: Shards) -> None:
    do(opened, OpenBucket("empty"))
    for name in ("a/1", "a/2", "ab/1"):
        do(opened, Create(name, "text/plain"))
    create(opened, "x")
    everything = [BucketEntry("a", 2), BucketEntry("ab", 1), BucketEntry(BUCKET, 1), BucketEntry("empty", 0)]
    assert listed_buckets(opened) == BucketsListed(everything, False)
    for name in ("a/1", "a/2", f"{BUCKET}/x"):
        do(opened, Delete(name))
    assert listed_buckets(opened).buckets == [BucketEntry("ab", 1), BucketEntry(BUCKET, 0), BucketEntry("empty", 0)]
    do(opened, seal())
    do(opened, DropBucket(BUCKET, SEAL))
    do(opened, OpenBucket("ab"))
    do(opened, Delete("ab/1"))
    assert listed_buckets(opened).buckets == [BucketEntry("ab", 0), BucketEntry("empty", 0)]


def test_a_dropped_bucket_that_holds_a_stream_again_is_listed(opened: Shards) -> None:
    do(opened, seal())
    create(opened, "late", needs_bucket=False)
    do(opened, UnsealBucket(BUCKET, SEAL))
    create(opened, "late", needs_bucket=False)
    do(opened, seal("other"))
    do(opened, DropBucket(BUCKET, "other"))
    assert listed_buckets(opened).buckets == [BucketEntry(BUCKET, 1)]


@pytest.mark.parametrize(
    ("prefix", "after", "limit", "found", "more"),
    [
        ("", "", 2, ["a", "a1"], True),
        ("", "a1", 2, ["a2", "b"], False),
        ("a", "", 3, ["a", "a1", "a2"], False),
        ("a", "", 2, ["a", "a1"], True),
        ("a", "a", 2, ["a1", "a2"], False),
        ("a1", "a", 9, ["a1"], False),
        ("a", "b", 9, [], False),
        ("c", "", 9, [], False),
    ],
)
def test_a_prefix_a_cursor_and_a_limit_narrow_a_listing_of_buckets(
    prefix: str, after: str, limit: int, *, found: list[str], more: bool, shards: Shards
) -> None:
    for name in ("a/x", "a1/x", "a2/x"):
        do(shards, Create(name, "text/plain"))
    do(shards, OpenBucket("b"))
    page = listed_buckets(shards, prefix, after, limit)
    assert ([entry.bucket_id for entry in page.buckets], page.has_more) == (found, more)


def test_a_listing_of_buckets_adds_up_the_shards() -> None:
    one = BucketsListed([BucketEntry("a", 1), BucketEntry("c", 1)], True)
    other = BucketsListed([BucketEntry("a", 2), BucketEntry("b", 0)], False)
    assert buckets.merge_listings([one, other], 2) == BucketsListed([BucketEntry("a", 3), BucketEntry("b", 0)], True)
    assert buckets.merge_listings([other], 2) == other
