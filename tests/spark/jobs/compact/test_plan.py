"""Rewrites planned from a catalog alone: the server accepts them, and no reader notices."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.lake.catalog import Catalog, read_catalog, read_forks, read_tombstones
from headwater.lake.compaction.planning import Rewrite, RewriteLimits
from headwater.lake.compaction.rewriting import Cuts, Keep
from headwater.lake.format import parse_segment_key
from headwater.lake.verify.inspecting import inspect
from headwater.lake.verify.verifier import Verifier
from headwater.node.lake.cataloger import Cataloger
from headwater.protocol.limits import PIN_DEADLINE_US
from headwater.spark.failures import LinkRefused
from headwater.spark.jobs.compact import Dead, Outcome, carry_out, plan_rewrites
from headwater.streams import forking
from headwater.streams.commands import Command
from headwater.streams.commands.consumers import RegisterConsumer
from headwater.streams.commands.forks import Ancestry, Paid, Unpin
from headwater.streams.commands.lake import Publication, SwapSegments
from headwater.streams.commands.streams import Delete
from headwater.streams.forking import ForkRequest
from headwater.streams.queries import ForkTarget
from headwater.streams.replies import Placed, Reply

from ....doubles.faulty_store import POSSIBLE, Call, Fault
from ....node.lake.small_lake import Chance, Lake, Row

LIMITS = RewriteLimits(bytes_max=100_000, small_bytes=1)
CUTS = Cuts(segment_bytes=60, streams_max=3)
SEEDS = st.integers(0, 2**32)


class Bench:
    """A small lake, its catalogs, and rewrites planned from them."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.store = lake, lake.store
        self.cataloger = Cataloger(lake.parts)
        self.before_swap: Callable[[], None] = lambda: None
        self.dense: dict[int, int] = {}
        self._pins = count()

    def catalog(self) -> Catalog:
        asyncio.run(self.cataloger.write())
        found = read_catalog(self.store)
        assert found is not None
        return found

    def compact(self) -> list[Outcome]:
        """One round."""
        planned, keep = self.plan()
        numbers = [number for rewrite in planned for number in rewrite.numbers]
        assert len(set(numbers)) == len(numbers), "two rewrites touch the same segment"
        outcomes = [carry_out(rewrite, self.store, keep, CUTS, self.swap) for rewrite in planned]
        for outcome in outcomes:
            if outcome.what == "dense":
                self.dense |= {one.number: one.live_rows for one in outcome.rewrite.candidates}
        return outcomes

    def plan(self) -> tuple[list[Rewrite], Keep]:
        catalog, lowest = self.catalog(), self.lake.state.cold.lowest_consumer(self.lake.now)
        keep = Keep(Dead(read_tombstones(self.store, catalog), read_forks(self.store, catalog)).below, lowest)
        return plan_rewrites(catalog, lowest, LIMITS, dense=self.dense), keep

    def swap(self, numbers: Sequence[int], keys: Sequence[str], dropped: int, deadline: int) -> None:
        publications = tuple(self._publication(key) for key in keys)
        self.before_swap()
        reply = self.lake.do(SwapSegments(tuple(numbers), publications, deadline, dropped))
        if not isinstance(reply, Placed):
            raise LinkRefused("The swap", 409, {"code": "swap_refused", "detail": str(reply)})

    def _publication(self, key: str) -> Publication:
        parsed = parse_segment_key(key)
        assert parsed is not None
        size = len(self.store.read(key))
        found = inspect(lambda start, size: self.store.read(key, start, size), size, parsed)
        return Publication(found.segment, found.rows)

    def fork(self, name: str, source: str) -> None:
        """Fork a stream at its tail."""
        state, now = self.lake.state, self.lake.now
        request = ForkRequest(name, Ancestry(source, None, 0, None, None), False, b"")
        steps = forking.fork(request, f"fork{next(self._pins)}", now + PIN_DEADLINE_US)
        answer: Reply | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration:
                return
            answer = None
            if isinstance(step, ForkTarget):
                answer = forking.query_target(state, step, now)
            elif isinstance(step, Command):
                answer = self.lake.do(step)

    def pay(self) -> None:
        """Let sources release what deleted forks held."""
        while self.lake.state.owed:
            pin, debt = next(iter(self.lake.state.owed.items()))
            self.lake.do(Unpin(debt.source, debt.incarnation, pin))
            self.lake.do(Paid(pin))

    def problems(self) -> list[str]:
        self.catalog()
        return [str(problem) for problem in Verifier(self.store).problems()]


class ForkingChance(Chance):
    """Adds forks, forks of forks and their deletion."""

    def __init__(self, bench: Bench, seed: int, *, pins: bool) -> None:
        super().__init__(bench.lake, seed)
        self.bench, self.has_pins = bench, pins
        self.forks = ["f/1", "f/2", "g/1"]
        flushes(bench.lake, "z/z", times=1)

    def act(self) -> None:
        kinds = [self._append] * 8 + [self._flush] * 3 + [self._trim] * 3 + [self._delete, self._fork, self._read]
        if self.has_pins:
            kinds += [self._pin, self._unpin]
        self.random.choice(kinds)()
        if not self.has_pins or self.random.random() < 0.5:
            self.bench.pay()

    def _name(self) -> str:
        return self.random.choice(self.forks) if self.random.random() < 0.3 else super()._name()

    def _fork(self) -> None:
        self.bench.fork(self.random.choice(self.forks), self._name())


@contextmanager
def benched() -> Iterator[Bench]:
    lake = Lake()
    bench = Bench(lake)
    try:
        yield bench
    finally:
        asyncio.run(bench.cataloger.stop())
        asyncio.run(lake.compactor.stop())


@pytest.fixture
def bench() -> Iterator[Bench]:
    with benched() as bench:
        yield bench


# -- Random histories --------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=8)
@given(SEEDS)
def test_the_server_accepts_every_rewrite_and_reads_stay_the_same(seed: int) -> None:
    with benched() as bench:
        lake, chance = bench.lake, ForkingChance(bench, seed, pins=False)
        for _ in range(3):
            for _ in range(chance.random.randint(5, 40)):
                chance.act()
            seen, before = lake.seen(), lake.in_files()
            lowest = lake.state.cold.lowest_consumer(lake.now)
            for _ in range(20):
                outcomes = bench.compact()
                assert all(outcome.what in ("swapped", "dense") for outcome in outcomes), outcomes
                assert lake.seen() == seen
                if not outcomes:
                    break
            else:
                raise AssertionError("there is always something to rewrite")
            lake.check()
            assert {row for row in before if row[1].position > lowest} <= set(lake.in_files())
            assert bench.problems() == []


@settings(deadline=None, max_examples=8)
@given(SEEDS)
def test_a_rewrite_that_has_become_wrong_is_refused_and_changes_nothing(seed: int) -> None:
    with benched() as bench:
        lake, chance = bench.lake, ForkingChance(bench, seed, pins=True)
        after: dict[int, list[Row]] = {}

        def meanwhile() -> None:
            nonlocal after
            for _ in range(3):
                chance.act()
            after = lake.seen()

        bench.before_swap = meanwhile
        for _ in range(3):
            for _ in range(chance.random.randint(5, 40)):
                chance.act()
            after = lake.seen()
            outcomes = bench.compact()
            assert all(outcome.what in ("swapped", "dense", "refused") for outcome in outcomes), outcomes
            assert lake.seen() == after
            lake.check()
            assert bench.problems() == []


# -- Dead rows ---------------------------------------------------------------------------------------------------------


def flushes(lake: Lake, *names: str, times: int = 4) -> None:
    for number in range(times):
        for name in names:
            lake.append(name, b"%s-%d" % (name.encode(), number))
        lake.flush()


def offsets_of(lake: Lake, name: str) -> list[int]:
    return [row.offset for _, row in lake.in_files() if row.name == name]


def test_neighbours_are_merged_without_deleted_streams(bench: Bench) -> None:
    flushes(bench.lake, "a/x", "a/y")
    bench.lake.do(Delete("a/y"))
    [outcome] = bench.compact()
    assert (outcome.what, outcome.rewrite.why, outcome.rows_dropped) == ("swapped", "small", 4)
    assert outcome.bytes_read > 0 < outcome.bytes_written
    assert offsets_of(bench.lake, "a/y") == []
    assert bench.compact() == []


def test_trimmed_rows_are_dropped(bench: Bench) -> None:
    flushes(bench.lake, "a/x", "a/y")
    row = bench.lake.rows(bench.lake.state.streams["a/x"])[2]
    bench.lake.trim("a/x", row.end, row.record + 1)
    [outcome] = bench.compact()
    assert outcome.rows_dropped == 3
    assert offsets_of(bench.lake, "a/x") == [row.end]


def test_rows_that_a_consumer_has_not_read_are_kept(bench: Bench) -> None:
    flushes(bench.lake, "a/x", "a/y", times=2)
    bench.lake.do(RegisterConsumer("exports", bench.lake.state.position))
    flushes(bench.lake, "a/x", "a/y", times=2)
    bench.lake.do(Delete("a/y"))
    [outcome] = bench.compact()
    assert (outcome.what, outcome.rows_dropped) == ("swapped", 2)
    assert len(offsets_of(bench.lake, "a/y")) == 2


def test_rows_that_a_fork_of_a_fork_may_need_are_kept(bench: Bench) -> None:
    bench.lake.append("b/z", b"z")
    flushes(bench.lake, "a/x")
    bench.fork("f/1", "a/x")
    bench.fork("f/2", "f/1")
    for name in ("a/x", "f/1"):
        bench.lake.do(Delete(name))
    seen = bench.lake.seen()
    [outcome] = bench.compact()
    assert (outcome.what, outcome.rows_dropped) == ("swapped", 0)
    bench.lake.do(Delete("f/2"))
    bench.pay()
    assert seen != bench.lake.seen()
    [outcome] = bench.compact()
    assert outcome.what == "swapped"
    assert offsets_of(bench.lake, "a/x") == []


def test_segments_without_a_live_row_are_dropped_unread(bench: Bench) -> None:
    flushes(bench.lake, "a/x", times=1)
    bench.lake.do(Delete("a/x"))
    flushes(bench.lake, "a/y", times=1)
    [outcome] = bench.compact()
    assert (outcome.what, outcome.rewrite.why, outcome.keys, outcome.bytes_read) == ("swapped", "dead", (), 0)
    assert outcome.rows_dropped == 1


def test_segments_of_a_flush_in_progress_are_not_touched(bench: Bench) -> None:
    flushes(bench.lake, "a/x", times=3)
    bench.lake.append("a/x", b"1")
    bench.lake.append("a/y", b"2")
    bench.lake.flush(appends_max=1, segments_max=1)
    assert bench.compact() == []


@pytest.mark.parametrize(("call", "fault"), [(call, fault) for call in ("create", "read") for fault in POSSIBLE[call]])
def test_a_failing_store_is_reported_and_nothing_is_lost(bench: Bench, call: Call, fault: Fault) -> None:
    flushes(bench.lake, "a/x")
    seen = bench.lake.seen()
    planned, keep = bench.plan()
    bench.store.fail_at(call, 0, fault)
    outcome = carry_out(planned[0], bench.store, keep, CUTS, bench.swap)
    assert outcome.what == "failed"
    assert bench.lake.seen() == seen
    assert bench.compact()[0].what == "swapped"
    assert bench.lake.seen() == seen
