"""A few streams are written, trimmed, forked, ended and created again while the lake's chores run at any moment."""

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from headwater.protocol import message_ends
from headwater.protocol.limits import SECOND_US
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.images import image_of, restore
from headwater.streams.queries import Read
from headwater.streams.replies import Appended, Created, Deleted, Page, Published
from headwater.streams.state import Stream

from ..streams.shards import Shards, replay
from .invariants import check_shards, check_tidied
from .lake_invariants import CatalogReader
from .tiers import WHICH, Tiers

NAMES = ["b/a", "b/b", "b/c", "b/d"]
JSON = "application/json"


class Lake(Tiers):
    """JSON streams, so that every boundary counts, and a record of what each life must hold."""

    @initialize(count=st.sampled_from([1, 1, 2]), ahead=st.lists(st.integers(-5, 5), min_size=2, max_size=2))
    def begin(self, count: int, ahead: list[int]) -> None:
        self.shards = Shards(count)
        for shard, seconds in zip(self.shards.all, ahead, strict=False):
            shard.ahead_us = seconds * SECOND_US
        self.begin_tiers()
        self.written = 0
        self.contents: dict[tuple[str, int], list[bytes]] = {}
        for name in NAMES[:2]:
            self.make(name, [1, 1])

    def messages(self, sizes: list[int]) -> list[bytes]:
        self.written += len(sizes)
        return [str(self.written + at).rjust(size, "0").encode() for at, size in enumerate(sizes)]

    def pick(self, which: int) -> Stream | None:
        living = [stream for stream in self.shards.streams if not stream.deleted]
        return living[which % len(living)] if living else None

    # -- Clients ------------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), sizes=st.lists(st.integers(1, 3), max_size=3))
    def make(self, name: str, sizes: list[int]) -> None:
        """Create a stream; an existing one is deleted first."""
        reply = self.shards.ask(Delete(name))
        messages = self.messages(sizes)
        created = self.shards.ask(Create(name, JSON, payload=b"".join(messages), ends=message_ends.of(messages)))
        if isinstance(created, Created):
            self.contents[name, created.incarnation] = messages
        else:
            assert isinstance(reply, Deleted) or self.shards.stream(name).deleted

    @rule(which=WHICH, appends=st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=4))
    def append(self, which: int, appends: list[list[int]]) -> None:
        stream = self.pick(which)
        for sizes in appends if stream else []:
            assert stream is not None
            messages = self.messages(sizes)
            append = Append(stream.name, b"".join(messages), message_ends.of(messages), JSON)
            assert isinstance(self.shards.ask(append), Appended)
            self.contents[stream.name, stream.incarnation] += messages

    @rule(which=WHICH)
    def delete(self, which: int) -> None:
        stream = self.pick(which)
        if stream is not None:
            assert isinstance(self.shards.ask(Delete(stream.name)), Deleted)

    @rule(which=WHICH, at=st.integers(0, 30), trims=st.sampled_from([True, True, False]))
    def fold(self, which: int, at: int, trims: bool) -> None:
        """Publish a snapshot, at or after the previous one."""
        stream = self.pick(which)
        if stream is not None:
            lowest = stream.record_start if stream.snapshot is None else stream.snapshot.record
            record = min(lowest + at, stream.record_next)
            offset = self.shards.offset_of(stream, record)
            reply = self.shards.publish(stream.name, offset, "folded", trims=trims)
            assert isinstance(reply, Published), reply

    @rule(which=WHICH, name=st.sampled_from(NAMES), at=st.none() | st.integers(0, 30), confirmed=st.booleans())
    def fork(self, which: int, name: str, at: int | None, confirmed: bool) -> None:
        stream = self.pick(which)
        if stream is None or name in self.shards.owner(name).state.streams:
            return
        lowest = stream.snapshot.record if stream.snapshot and stream.start else stream.record_start
        record = stream.record_next if at is None else min(lowest + at, stream.record_next)
        offset = None if at is None else self.shards.offset_of(stream, record)
        task = self.shards.fork(name, stream.name, offset)
        while task.answer is None:
            task.step(self.shards)
        assert isinstance(task.answer, Created), task.answer
        inherited = self.contents[stream.name, stream.incarnation][:record]
        self.contents[name, task.answer.incarnation] = inherited
        if confirmed:
            self.shards.finish(task)

    # -- Time ---------------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 100, 601, 8 * 24 * 3600]))
    def wait(self, seconds: int) -> None:
        self.shards.wait(seconds)

    @rule()
    def tidy(self) -> None:
        """Ended forks release their sources, which may end too, or lose what only the forks needed."""
        self.shards.wait(60)
        self.shards.tidy()
        check_tidied(self.shards)

    @rule()
    def restart(self) -> None:
        """Restore every shard from its image, which equals the image of a replay of its whole log."""
        for shard in self.shards.all:
            image = image_of(shard.state)
            assert image == image_of(replay(shard.log))
            shard.state = restore(image)

    # -- Reads --------------------------------------------------------------------------------------------------------

    @rule(
        which=WHICH,
        at=st.integers(0, 30),
        move=st.sampled_from(["flush", "compact", "all"]),
        runs=st.tuples(st.integers(1, 3), st.integers(1, 4)),
    )
    def read_while_it_moves(self, which: int, at: int, move: str, runs: tuple[int, int]) -> None:
        """A page is complete although its bytes move, into runs of another size, while it waits for the first."""
        stream = self.pick(which)
        if stream is None:
            return
        record = min(stream.record_start + at, stream.record_next)
        offset = self.shards.offset_of(stream, record)

        def meanwhile() -> None:
            self.shards.meanwhile = lambda: None
            for index, shard in enumerate(self.shards.all):
                shard.lake.appends_per_run = runs[1]
                if move != "compact":
                    self.flush(index, None, 2)
                if move != "flush":
                    self.compact(index, 0, 4, 1, False)

        for shard in self.shards.all:
            shard.lake.appends_per_run = runs[0]
        self.shards.meanwhile = meanwhile
        page = self.shards.query(Read(stream.name, offset))
        self.shards.meanwhile = lambda: None
        assert isinstance(page, Page)
        assert page.body == b"".join(self.contents[stream.name, stream.incarnation][record:])

    @rule()
    def flush_everything(self) -> None:
        """After that, the files alone hold everything."""
        for index in range(len(self.shards.all)):
            self.flush(index, None, 1)
            assert self.shards.all[index].state.hot_bytes == 0
        reader = CatalogReader(self.shards)
        for stream in self.shards.streams:
            if not stream.deleted:
                life = stream.name, stream.incarnation
                found = b"".join(payload for _, payload in reader.parts(life))
                assert found == b"".join(self.contents[life][stream.record_start :])

    @invariant()
    def everything_is_sound_and_there(self) -> None:
        check_shards(self.shards)
        for stream in self.shards.streams:
            kept = [message for page in self.shards.messages(stream.name, stream.start, 5) for message in page]
            assert kept == self.contents[stream.name, stream.incarnation][stream.record_start :]


TestLake = Lake.TestCase
