"""What a query needs from the lake, and what it does with the runs that it gets."""

from array import array

import pytest

from headwater.protocol.lifetimes import FOREVER
from headwater.protocol.message_ends import pack
from headwater.streams import reading
from headwater.streams.commands.streams import Append, Create
from headwater.streams.fetched import NOTHING_FETCHED, Fetched, NotFetched, Run
from headwater.streams.queries import Anchor, Read
from headwater.streams.replies import Anchored, Page
from headwater.streams.state import Stream

from .shards import Shards

JSON = "application/json"
STREAM = Stream("b/s", 7, "text/plain", FOREVER, 0, 0, 0, tail=40)


def run(offset: int, end: int) -> Run:
    """A run of one message for each byte, every two of them an append."""
    ends = pack(range(1, end - offset + 1))
    appends = array("q", [at - (at - offset) % 2 for at in range(offset, end)]).tobytes()
    return Run(offset, b"0123456789abcdefghijklmnopqrstuvwxyzABCD"[offset:end], ends, offset + 100, appends)


def fetched(*ranges: tuple[int, int]) -> Fetched:
    found = Fetched()
    for start, end in ranges:
        found.add(STREAM, [run(start, end)])
    return found


def need_of(error: pytest.ExceptionInfo[NotFetched]) -> tuple[Stream, int, int, int | None]:
    return error.value.stream, error.value.start, error.value.end, error.value.record


def covering(found: Fetched, start: int, end: int) -> list[tuple[int, int]] | tuple[int, int]:
    """The runs, or the range that is needed."""
    try:
        return [(each.offset, each.end) for each in found.covering(STREAM, start, end)]
    except NotFetched as need:
        assert (need.stream, need.record) == (STREAM, None)
        return need.start, need.end


def test_a_need_says_which_bytes_of_which_stream() -> None:
    need = NotFetched(STREAM, 3, 5, 9)
    assert (need.stream, need.start, need.end, need.record) == (STREAM, 3, 5, 9)
    assert need.args == ("b/s", 3, 5, 9)


# -- Ranges -----------------------------------------------------------------------------------------------------------

THREE = ((10, 14), (14, 20), (30, 36))


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (10, 11, [(10, 14)]),
        (10, 14, [(10, 14)]),
        (13, 14, [(10, 14)]),
        (13, 15, [(10, 14), (14, 20)]),
        (14, 20, [(14, 20)]),
        (14, 15, [(14, 20)]),
        (10, 20, [(10, 14), (14, 20)]),
        (35, 36, [(30, 36)]),
    ],
)
def test_runs_cover_a_range_that_is_in_them(start: int, end: int, found: list[tuple[int, int]]) -> None:
    assert covering(fetched(*THREE), start, end) == found


@pytest.mark.parametrize(
    ("start", "end", "need"),
    [
        (9, 14, (9, 14)),
        (0, 40, (0, 40)),
        (10, 21, (20, 21)),
        (14, 36, (20, 36)),
        (20, 21, (20, 21)),
        (25, 31, (25, 31)),
        (30, 40, (36, 40)),
        (36, 40, (36, 40)),
        (38, 40, (38, 40)),
    ],
)
def test_what_no_run_covers_is_needed_from_there_to_the_end(start: int, end: int, need: tuple[int, int]) -> None:
    assert covering(fetched(*THREE), start, end) == need


@pytest.mark.parametrize(("name", "incarnation"), [("b/s", 8), ("b/in another shard", 7)])
def test_runs_of_another_life_are_not_used(name: str, incarnation: int) -> None:
    other = Stream(name, incarnation, "text/plain", FOREVER, 0, 0, 0, tail=40)
    found = fetched((0, 40))
    with pytest.raises(NotFetched):
        found.covering(other, 0, 1)
    with pytest.raises(NotFetched):
        found.around(other, 0)
    with pytest.raises(NotFetched):
        found.with_record(other, 100)


def test_nothing_is_fetched_at_first_nor_by_adding_nothing() -> None:
    found = fetched()
    found.add(STREAM, [])
    assert covering(found, 0, 1) == covering(NOTHING_FETCHED, 0, 1) == (0, 1)


# -- Runs that were added before --------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_runs_may_come_in_any_order(order: tuple[int, ...]) -> None:
    found = fetched(*(THREE[index] for index in order))
    assert covering(found, 10, 20) == [(10, 14), (14, 20)]
    assert covering(found, 30, 36) == [(30, 36)]
    assert found.around(STREAM, 15).offset == 14


def test_neighbouring_runs_may_come_at_once() -> None:
    found = fetched((10, 14))
    found.add(STREAM, [run(14, 16), run(16, 20)])
    found.add(STREAM, [run(6, 8), run(8, 10)])
    assert covering(found, 6, 20) == [(6, 8), (8, 10), (10, 14), (14, 16), (16, 20)]


def test_a_run_may_come_again() -> None:
    assert covering(fetched((10, 14), (10, 14)), 10, 14) == [(10, 14)]


@pytest.mark.parametrize(
    ("old", "new", "known"),
    [
        ([(10, 14)], (10, 20), [(10, 20)]),
        ([(10, 14)], (4, 20), [(4, 20)]),
        ([(10, 20)], (12, 14), [(12, 14)]),
        ([(10, 14), (14, 18)], (12, 16), [(12, 16)]),
        ([(10, 14), (14, 18)], (8, 16), [(8, 16)]),
        ([(10, 14), (14, 18)], (12, 20), [(12, 20)]),
        ([(10, 14), (14, 18)], (14, 20), [(10, 14), (14, 20)]),
        ([(10, 14), (14, 18)], (6, 14), [(6, 14), (14, 18)]),
        ([(10, 14), (14, 18)], (18, 20), [(10, 14), (14, 18), (18, 20)]),
        ([(10, 14), (14, 18)], (8, 10), [(8, 10), (10, 14), (14, 18)]),
    ],
)
def test_a_run_takes_the_place_of_those_that_older_segments_cut_elsewhere(
    old: list[tuple[int, int]], new: tuple[int, int], known: list[tuple[int, int]]
) -> None:
    """Otherwise the same byte would be in two runs of one page."""
    found = fetched(*old, new)
    assert covering(found, known[0][0], known[-1][1]) == known
    assert covering(found, known[0][0] - 1, 40) == (known[0][0] - 1, 40)
    assert covering(found, known[-1][0], 40) == (known[-1][1], 40)


def test_several_runs_take_the_place_of_all_that_lie_across_any_of_them() -> None:
    found = fetched((8, 10), (10, 12), (14, 18), (18, 20), (20, 22))
    found.add(STREAM, [run(10, 14), run(14, 16), run(16, 20)])
    assert covering(found, 8, 22) == [(8, 10), (10, 14), (14, 16), (16, 20), (20, 22)]


@pytest.mark.parametrize("offset", range(13))
@pytest.mark.parametrize("appends_per_run", [1, 2, 3, 10])
def test_a_page_is_whole_though_segments_are_rewritten_while_it_waits(offset: int, appends_per_run: int) -> None:
    shards = Shards()
    shards.ask(Create("b/s", JSON, payload=b"00", ends=pack((1, 2))))
    for number in range(1, 6):
        shards.ask(Append("b/s", b"%d%d" % (number, number), pack((1, 2)), JSON))
        if number % 2:
            shards.flush()
    lake = shards.all[0].lake
    lake.appends_per_run = 1

    def meanwhile() -> None:
        shards.meanwhile = lambda: None
        lake.appends_per_run = appends_per_run
        shards.compact(1, 2, 3)

    shards.meanwhile = meanwhile
    page = shards.query(Read("b/s", offset))
    assert isinstance(page, Page)
    assert page.body == b"001122334455"[offset:]


# -- Around an offset -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "start"), [(10, 10), (11, 10), (13, 10), (14, 10), (15, 14), (20, 14), (30, 30), (36, 30)]
)
def test_a_run_holds_the_byte_at_an_offset_or_ends_there(offset: int, start: int) -> None:
    assert fetched(*THREE).around(STREAM, offset).offset == start


@pytest.mark.parametrize("offset", [9, 21, 29, 37])
def test_a_byte_around_which_there_is_no_run_is_needed(offset: int) -> None:
    with pytest.raises(NotFetched) as error:
        fetched(*THREE).around(STREAM, offset)
    assert need_of(error) == (STREAM, offset, offset + 1, None)


# -- Records ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("record", "start"), [(110, 10), (113, 10), (114, 14), (119, 14), (130, 30), (135, 30)])
def test_a_run_holds_the_message_with_an_ordinal(record: int, start: int) -> None:
    assert fetched(*THREE).with_record(STREAM, record).offset == start


@pytest.mark.parametrize("record", [109, 120, 129, 136])
def test_a_message_that_is_in_no_run_is_needed(record: int) -> None:
    with pytest.raises(NotFetched) as error:
        fetched(*THREE).with_record(STREAM, record)
    assert need_of(error) == (STREAM, 0, 0, record)


# -- What a query needs -----------------------------------------------------------------------------------------------


@pytest.fixture
def shards() -> Shards:
    """b/json: 10, "b", 300 in one append and 4000 in the lake, 5 in memory; b/text: abcd and efg in the lake, h not."""
    shards = Shards()
    shards.ask(Create("b/json", JSON, payload=b'10"b"300', ends=pack((2, 5, 8))))
    shards.ask(Append("b/json", b"4000", content_type=JSON))
    shards.ask(Create("b/text", "text/plain", payload=b"abcd"))
    shards.ask(Append("b/text", b"efg", content_type="text/plain"))
    shards.flush()
    shards.ask(Append("b/json", b"5", content_type=JSON))
    shards.ask(Append("b/text", b"h", content_type="text/plain"))
    return shards


def needed(shards: Shards, name: str, offset: int, bytes_max: int) -> tuple[int, int]:
    with pytest.raises(NotFetched) as error:
        reading.plan(shards.stream(name), offset, bytes_max, shards.source_of)
    assert error.value.stream is shards.stream(name)
    return error.value.start, error.value.end


def test_a_page_needs_no_more_of_the_lake_than_it_may_hold(shards: Shards) -> None:
    assert needed(shards, "b/text", 0, 3) == (0, 3)
    assert needed(shards, "b/text", 2, 3) == (2, 5)
    assert needed(shards, "b/text", 2, 5) == (2, 7)
    assert needed(shards, "b/text", 2, 6) == (2, 7)


def test_a_page_that_ends_at_a_fork_point_needs_no_bytes_after_it(shards: Shards) -> None:
    shards.finish(shards.fork("b/fork", "b/text", 8, body=b"own"))
    shards.flush("b/fork")
    plan = reading.plan(shards.stream("b/fork"), 7, 1, shards.source_of)
    assert ([piece.end for piece in plan.slices], plan.next_offset) == ([8], 8)


def test_hot_bytes_are_read_without_the_lake(shards: Shards) -> None:
    for name, start in (("b/text", 7), ("b/json", 12)):
        stream = shards.stream(name)
        assert reading.judge(stream, start, shards.source_of) is None
        assert reading.plan(stream, start, 100, shards.source_of).next_offset == start + 1
        assert reading.record_at(stream, start, shards.source_of) == stream.record_next - 1
        assert reading.offset_of(stream, stream.record_next - 1, shards.source_of) == start
        anchored = reading.anchor(stream, Anchor(name, start, 1), shards.source_of)
        assert anchored == Anchored(stream.incarnation, start + 1, stream.record_next)


@pytest.mark.parametrize("offset", range(1, 12))
def test_finding_out_whether_an_offset_is_a_boundary_needs_the_run_around_it(offset: int, shards: Shards) -> None:
    stream = shards.stream("b/json")
    for query in (reading.judge, reading.record_at):
        with pytest.raises(NotFetched) as error:
            query(stream, offset, shards.source_of)
        assert need_of(error) == (stream, offset, offset + 1, None)


def test_the_first_and_the_last_boundary_are_known_without_the_lake(shards: Shards) -> None:
    stream = shards.stream("b/json")
    assert reading.judge(stream, 0, shards.source_of) is None
    shards.publish("b/json", 5)
    assert (reading.record_at(stream, 5, shards.source_of), reading.record_at(stream, 13, shards.source_of)) == (2, 5)
    assert reading.offset_of(stream, 5, shards.source_of) == 13


def test_the_boundary_at_a_fork_point_is_known_without_the_lake(shards: Shards) -> None:
    shards.finish(shards.fork("b/fork", "b/json", 2, sub_offset=1, body=b"[7, 8]"))
    shards.flush("b/fork")
    assert reading.record_at(shards.stream("b/fork"), 5, shards.source_of) == 2


def test_messages_of_any_size_have_their_boundaries(shards: Shards) -> None:
    shards.ask(Create("b/large", JSON, payload=b"1" * 1500, ends=pack((500, 1000, 1500))))
    for _ in range(2):
        stream = shards.stream("b/large")
        assert [shards.record_at(stream, offset) for offset in (0, 499, 500, 1000, 1500)] == [0, None, 1, 2, 3]
        assert [shards.offset_of(stream, record) for record in range(4)] == [0, 500, 1000, 1500]
        shards.flush()


@pytest.mark.parametrize("record", [0, 1, 3])
def test_where_a_record_begins_needs_the_run_that_holds_it(record: int, shards: Shards) -> None:
    stream = shards.stream("b/json")
    with pytest.raises(NotFetched) as error:
        reading.offset_of(stream, record, shards.source_of)
    assert need_of(error) == (stream, 0, 0, record)


def test_a_fork_point_needs_the_byte_after_it(shards: Shards) -> None:
    with pytest.raises(NotFetched) as error:
        reading.anchor(shards.stream("b/text"), Anchor("b/text", 4, 1), shards.source_of)
    assert need_of(error) == (shards.stream("b/text"), 4, 5, None)


def test_a_fork_point_in_a_run_of_several_appends_stays_within_its_own(shards: Shards) -> None:
    assert shards.all[0].lake.appends_per_run == 2
    stream = shards.stream("b/text")
    assert shards.anchor(stream, Anchor("b/text", 3, 1)) == Anchored(stream.incarnation, 4, 1)
    assert not isinstance(shards.anchor(stream, Anchor("b/text", 3, 2)), Anchored)
    assert shards.anchor(stream, Anchor("b/text", 4, 3)) == Anchored(stream.incarnation, 7, 2)
    assert not isinstance(shards.anchor(stream, Anchor("b/text", 4, 4)), Anchored)
    stream = shards.stream("b/json")
    assert shards.anchor(stream, Anchor("b/json", 5, 1)) == Anchored(stream.incarnation, 8, 3)
    assert not isinstance(shards.anchor(stream, Anchor("b/json", 5, 2)), Anchored)


def test_a_fork_asks_for_the_bytes_of_its_source_under_the_name_of_that(shards: Shards) -> None:
    shards.finish(shards.fork("b/fork", "b/text", 2, sub_offset=1, body=b"own"))
    shards.flush()
    fork, source = shards.stream("b/fork"), shards.stream("b/text")
    with pytest.raises(NotFetched) as error:
        reading.plan(fork, 1, 100, shards.source_of)
    assert need_of(error) == (source, 1, 3, None)
    with pytest.raises(NotFetched) as error:
        reading.plan(fork, 3, 100, shards.source_of)
    assert need_of(error) == (fork, 3, 6, None)
    assert shards.body("b/fork") == b"abcown"
