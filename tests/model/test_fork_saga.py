"""A fork's coordinator may die at any step: the chores leave no pin behind, and no fork without its source."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.protocol.lifetimes import FOREVER, Lifetime
from headwater.protocol.limits import PIN_DEADLINE_US, SECOND_US
from headwater.streams.commands import Command
from headwater.streams.commands.forks import CreateFork, Pin
from headwater.streams.commands.streams import Append, Create, Delete, Expire
from headwater.streams.images import image_of, restore
from headwater.streams.queries import Read
from headwater.streams.replies import Appended, Created, Deleted, Page, Pinned, Reply

from ..streams.shards import Shards, Task
from .invariants import check_shards, check_tidied

SOURCE, FORK = "b/source", "b/copy"
PAST_THE_DEADLINE = PIN_DEADLINE_US / SECOND_US + 1
TTL = Lifetime(ttl_seconds=10)
PAST_THE_TTL = 12


class Books:
    """The content that every life must have, derived from commands and replies alone."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.contents: dict[tuple[str, int], bytes] = {}
        self.inherited: dict[str, bytes] = {}
        self.ended: set[tuple[str, int]] = set()

    def ask(self, command: Command) -> Reply:
        reply = self.shards.ask(command)
        self.note(command, reply)
        return reply

    def step(self, task: Task) -> None:
        request = task.pending
        sent = task.step(self.shards)
        if isinstance(request, Command) and sent is not None:
            self.note(request, sent)

    def note(self, command: Command, reply: Reply) -> None:
        if isinstance(reply, Created):
            assert isinstance(command, Create | CreateFork)
            before = self.inherited[command.origin.pin] if isinstance(command, CreateFork) else b""
            self.ended |= {life for life in self.contents if life[0] == command.name}
            self.contents[command.name, reply.incarnation] = before + command.payload
        elif isinstance(reply, Appended):
            assert isinstance(command, Append)
            self.contents[command.name, reply.incarnation] += command.payload
        elif isinstance(reply, Deleted):
            assert isinstance(command, Delete | Expire)
            self.ended.add((command.name, reply.incarnation))
        elif isinstance(reply, Pinned):
            assert isinstance(command, Pin)
            self.inherited[command.pin] = self.contents[command.name, reply.incarnation][: reply.to]

    def check(self) -> None:
        """Every life that was not ended exists, and every life that exists has its content."""
        check_shards(self.shards)
        there = {(stream.name, stream.incarnation) for stream in self.shards.streams}
        assert self.contents.keys() - self.ended <= there, "a stream is lost"
        for name, incarnation in there:
            read = [message for page in self.shards.messages(name) for message in page]
            assert b"".join(read) == self.contents[name, incarnation]

    def clear(self) -> None:
        """Wait until all is settled, check that nothing is left over, then delete all streams: nothing must remain."""
        self.shards.wait(PAST_THE_DEADLINE + 20)
        self.shards.tidy()
        check_tidied(self.shards)
        for stream in self.shards.streams:
            assert stream.deleted or isinstance(self.shards.query(Read(stream.name)), Page)
        for stream in self.shards.streams:
            if not stream.deleted:
                assert isinstance(self.shards.ask(Delete(stream.name)), Deleted)
        self.shards.tidy()
        assert self.shards.streams == []


# -- Every way to die --------------------------------------------------------------------------------------------------

REQUESTS: dict[str, Callable[[Shards], Task]] = {
    "of the whole": lambda shards: shards.fork(FORK, SOURCE),
    "at a point": lambda shards: shards.fork(FORK, SOURCE, 3, sub_offset=1, body=b"more"),
    "with a short lifetime": lambda shards: shards.fork(FORK, SOURCE, lifetime=TTL),
    "refused for its type": lambda shards: shards.fork(FORK, SOURCE, 3, content_type="text/html"),
    "refused for its point": lambda shards: shards.fork(FORK, SOURCE, 9),
}


def delete(name: str) -> Callable[[Books], None]:
    def act(books: Books) -> None:
        books.ask(Delete(name))

    return act


def replace(name: str) -> Callable[[Books], None]:
    def act(books: Books) -> None:
        books.ask(Delete(name))
        books.ask(Create(name, "text/plain", payload=b"another life"))

    return act


def wait(seconds: float) -> Callable[[Books], None]:
    def act(books: Books) -> None:
        books.shards.wait(seconds)
        for chore in books.shards.chores():
            while chore.pending is not None:
                books.step(chore)

    return act


def rival(books: Books) -> None:
    task = books.shards.fork(FORK, SOURCE)
    while task.pending is not None:
        books.step(task)


EVENTS: dict[str, Callable[[Books], None]] = {
    "nothing": lambda books: None,
    "the source is deleted": delete(SOURCE),
    "the source is replaced": replace(SOURCE),
    "the source expires": wait(PAST_THE_TTL),
    "the fork is deleted": delete(FORK),
    "the fork is replaced": replace(FORK),
    "another client makes it": rival,
    "the deadline passes": wait(PAST_THE_DEADLINE),
    "everything goes to the lake": lambda books: books.shards.flush(),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("fork", REQUESTS)
@pytest.mark.parametrize("count", [1, 3], ids=["one shard", "three shards"])
def test_a_coordinator_may_die_after_any_step_whatever_happens_meanwhile(count: int, fork: str, event: str) -> None:
    """Its last request is lost, or arrives before the chores, or after them."""
    for steps, moment, fate in ways_to_die():
        shards = Shards(count)
        books = Books(shards)
        books.ask(Create(SOURCE, "text/plain", TTL if "expires" in event else FOREVER, payload=b"abc"))
        books.ask(Append(SOURCE, b"def", content_type="text/plain"))
        task = REQUESTS[fork](shards)
        for step in range(steps):
            if step == moment:
                EVENTS[event](books)
            if task.pending is None:
                break
            books.step(task)
            books.check()
        last = task.pending
        if moment == steps:
            EVENTS[event](books)
        if isinstance(last, Command) and fate == "arrives":
            books.ask(last)
        books.check()
        if isinstance(task.answer, Created):
            made = (FORK, task.answer.incarnation)
            assert made in books.ended or isinstance(shards.query(Read(FORK)), Page)
        if isinstance(last, Command) and fate == "is late":
            wait(PAST_THE_DEADLINE)(books)
            books.ask(last)
        books.clear()


def ways_to_die() -> Iterator[tuple[int, int, str]]:
    """How many steps it took, after which of them the event came, and what becomes of its last request."""
    for steps in range(8):
        for moment in range(steps + 1):
            for fate in ("is lost", "arrives", "is late"):
                yield steps, moment, fate


def test_eight_steps_are_more_than_any_fork_takes() -> None:
    for request in REQUESTS.values():
        shards = Shards()
        shards.ask(Create(SOURCE, "text/plain", payload=b"abcdef"))
        task = request(shards)
        for _ in range(7):
            if task.pending is not None:
                task.step(shards)
        assert task.pending is None


# -- Several at once ---------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["b/a", "b/c", "b/d", "b/e"])
WHICH = st.integers(0, 99)


class Forks(RuleBasedStateMachine):
    """Sagas and chores that take turns, die, and leave commands behind that arrive late."""

    @initialize(count=st.sampled_from([1, 3]), ahead=st.lists(st.integers(-5, 5), min_size=3, max_size=3))
    def begin(self, count: int, ahead: list[int]) -> None:
        self.shards = Shards(count)
        for shard, seconds in zip(self.shards.all, ahead, strict=False):
            shard.ahead_us = seconds * SECOND_US
        self.books = Books(self.shards)
        self.tasks: list[Task] = []
        self.late: list[tuple[Command, Task]] = []
        self.written = 0
        self.create("b/a", FOREVER)
        self.create("b/c", FOREVER)

    def payload(self) -> bytes:
        self.written += 1
        return b"%d;" % self.written

    @rule(name=NAMES, lifetime=st.sampled_from([FOREVER, FOREVER, TTL]))
    def create(self, name: str, lifetime: Lifetime) -> None:
        self.books.ask(Create(name, "text/plain", lifetime, payload=self.payload()))

    @rule(name=NAMES)
    def append(self, name: str) -> None:
        self.books.ask(Append(name, self.payload(), content_type="text/plain"))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.books.ask(Delete(name))

    @rule(name=st.none() | NAMES)
    def flush(self, name: str | None) -> None:
        self.shards.flush(*([] if name is None else [name]))

    @rule(seconds=st.sampled_from([1, 5, PAST_THE_TTL, PAST_THE_DEADLINE]))
    def wait(self, seconds: float) -> None:
        self.shards.wait(seconds)

    @rule(
        name=NAMES,
        source=NAMES,
        offset=st.none() | st.integers(0, 6),
        lifetime=st.sampled_from([None, None, TTL]),
        steps=st.integers(0, 7),
    )
    def start(self, name: str, source: str, offset: int | None, lifetime: Lifetime | None, steps: int) -> None:
        task = self.shards.fork(name, source, offset, lifetime=lifetime, body=self.payload())
        self.tasks.append(task)
        self.advance(-1, steps)

    @rule(which=WHICH)
    def start_a_chore(self, which: int) -> None:
        chores = self.shards.chores()
        if chores:
            self.tasks.append(chores[which % len(chores)])

    @precondition(lambda self: self.tasks)
    @rule(which=WHICH, steps=st.integers(1, 7))
    def advance(self, which: int, steps: int) -> None:
        task = self.tasks[which % len(self.tasks)]
        for _ in range(steps):
            if task.pending is not None:
                self.books.step(task)

    @precondition(lambda self: self.tasks)
    @rule(which=WHICH, lost=st.booleans())
    def die(self, which: int, lost: bool) -> None:
        task = self.tasks.pop(which % len(self.tasks))
        if isinstance(task.pending, Command) and not lost:
            self.late.append((task.pending, task))

    @precondition(lambda self: self.late)
    @rule(which=WHICH)
    def arrive(self, which: int) -> None:
        command, task = self.late.pop(which % len(self.late))
        self.books.note(command, self.shards.ask(command, task.home))

    @rule()
    def restart(self) -> None:
        """Restore every shard from its image; all tasks are lost."""
        for shard in self.shards.all:
            shard.state = restore(image_of(shard.state))
        self.tasks.clear()

    @rule()
    def clear(self) -> None:
        for command, task in self.late:
            self.books.note(command, self.shards.ask(command, task.home))
        self.tasks.clear()
        self.late.clear()
        self.books.clear()
        self.books.ended |= self.books.contents.keys()

    @invariant()
    def no_content_is_lost(self) -> None:
        self.books.check()


TestForks = Forks.TestCase
