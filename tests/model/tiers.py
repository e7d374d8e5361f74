"""The chores of the lake between the requests of clients, which must not notice any of them.

Flushes, rewrites and drops are planned at one moment and submitted at another; meanwhile streams are deleted, created
again, trimmed, forked and appended to. Each is placed or refused as predicted here, from what was placed before alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.protocol.content_types import is_json
from headwater.protocol.limits import MINUTE_US
from headwater.streams import buckets
from headwater.streams.commands import Command
from headwater.streams.commands.consumers import DropConsumer, RegisterConsumer
from headwater.streams.commands.lake import ForgetSegments, Publication, PublishSegment, SwapSegments
from headwater.streams.images import image_of
from headwater.streams.queries import Listing
from headwater.streams.replies import Done, Misplaced, Placed
from headwater.streams.segments import Rows

from ..streams.lakes import Row, catalog_of, collect, groups_of, rewrite
from ..streams.shards import Shard, Shards

WHICH = st.integers(0, 99)


@dataclass
class Flush:
    """Segments that were collected at one moment, yet to be published in this order."""

    shard: Shard
    publications: list[PublishSegment]


@dataclass
class Swap:
    shard: Shard
    command: SwapSegments


class Tiers(RuleBasedStateMachine):
    """A mixin for machines with `shards`: moves their bytes to the lake and within it."""

    shards: Shards

    def begin_tiers(self) -> None:
        self.flushes: list[Flush] = []
        self.swaps: list[Swap] = []
        self.reached: dict[tuple[str, int], int] = {}
        """Up to which offset each life is in the lake."""
        self.catalogs: dict[Shard, tuple[object, int]] = {}

    def shard(self, which: int) -> Shard:
        return self.shards.all[which % len(self.shards.all)]

    # -- Flushes ------------------------------------------------------------------------------------------------------

    @rule(which=WHICH, names=st.none() | st.sets(st.integers(0, 5)), cuts=st.integers(1, 3))
    def collect(self, which: int, names: set[int] | None, cuts: int) -> None:
        """Collect what is hot, of all streams or some, in one or more segments; a stream may continue in the next."""
        shard = self.shard(which)
        state = shard.state
        warm = sorted(state.warm)
        chosen = warm if names is None else [name for at, name in enumerate(warm) if at in names]
        parts = cut(collect(state, chosen), cuts)
        first, position, deadline = state.cold.flushed + 1, state.position, self.time(shard) + 10 * MINUTE_US
        publications = []
        for index, rows in enumerate(parts):
            flushed = position if names is None and index == len(parts) - 1 else 0
            publications.append(PublishSegment(shard.lake.put(rows, first, position), deadline, flushed))
        if publications:
            self.flushes.append(Flush(shard, publications))

    @precondition(lambda self: self.flushes)
    @rule(which=WHICH, most=st.integers(1, 3))
    def publish(self, which: int, most: int) -> None:
        """Publish the next segments of a flush, which ends when one is refused."""
        flush = self.flushes[which % len(self.flushes)]
        for _ in range(most):
            if flush.publications:
                command = flush.publications.pop(0)
                if not self.submit_chore(flush.shard, command, self.fits(flush.shard, command)):
                    flush.publications.clear()
        self.flushes = [each for each in self.flushes if each.publications]

    @rule(which=WHICH, names=st.none() | st.sets(st.integers(0, 5)), cuts=st.integers(1, 3))
    def flush(self, which: int, names: set[int] | None, cuts: int) -> None:
        """Collect and publish at once, which always succeeds."""
        count = len(self.flushes)
        self.collect(which, names, cuts)
        for flush in self.flushes[count:]:
            for command in flush.publications:
                assert self.submit_chore(flush.shard, command, True)
        del self.flushes[count:]

    def fits(self, shard: Shard, command: PublishSegment) -> bool:
        in_time = self.time(shard) <= command.deadline
        return in_time and all(self.follows(shard, rows) for rows in command.publication.rows)

    def follows(self, shard: Shard, rows: Rows) -> bool:
        """Whether rows are dead, or the next ones in the lake; rows that are not needed may be missing before them."""
        stream = shard.state.streams.get(rows.name)
        if stream is None or stream.incarnation != rows.incarnation or rows.end <= stream.floor:
            return True
        own = stream.origin.to if stream.origin else 0
        reached = self.reached.get((rows.name, rows.incarnation), own)
        return rows.start == reached or (reached <= stream.floor and rows.start <= max(stream.floor, own))

    # -- Rewrites -----------------------------------------------------------------------------------------------------

    @rule(which=WHICH, start=WHICH, span=st.integers(1, 4), cuts=st.integers(1, 3), alone=st.booleans())
    def plan(self, which: int, start: int, span: int, cuts: int, alone: bool) -> None:
        """Plan to merge neighbouring groups of segments into one or a few, or to rewrite one alone."""
        shard = self.shard(which)
        groups = groups_of(shard.state)
        if groups:
            start %= len(groups)
            numbers = [number for group in groups[start : start + span] for number in group][: 1 if alone else None]
            deadline = self.time(shard) + 10 * MINUTE_US
            self.swaps.append(Swap(shard, rewrite(shard.lake, shard.state, numbers, deadline, cuts)))

    @precondition(lambda self: self.swaps)
    @rule(which=WHICH)
    def swap(self, which: int) -> None:
        swap = self.swaps.pop(which % len(self.swaps))
        self.submit_chore(swap.shard, swap.command, self.swap_fits(swap.shard, swap.command))

    @rule(which=WHICH, start=WHICH, span=st.integers(1, 4), cuts=st.integers(1, 3), alone=st.booleans())
    def compact(self, which: int, start: int, span: int, cuts: int, alone: bool) -> None:
        """Plan and submit at once, which always succeeds."""
        count = len(self.swaps)
        self.plan(which, start, span, cuts, alone)
        for swap in self.swaps[count:]:
            assert self.submit_chore(swap.shard, swap.command, True)
        del self.swaps[count:]

    @rule(which=WHICH)
    def retire(self, which: int) -> None:
        """Drop segments without live rows that every consumer has read."""
        shard = self.shard(which)
        cold = shard.state.cold
        lowest = cold.lowest_consumer(self.time(shard))
        dead = [
            (n, h.segment) for n, h in cold.segments.items() if not h.live_rows and h.segment.last_position <= lowest
        ]
        if dead:
            dropped = max(segment.last_position for _, segment in dead)
            numbers = tuple(number for number, _ in dead)
            assert self.submit_chore(shard, SwapSegments(numbers, (), self.time(shard), dropped), True)
            assert not cold.segments.keys() & set(numbers)

    def swap_fits(self, shard: Shard, command: SwapSegments) -> bool:
        cold = shard.state.cold
        unread = command.dropped > cold.lowest_consumer(self.time(shard))
        there = cold.segments.keys() >= set(command.replaced)
        return there and not unread and self.time(shard) <= command.deadline

    @rule(which=WHICH, most=st.integers(1, 5))
    def forget(self, which: int, most: int) -> None:
        """Delete objects that were replaced."""
        shard = self.shard(which)
        ids = list(shard.state.cold.retired)
        seen = self.appearance()
        assert shard.submit([ForgetSegments(tuple(ids[:most]))], self.shards.now) == [Done()]
        assert list(shard.state.cold.retired) == ids[most:]
        assert self.appearance() == seen

    # -- Consumers ----------------------------------------------------------------------------------------------------

    @rule(which=WHICH, consumer=st.sampled_from("xy"), back=st.integers(0, 20))
    def register(self, which: int, consumer: str, back: int) -> None:
        shard = self.shard(which)
        position = max(shard.state.position - back, 0)
        assert shard.submit([RegisterConsumer(consumer, position)], self.shards.now) == [Done()]
        assert shard.state.cold.lowest_consumer(shard.state.now) <= position

    @rule(which=WHICH, consumer=st.sampled_from("xy"))
    def leave(self, which: int, consumer: str) -> None:
        shard = self.shard(which)
        assert shard.submit([DropConsumer(consumer)], self.shards.now) == [Done()]
        assert consumer not in shard.state.cold.consumers

    # -- What clients do not notice -----------------------------------------------------------------------------------

    def time(self, shard: Shard) -> int:
        """The time at which the shard would apply a command now."""
        return max(shard.state.now, self.shards.now + shard.ahead_us)

    def submit_chore(self, shard: Shard, command: PublishSegment | SwapSegments, expected: bool) -> bool:
        """Submit a command, which must be placed or refused as expected; clients notice nothing in either case."""
        seen, dropped, before = self.appearance(), shard.state.cold.dropped, state_without_time(shard)
        commands: list[Command] = [command]
        [reply] = shard.submit(commands, self.shards.now)
        assert isinstance(reply, Placed if expected else Misplaced), reply
        assert self.appearance() == seen
        if not expected:
            assert state_without_time(shard) == before
        elif isinstance(command, PublishSegment):
            self.note(shard, command.publication)
        else:
            assert shard.state.cold.dropped == max(dropped, command.dropped)
        return expected

    def note(self, shard: Shard, publication: Publication) -> None:
        for rows in publication.rows:
            stream = shard.state.streams.get(rows.name)
            if stream is not None and stream.incarnation == rows.incarnation:
                life = rows.name, rows.incarnation
                self.reached[life] = max(self.reached.get(life, 0), rows.end)

    def appearance(self) -> list[object]:
        """Everything that can be read: the messages, records and facts of every stream, and the list of streams."""
        shards = self.shards
        seen: list[object] = []
        for stream in shards.streams:
            messages = [message for page in shards.messages(stream.name, stream.start, 7) for message in page]
            records: list[int] = []
            if is_json(stream.content_type):
                records = [shards.offset_of(stream, at) for at in range(stream.record_start, stream.record_next + 1)]
                assert [shards.record_at(stream, offset) for offset in records] == list(
                    range(stream.record_start, stream.record_next + 1)
                )
            facts = stream.tail, stream.start, stream.closed, stream.deleted, stream.snapshot, stream.attrs
            seen.append((stream.name, stream.incarnation, messages, records, facts))
        listing = Listing("b", "", "", 100)
        return [*seen, *(buckets.listing(shard.state, listing, self.time(shard)) for shard in shards.all)]

    @invariant()
    def a_catalog_is_due_when_it_would_say_something_else(self) -> None:
        for shard in self.shards.all:
            catalog, position = catalog_of(shard.state), shard.state.position
            known, known_at = self.catalogs.get(shard, (catalog, position))
            assert catalog == known or shard.state.cold.changed_at > known_at
            assert shard.state.cold.changed_at <= position
            self.catalogs[shard] = catalog, position


def state_without_time(shard: Shard) -> object:
    """The whole state without its position and time."""
    state = shard.state
    position, now = state.position, state.now
    state.position = state.now = 0
    image = image_of(state)
    state.position, state.now = position, now
    return image, state.hot_bytes, dict(state.warm), dict(state.forks)


def cut(rows: Sequence[Row], parts: int) -> list[list[Row]]:
    """Rows cut into about this many parts, between appends."""
    appends = [list(each) for _, each in groupby(rows, lambda row: (row.incarnation, row.append))]
    size = -(-len(appends) // parts) or 1
    return [[row for rows in appends[at : at + size] for row in rows] for at in range(0, len(appends), size)]
