"""The core answers every request as the oracle does, and every read returns the oracle's bytes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from headwater.protocol import message_ends
from headwater.protocol.etags import Version
from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.limits import PIN_DEADLINE_US
from headwater.protocol.producers import Producer
from headwater.protocol.refusals import Refusal
from headwater.streams import appending, forking
from headwater.streams.commands import Command
from headwater.streams.commands.snapshots import PublishSnapshot, Retain, Snapshot
from headwater.streams.commands.streams import Append, Create, Delete, Expire, SetAttrs, Touch
from headwater.streams.images import image_of, restore
from headwater.streams.queries import Head, Read
from headwater.streams.replies import Created, Page, Reply

from ..streams.shards import START_US, Shards, replay
from .invariants import check_shards, check_tidied
from .oracle import (
    DEPTH_MAX,
    PRODUCERS_MAX,
    SECOND,
    WEEK,
    Folded,
    Founding,
    Life,
    Oracle,
    Outcome,
    Point,
    Settings,
    Who,
    outcome,
)
from .tiers import Tiers

T = TypeVar("T")


def outcome_of(reply: Reply) -> Outcome:
    """A reply in the oracle's words."""
    facts = msgspec.structs.asdict(reply)
    lifetime = facts.pop("lifetime", None)
    if isinstance(lifetime, Lifetime):
        facts |= {"ttl_seconds": lifetime.ttl_seconds, "expires_at": lifetime.expires_at}
    snapshot = facts.pop("snapshot", None)
    if isinstance(snapshot, Snapshot):
        facts["snapshot"] = Folded(snapshot.offset, snapshot.digest)
    if isinstance(reply, Refusal):
        del facts["detail"]
        return outcome(facts.pop("code").value, **facts)
    word = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in type(reply).__name__)
    return outcome(word.removeprefix("_"), **facts)


def producer_of(who: Who | None) -> Producer | None:
    return Producer(who.name, who.epoch, who.seq) if who else None


def lifetime_of(requested: Settings) -> Lifetime:
    return Lifetime(requested.ttl, requested.until, None if requested.until is None else f"at {requested.until}")


# -- Requests, described before the state that they meet is known ------------------------------------------------------


@dataclass(frozen=True)
class Creation:
    name: str
    requested: Settings
    sizes: list[int]
    founder: "Founder"


@dataclass(frozen=True)
class Founder:
    seq: str | None = None
    who: Who | None = None
    incarnation: str = "any"


@dataclass(frozen=True)
class Addition:
    name: str
    sizes: list[int]
    close: bool
    seq: str | None
    producer: tuple[str, str] | None
    """A name, and how this request follows the producer's last one; a retry has the same content."""
    content_type: str | None
    incarnation: str
    seen: str | None = None
    """Which state of the stream it expects, if any."""
    record: int | None = None
    """The record number that it expects, relative to the next one, if any."""


@dataclass(frozen=True)
class Publication:
    """A snapshot, or without a text a retention."""

    name: str
    number: int
    near: bool
    text: str | None
    trims: bool
    incarnation: str


@dataclass(frozen=True)
class Description:
    name: str
    attrs: bytes
    incarnation: str


@dataclass(frozen=True)
class LifeCommand:
    """A command with no other argument than a life."""

    kind: type[Delete] | type[Touch] | type[Expire]
    name: str
    incarnation: str


Intent = Creation | Addition | Publication | Description | LifeCommand


def mostly(usual: Sequence[T], unusual: Sequence[T]) -> st.SearchStrategy[T]:
    """One of the usual, and once in nine one of the unusual."""
    return st.integers(0, 8).flatmap(lambda dice: st.sampled_from(unusual if dice == 0 else usual))


ALL_NAMES = ["b/a", "b/c", "b/d", "b/e", "b/f", "b/g"]
NAMES = st.sampled_from(ALL_NAMES)
SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=3)
TYPES = mostly(["text/plain", "application/json"], ["Text/Plain; charset=utf-8", "Application/JSON; charset=utf-8"])
LIFETIMES: st.SearchStrategy[tuple[int | None, int | None]] = mostly(
    [(None, None)],
    [(0, None), (5, None), (600, None), (10**6, None), (None, START_US), (None, START_US + 60 * SECOND)],
)
RARELY = st.sampled_from([False] * 30 + [True])
INCARNATIONS = mostly(["any", "this"], ["other"])
ATTRS = [b"{}", b'{"title":"a"}']
STEPS = mostly(["next", "next", "retry"], ["retry", "again", "older", "gap", "epoch", "bad epoch", "stale"])


def settings(types: st.SearchStrategy[str | None]) -> st.SearchStrategy[Settings]:
    return st.builds(
        lambda kind, life, closed, attrs: Settings(kind, life[0], life[1], closed, attrs),
        types,
        LIFETIMES,
        RARELY,
        mostly([None], ATTRS),
    )


FOUNDERS = st.builds(
    Founder,
    mostly([None], ["1", "2"]),
    mostly([None, Who("p", 1, 0), Who("q", 0, 0)], [Who("p", 1, 1)]),
    INCARNATIONS,
)
CREATIONS = st.builds(Creation, NAMES, settings(TYPES), SIZES | st.just([]), FOUNDERS)
ADDITIONS = st.builds(
    Addition,
    NAMES,
    st.booleans().flatmap(lambda plain: SIZES if plain else mostly([[1], [2, 3]], [[]])),
    RARELY,
    mostly([None], ["1", "10", "2", "a", "é"]),
    st.none() | st.tuples(st.sampled_from("pppqrs"), STEPS),
    mostly([None], ["text/html"]),
    INCARNATIONS,
    mostly([None, "this"], ["older", "closed", "another life"]),
    mostly([None, None, 0], [-1, 1]),
)
PUBLICATIONS = st.builds(
    Publication,
    NAMES,
    st.integers(0, 60),
    st.sampled_from([True, True, True, False]),
    st.sampled_from(["folded", "folded", "other", None]),
    st.booleans(),
    mostly(["this"], ["other"]),
)
DESCRIPTIONS = st.builds(Description, NAMES, st.sampled_from(ATTRS), INCARNATIONS)
ENDS = st.builds(LifeCommand, mostly([Touch], [Delete, Expire]), NAMES, INCARNATIONS)


class Streams(Tiers):
    """Gives the same intents to shards and to the oracle, while bytes move to the lake and within it."""

    @initialize(count=st.sampled_from([1, 3]))
    def begin(self, count: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(appending, "PRODUCERS_PER_STREAM_MAX", PRODUCERS_MAX)
        self.patch.setattr(forking, "FORK_DEPTH_MAX", DEPTH_MAX)
        self.shards = Shards(count)
        self.begin_tiers()
        self.oracle = Oracle()
        self.written = 0
        self.submit(
            [
                Creation("b/a", Settings("text/plain"), [3], Founder()),
                Creation("b/c", Settings("application/json"), [1, 1], Founder()),
            ]
        )
        self.tails: dict[tuple[str, int], tuple[int, int, int]] = {}

    # -- Writes ----------------------------------------------------------------------------------------------------

    @rule(intent=CREATIONS)
    def create(self, intent: Creation) -> None:
        self.submit([intent])

    @rule(intents=st.lists(ADDITIONS, min_size=1, max_size=8), which=st.integers(0, 30))
    def append(self, intents: list[Addition], which: int) -> None:
        name = self.pick("living", which)
        self.submit([replace(intent, name=name) for intent in intents])

    @rule(intent=PUBLICATIONS, kind=st.sampled_from(["living", "source"]), which=st.integers(0, 30))
    def fold(self, intent: Publication, kind: str, which: int) -> None:
        self.submit([replace(intent, name=self.pick(kind, which))])

    @rule(
        intents=st.lists(
            st.one_of(CREATIONS, ADDITIONS, ENDS, PUBLICATIONS, DESCRIPTIONS),
            min_size=1,
            max_size=8,
        ),
        late=mostly([0], [3, 1000]),
    )
    def write(self, intents: list[Intent], late: int) -> None:
        self.submit(intents, late * SECOND)

    def submit(self, intents: Sequence[Intent], late: int = 0) -> None:
        """Submit several commands, those of one shard in one batch; the clock that stamps them may be behind."""
        for shard in self.shards.all:
            now = max(shard.state.now, self.shards.now - late)
            commands: list[Command] = []
            outcomes: list[Outcome] = []
            for intent in intents:
                if self.shards.owner(intent.name) is shard:
                    command, expected = self.translate(intent, now, shard.state.position + len(commands) + 1)
                    commands.append(command)
                    outcomes.append(expected)
            if commands:
                assert [*map(outcome_of, shard.submit(commands, self.shards.now - late))] == outcomes

    def translate(self, intent: Intent, now: int, position: int) -> tuple[Command, Outcome]:
        """The command for an intent, and the oracle's outcome."""
        life = self.oracle.lives.get(intent.name)
        if isinstance(intent, Creation):
            assert intent.requested.content_type is not None
            messages = self.messages(intent.sizes, intent.requested.content_type)
            founding = self.founding(intent.founder, life)
            create = Create(
                intent.name,
                intent.requested.content_type,
                lifetime_of(intent.requested),
                intent.requested.closed,
                b"".join(messages),
                message_ends.of(messages),
                founding.seq,
                producer_of(founding.who),
                founding.incarnation,
                intent.requested.attrs,
            )
            return create, self.oracle.create(
                intent.name, intent.requested, messages, founding, now=now, incarnation=position
            )
        incarnation = self.incarnation_of(intent.incarnation, life)
        if isinstance(intent, Addition):
            return self.translate_addition(intent, life, incarnation, now)
        if isinstance(intent, Publication):
            return self.translate_publication(intent, life, incarnation or 1, now)
        if isinstance(intent, Description):
            described = self.oracle.set_attrs(intent.name, intent.attrs, incarnation, now)
            return SetAttrs(intent.name, intent.attrs, incarnation), described
        if intent.kind is Delete:
            return Delete(intent.name, incarnation), self.oracle.delete(intent.name, incarnation, now)
        target = incarnation if incarnation is not None else life.incarnation if life else 1
        act = self.oracle.touch if intent.kind is Touch else self.oracle.expire
        command: Command = Touch(intent.name, target, now) if intent.kind is Touch else Expire(intent.name, target)
        return command, act(intent.name, target, now)

    def incarnation_of(self, incarnation: str, life: Life | None) -> int | None:
        return {"any": None, "this": life.incarnation if life else 1, "other": 0}[incarnation]

    def founding(self, founder: Founder, life: Life | None) -> Founding:
        return Founding(founder.seq, founder.who, self.incarnation_of(founder.incarnation, life))

    def translate_addition(
        self, intent: Addition, life: Life | None, incarnation: int | None, now: int
    ) -> tuple[Command, Outcome]:
        content_type = intent.content_type or (life.content_type if life else "text/plain")
        messages = self.messages(intent.sizes, content_type)
        who = self.who(life, *intent.producer) if intent.producer else None
        if life and intent.producer and intent.producer[1] == "retry" and intent.producer[0] in life.producers:
            messages = life.producers[intent.producer[0]].messages
        close = intent.close or not messages
        seen = None if intent.seen is None else [self.seen(life, intent.seen), (0, 0, False)]
        record = None if intent.record is None else max(len(life.messages) + intent.record if life else 0, 0)
        append = Append(
            intent.name,
            b"".join(messages),
            message_ends.of(messages),
            content_type,
            close,
            intent.seq,
            producer_of(who),
            incarnation,
            None if seen is None else tuple(Version(*each) for each in seen),
            record,
        )
        return append, self.oracle.append(
            intent.name,
            messages,
            content_type,
            now,
            close=close,
            seq=intent.seq,
            who=who,
            incarnation=incarnation,
            seen=seen,
            record=record,
        )

    def seen(self, life: Life | None, which: str) -> tuple[int, int, bool]:
        """A state that the stream may be in, or was in, or never was."""
        if life is None:
            return 1, 0, False
        return {
            "this": (life.incarnation, life.tail, life.closed),
            "older": (life.incarnation, life.tail - 1, life.closed),
            "closed": (life.incarnation, life.tail, not life.closed),
            "another life": (life.incarnation + 1, life.tail, life.closed),
        }[which]

    def translate_publication(
        self, intent: Publication, life: Life | None, incarnation: int, now: int
    ) -> tuple[Command, Outcome]:
        """The node has resolved the offset before: within the retained range it is a message boundary."""
        offset, record = intent.number, 0
        if life is not None:
            boundaries = sorted(life.message_boundaries())
            offset = boundaries[intent.number % len(boundaries)] if intent.near else life.tail + intent.number % 3
            record = life.records_before(offset)
        if intent.text is None:
            return Retain(intent.name, incarnation, offset, record), self.oracle.retain(
                intent.name, incarnation, offset, now
            )
        self.shards.blobs.add(blob := f"blob-{len(self.shards.blobs)}-{self.written}-{now}")
        self.written += 1
        snapshot = Snapshot(offset, record, blob, "text/plain", 6, intent.text)
        folded = Folded(offset, intent.text)
        return PublishSnapshot(intent.name, incarnation, snapshot, intent.trims), self.oracle.publish(
            intent.name, incarnation, folded, now, trims=intent.trims
        )

    def who(self, life: Life | None, name: str, step: str) -> Who:
        last = life.producers.get(name) if life else None
        if last is None:
            return Who(name, 1, 1 if step == "gap" else 0)
        epoch, seq = {
            "next": (last.epoch, last.seq + 1),
            "retry": (last.epoch, last.seq),
            "again": (last.epoch, last.seq),
            "older": (last.epoch, max(last.seq - 1, 0)),
            "gap": (last.epoch, last.seq + 2),
            "epoch": (last.epoch + 1, 0),
            "bad epoch": (last.epoch + 1, 1),
            "stale": (last.epoch - 1, 0),
        }[step]
        return Who(name, max(epoch, 0), seq)

    def messages(self, sizes: list[int], content_type: str) -> list[bytes]:
        """Messages that were never written before; a byte stream gets them as one."""
        texts = []
        for size in sizes:
            self.written += 1
            texts.append((b"%d." % self.written).ljust(size, b"."))
        if "json" in content_type.lower():
            return [b'"%b"' % text for text in texts]
        return [b"".join(texts)] if texts else []

    @rule(
        name=mostly(["free"], ALL_NAMES),
        source=mostly(["living"], ALL_NAMES),
        which=st.integers(0, 30),
        offset=st.none() | st.integers(0, 60),
        near=st.booleans(),
        sub_offset=st.integers(0, 4),
        requested=settings(st.none() | TYPES),
        sizes=SIZES | st.none(),
        founder=FOUNDERS,
        confirmed=st.booleans(),
    )
    def fork(
        self,
        *,
        name: str,
        source: str,
        which: int,
        offset: int | None,
        near: bool,
        sub_offset: int,
        requested: Settings,
        sizes: list[int] | None,
        founder: Founder,
        confirmed: bool,
    ) -> None:
        """A fork from end to end; its last step may be lost."""
        name, source = self.pick(name, which), self.pick(source, which)
        life = self.oracle.lives.get(source)
        if offset is not None:
            offset = self.offset(life, offset, near)
        point = Point(source, offset, 0 if offset is None else sub_offset)
        messages: list[bytes] | None = self.messages(sizes or [], life.content_type if life else "text/plain")
        assert messages is not None
        body = b"".join(messages)
        if life and life.is_json:
            body = b" [%b] " % b" , ".join(messages)
            if sizes is None:
                body, messages = b"[1,", None
        founding = self.founding(founder, self.oracle.lives.get(name))
        task = self.shards.fork(
            name,
            source,
            point.offset,
            sub_offset=point.sub_offset,
            content_type=requested.content_type,
            lifetime=lifetime_of(requested) if requested.has_lifetime else None,
            closed=requested.closed,
            body=body,
            seq=founding.seq,
            producer=producer_of(founding.who),
            incarnation=founding.incarnation,
            attrs=requested.attrs,
        )
        while task.answer is None:
            task.step(self.shards)
        incarnation = self.shards.owner(name).state.position if isinstance(task.answer, Created) else 0
        expected = self.oracle.fork(
            name, point, requested, messages, founding, now=self.shards.now, incarnation=incarnation
        )
        assert outcome_of(task.answer) == expected
        if confirmed:
            self.shards.finish(task)

    @rule(name=mostly(["living", "source"], ALL_NAMES), which=st.integers(0, 30))
    def delete(self, name: str, which: int) -> None:
        self.submit([LifeCommand(Delete, self.pick(name, which), "any")])

    def pick(self, name: str, which: int) -> str:
        """This name or, for the word free, living or source, one of these names."""
        lives = self.oracle.lives
        living = [each for each in lives if isinstance(self.oracle.find(each, self.shards.now), Life)]
        kinds = {
            "free": [each for each in ALL_NAMES if each not in lives],
            "living": living,
            "source": [each for each in living if lives[each].forks],
        }
        several = kinds.get(name, [name]) or ALL_NAMES
        return several[which % len(several)]

    # -- Time ------------------------------------------------------------------------------------------------------

    @rule(seconds=mostly([0.001, 1, 4.5, 6], [31, 650, WEEK / SECOND]))
    def wait(self, seconds: float) -> None:
        self.shards.wait(seconds)

    @rule()
    def tidy(self) -> None:
        """Do all chores; afterwards everything that is needed is there, and nothing else."""
        self.shards.wait(PIN_DEADLINE_US / SECOND)
        self.shards.wait(1)
        self.shards.tidy()
        for life in list(self.oracle.lives.values()):
            self.oracle.expire(life.name, life.incarnation, self.shards.now)
        self.oracle.pay()
        check_tidied(self.shards)
        for life in self.oracle.lives.values():
            kept = [message for found in self.shards.messages(life.name, life.start) for message in found]
            assert kept == life.messages[life.records_before(life.start) :]
            stream = self.shards.stream(life.name)
            if life.is_json:
                assert stream.record_start == life.records_before(life.start)

    @rule()
    def restart(self) -> None:
        """Restore every shard from its image, which equals the image of a replay of its whole log."""
        for shard in self.shards.all:
            image = image_of(shard.state)
            assert image == image_of(replay(shard.log))
            shard.state = restore(image)

    # -- Reads -----------------------------------------------------------------------------------------------------

    @rule(name=NAMES)
    def head(self, name: str) -> None:
        assert outcome_of(self.shards.query(Head(name))) == self.oracle.head(name, self.shards.now)

    @rule(offset=st.just(0) | st.integers(0, 60), near=st.booleans(), bytes_max=st.integers(1, 30))
    def read(self, offset: int, near: bool, bytes_max: int) -> None:
        for name in ALL_NAMES:
            self.read_one(name, offset, near, bytes_max)

    def read_one(self, name: str, offset: int, near: bool, bytes_max: int) -> None:
        life = self.oracle.lives.get(name)
        offset = self.offset(life, offset, near)
        expected = self.oracle.read(name, offset, self.shards.now)
        page = self.shards.query(Read(name, offset), bytes_max)
        if isinstance(page, Refusal):
            assert outcome_of(page) == expected
            return
        assert life is not None
        assert isinstance(page, Page)
        pages = list(self.shards.messages(name, offset, bytes_max))
        messages = [message for found in pages for message in found]
        assert b"".join(messages) == expected
        assert page.body == b"".join(pages[0] if pages else [])
        assert (page.next_offset, page.closed) == (offset + len(page.body), life.closed)
        assert page.up_to_date == (page.next_offset == life.tail)
        assert all(len(found) == 1 or sum(map(len, found)) <= bytes_max for found in pages)
        if life.is_json:
            assert messages == life.messages[len(life.messages) - len(messages) :]

    def offset(self, life: Life | None, number: int, near: bool) -> int:
        """Some offset, perhaps beyond the tail; a `near` one is a boundary of that stream."""
        if life is None:
            return number
        boundaries = sorted(life.boundaries())
        return boundaries[number % len(boundaries)] if near else number % (life.tail + 3)

    # -- What always holds -----------------------------------------------------------------------------------------

    @invariant()
    def shards_are_sound(self) -> None:
        check_shards(self.shards)

    @invariant()
    def nothing_goes_back(self) -> None:
        for stream in self.shards.streams:
            life = (stream.name, stream.incarnation)
            here = (stream.tail, stream.record_next, stream.touched_at)
            before = self.tails.get(life, (0, 0, 0))
            assert all(new >= old for new, old in zip(here, before, strict=True))
            self.tails[life] = here

    @invariant()
    def the_same_lives_are_there(self) -> None:
        lives = {(life.name, life.incarnation, life.deleted) for life in self.oracle.lives.values()}
        assert {(stream.name, stream.incarnation, stream.deleted) for stream in self.shards.streams} == lives

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()


TestStreams = Streams.TestCase
