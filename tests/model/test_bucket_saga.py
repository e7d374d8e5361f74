"""The coordinator of an opening or a drop may die at any step, while others create streams, open and drop.

Once the chores are done, the bucket is either gone on all shards, or open and unsealed on all of them; a drop that was
answered 204 found no stream in it, and no acknowledged stream is lost. Only an opening may be left half done, by a
crash or a drop between its steps: then a second PUT completes it.
"""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.protocol.lifetimes import FOREVER, Lifetime
from headwater.protocol.limits import SEAL_DEADLINE_US, SECOND_US
from headwater.protocol.refusals import Code, Refusal
from headwater.streams import buckets
from headwater.streams.buckets import To
from headwater.streams.commands import Command
from headwater.streams.commands.buckets import DropBucket
from headwater.streams.commands.streams import Create, Delete
from headwater.streams.images import image_of, restore
from headwater.streams.replies import BucketDropped, BucketFacts, BucketOpened, Created, Deleted, Reply
from headwater.streams.state import Bucket

from ..streams.shards import Shards, Task
from .invariants import check_shards

BUCKET = "agents"
NAMES = [f"{BUCKET}/{number}" for number in range(4)]
PAST_THE_DEADLINE = SEAL_DEADLINE_US / SECOND_US + 6
"""With a margin for the difference between the clocks of two shards."""


class Books:
    """The streams that must exist, derived from replies alone."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.living: dict[str, int] = {}
        self.opening_refused = False

    def create(self, name: str, *, needs_bucket: bool, lifetime: Lifetime = FOREVER) -> Reply:
        reply = self.shards.ask(Create(name, "text/plain", lifetime, needs_bucket=needs_bucket))
        if isinstance(reply, Created) and lifetime is FOREVER:
            self.living[name] = reply.incarnation
        return reply

    def delete(self, name: str) -> None:
        if isinstance(self.shards.ask(Delete(name)), Deleted):
            self.living.pop(name, None)

    def step(self, task: Task) -> None:
        """Take one step; when the first shard decides on a drop, no stream may be in the bucket."""
        step = task.pending
        sent = task.step(self.shards)
        if isinstance(step, To) and isinstance(step.request, DropBucket) and not step.request.decided:
            assert not (isinstance(sent, BucketDropped) and self.living), "a bucket with a living stream was dropped"

    def finish(self, task: Task) -> Reply:
        while task.pending is not None:
            self.step(task)
        assert task.answer is not None
        return task.answer

    def check(self) -> None:
        check_shards(self.shards)
        there = {stream.name: stream.incarnation for stream in self.shards.streams}
        assert self.living.items() <= there.items(), "an acknowledged stream is lost"

    def tidy(self) -> None:
        self.shards.wait(PAST_THE_DEADLINE)
        self.shards.tidy()
        self.check()
        assert not [bucket for bucket in buckets_of(self.shards) if bucket and bucket.seal is not None]

    def check_whole_or_gone(self) -> bool:
        """After the chores the bucket is on all shards or on none; return which."""
        there = {bucket is not None for bucket in buckets_of(self.shards)}
        assert len(there) == 1, "the bucket is on some shards only"
        return there.pop()

    def clear(self) -> None:
        """Whatever happened before, a PUT completes the bucket, and once it is empty a DELETE removes it."""
        self.tidy()
        self.finish(self.shards.open(BUCKET))
        assert self.check_whole_or_gone()
        for number in range(20):
            assert isinstance(self.create(f"{BUCKET}/more-{number}", needs_bucket=True), Created)
        answer = self.finish(self.shards.drop(BUCKET))
        assert isinstance(answer, Refusal)
        assert answer.code is Code.BUCKET_NOT_EMPTY
        assert self.check_whole_or_gone()
        for stream in self.shards.streams:
            self.delete(stream.name)
        assert self.finish(self.shards.drop(BUCKET)) == BucketDropped()
        assert not self.check_whole_or_gone()
        assert code_of(self.create(NAMES[0], needs_bucket=True)) is Code.BUCKET_NOT_FOUND
        assert isinstance(self.create(NAMES[0], needs_bucket=False), Created)
        self.delete(NAMES[0])


def buckets_of(shards: Shards) -> list[Bucket | None]:
    return [shard.state.buckets.get(BUCKET) for shard in shards.all]


def code_of(reply: Reply) -> Code | None:
    return reply.code if isinstance(reply, Refusal) else None


# -- Every way to die --------------------------------------------------------------------------------------------------

STEPS_MAX = 16

SAGAS: dict[str, Callable[[Shards], Task]] = {
    "open": lambda shards: shards.open(BUCKET),
    "drop": lambda shards: shards.drop(BUCKET),
}


def nothing(books: Books) -> None:
    """No other client acts."""


def create_all(*, needs_bucket: bool) -> Callable[[Books], None]:
    def act(books: Books) -> None:
        for name in NAMES:
            books.create(name, needs_bucket=needs_bucket)

    return act


def expire_and_create(books: Books) -> None:
    for name in NAMES:
        books.create(name, needs_bucket=False, lifetime=Lifetime(ttl_seconds=0))


def delete_all(books: Books) -> None:
    for name in NAMES:
        books.delete(name)


def saga(kind: str) -> Callable[[Books], None]:
    def act(books: Books) -> None:
        answer = books.finish(SAGAS[kind](books.shards))
        books.opening_refused |= kind == "open" and code_of(answer) is Code.OVERLOADED

    return act


def open_and_fill(books: Books) -> None:
    saga("open")(books)
    create_all(needs_bucket=True)(books)


def the_deadline_passes(books: Books) -> None:
    books.shards.wait(PAST_THE_DEADLINE)
    books.shards.tidy()


EVENTS: dict[str, Callable[[Books], None]] = {
    "nothing": nothing,
    "streams are created in the bucket": create_all(needs_bucket=True),
    "streams are created on the flat surface": create_all(needs_bucket=False),
    "streams are created that expire at once": expire_and_create,
    "streams are deleted": delete_all,
    "another client opens it": saga("open"),
    "another client drops it": saga("drop"),
    "the deadline passes": the_deadline_passes,
}
BEGINNINGS: dict[str, Callable[[Books], None]] = {
    "nothing there": nothing,
    "an empty bucket": saga("open"),
    "a bucket with streams": open_and_fill,
    "streams without a bucket": create_all(needs_bucket=False),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize("kind", SAGAS)
@pytest.mark.parametrize("count", [1, 3], ids=["one shard", "three shards"])
def test_a_coordinator_may_die_after_any_step_whatever_happens_meanwhile(
    count: int, kind: str, beginning: str, event: str
) -> None:
    """Its last request is lost, or arrives before the chores."""
    for steps, moment, arrives in ways_to_die():
        shards = Shards(count)
        books = Books(shards)
        BEGINNINGS[beginning](books)
        task = SAGAS[kind](shards)
        for step in range(steps):
            if step == moment:
                EVENTS[event](books)
            if task.pending is None:
                break
            books.step(task)
            books.check()
        else:
            last = task.pending
            if moment == steps:
                EVENTS[event](books)
            if arrives and isinstance(last, To) and isinstance(last.request, Command):
                shards.ask(last)
            books.tidy()
            half_done = kind == "open" and (last is not None or event == "another client drops it")
            if not (half_done or books.opening_refused):
                books.check_whole_or_gone()
            books.clear()


def ways_to_die() -> Iterator[tuple[int, int, bool]]:
    """How many steps it took, after which of them the event came, and whether its last request arrives."""
    for steps in range(STEPS_MAX):
        for moment in range(steps + 1):
            for arrives in (False, True):
                yield steps, moment, arrives


def test_sixteen_steps_are_more_than_any_saga_takes() -> None:
    for beginning in BEGINNINGS.values():
        for begin in SAGAS.values():
            books = Books(Shards(3))
            beginning(books)
            task = begin(books.shards)
            for _ in range(STEPS_MAX - 1):
                if task.pending is not None:
                    books.step(task)
            assert task.pending is None


# -- Known outcomes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
def test_an_opening_is_answered_once_and_then_the_bucket_is_there(count: int) -> None:
    books = Books(Shards(count))
    assert books.finish(books.shards.open(BUCKET)) == BucketOpened()
    assert code_of(books.finish(books.shards.open(BUCKET))) is Code.BUCKET_EXISTS
    assert books.check_whole_or_gone()


def test_a_second_opening_finishes_the_first_and_says_that_it_was_there() -> None:
    books = Books(Shards(3))
    first = books.shards.open(BUCKET)
    while not (
        isinstance(first.pending, To) and first.pending.shard == 1 and isinstance(first.pending.request, Command)
    ):
        books.step(first)
    assert code_of(books.finish(books.shards.open(BUCKET))) is Code.BUCKET_EXISTS
    assert books.check_whole_or_gone()


def test_an_opening_that_meets_the_rest_of_a_drop_is_not_acknowledged_and_the_chores_make_it_whole() -> None:
    """The first shard has dropped the bucket; on the others the seal stays until a chore removes it."""
    books = Books(Shards(3))
    books.finish(books.shards.open(BUCKET))
    dropping = books.shards.drop(BUCKET)
    while not (
        isinstance(dropping.pending, To) and dropping.pending.request == DropBucket(BUCKET, "seal-1", decided=True)
    ):
        books.step(dropping)
    assert code_of(books.finish(books.shards.open(BUCKET))) is Code.OVERLOADED
    books.tidy()
    assert books.check_whole_or_gone()


def test_a_seal_that_arrives_after_the_chores_is_taken_off_again() -> None:
    """Its coordinator is dead, and the bucket was kept: a late seal must not make a shard lose its bucket."""
    books = Books(Shards(3))
    books.finish(books.shards.open(BUCKET))
    dropping = books.shards.drop(BUCKET)
    while not (
        isinstance(dropping.pending, To)
        and dropping.pending.shard == 1
        and isinstance(dropping.pending.request, Command)
    ):
        books.step(dropping)
    late = dropping.pending
    books.tidy()
    books.shards.ask(late)
    books.tidy()
    assert books.check_whole_or_gone()


@pytest.mark.parametrize("steps", range(5))
def test_a_drop_past_its_deadline_is_not_decided_while_the_chores_undo_it(steps: int) -> None:
    """Its coordinator was only slow: meanwhile some shards are unsealed, and streams are created there."""
    books = Books(Shards(3))
    books.finish(books.shards.open(BUCKET))
    dropping = books.shards.drop(BUCKET)
    while not (isinstance(dropping.pending, To) and isinstance(dropping.pending.request, DropBucket)):
        books.step(dropping)
    books.shards.wait(PAST_THE_DEADLINE)
    chore = books.shards.chores()[0]
    for _ in range(steps):
        if chore.pending is not None:
            books.step(chore)
    create_all(needs_bucket=True)(books)
    assert isinstance(books.finish(dropping), Refusal)
    books.tidy()
    assert books.check_whole_or_gone()


# -- Several at once ---------------------------------------------------------------------------------------------------

WHICH = st.integers(0, 99)


class Buckets(RuleBasedStateMachine):
    """Openings, drops and chores that take turns and die, while streams come and go."""

    @initialize(count=st.sampled_from([1, 3]), ahead=st.lists(st.integers(-2, 2), min_size=3, max_size=3))
    def begin(self, count: int, ahead: list[int]) -> None:
        self.shards = Shards(count)
        for shard, seconds in zip(self.shards.all, ahead, strict=False):
            shard.ahead_us = seconds * SECOND_US
        self.books = Books(self.shards)
        self.tasks: list[Task] = []

    @rule(name=st.sampled_from(NAMES), needs_bucket=st.booleans(), brief=st.sampled_from([False, False, True]))
    def create(self, name: str, needs_bucket: bool, brief: bool) -> None:
        lifetime = Lifetime(ttl_seconds=3) if brief else FOREVER
        self.books.create(name, needs_bucket=needs_bucket, lifetime=lifetime)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self.books.delete(name)

    @rule()
    def delete_everything(self) -> None:
        for name in NAMES:
            self.books.delete(name)

    @rule(kind=st.sampled_from(list(SAGAS)), steps=st.integers(0, STEPS_MAX))
    def start(self, kind: str, steps: int) -> None:
        self.tasks.append(SAGAS[kind](self.shards))
        self.advance(-1, steps)

    @rule(which=WHICH)
    def start_a_chore(self, which: int) -> None:
        chores = self.shards.chores()
        if chores:
            self.tasks.append(chores[which % len(chores)])

    @precondition(lambda self: self.tasks)
    @rule(which=WHICH, steps=st.integers(1, 5))
    def advance(self, which: int, steps: int) -> None:
        task = self.tasks[which % len(self.tasks)]
        for _ in range(steps):
            if task.pending is not None:
                self.books.step(task)

    @precondition(lambda self: self.tasks)
    @rule(which=WHICH)
    def die(self, which: int) -> None:
        self.tasks.pop(which % len(self.tasks))

    @rule(seconds=st.sampled_from([1, 4, PAST_THE_DEADLINE]))
    def wait(self, seconds: float) -> None:
        self.shards.wait(seconds)

    @rule()
    def restart(self) -> None:
        for shard in self.shards.all:
            shard.state = restore(image_of(shard.state))
        self.tasks.clear()

    @rule()
    def clear(self) -> None:
        self.tasks.clear()
        self.books.clear()

    @invariant()
    def nothing_is_lost(self) -> None:
        self.books.check()

    @invariant()
    def all_shards_together_know_what_each_knows(self) -> None:
        answer = self.books.finish(Task(buckets.inspect(len(self.shards.all), BUCKET)))
        lives = len(self.shards.streams)
        assert isinstance(answer, BucketFacts) == (any(buckets_of(self.shards)) or lives > 0)
        assert not isinstance(answer, BucketFacts) or answer.lives == lives


TestBuckets = Buckets.TestCase
