"""Swaps: rewritten segments replace others, all or nothing, and no read returns anything different."""

import msgspec
import pytest

from headwater.protocol.limits import CONSUMER_IDLE_US
from headwater.protocol.message_ends import pack
from headwater.streams.cold import ALL, Held, Retired
from headwater.streams.commands.consumers import DropConsumer, RegisterConsumer
from headwater.streams.commands.forks import Pin, Unpin
from headwater.streams.commands.lake import ForgetSegments, Publication, SwapSegments
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.images import image_of
from headwater.streams.replies import Done, Misplaced, Placed, Reply
from headwater.streams.segments import Extent

from .lakes import LATE, rewrite
from .shards import START_US, Shards
from .tombstones import Mark, marks

TEXT = "text/plain"


@pytest.fixture
def shards() -> Shards:
    """Three segments: of b/s abc, def and ghi; of b/t 123 and 45 in the first two; b/u only in the third; xy is hot."""
    shards = Shards()
    shards.ask(Create("b/s", TEXT, payload=b"abc"))
    shards.ask(Create("b/t", TEXT, payload=b"123", ends=pack((1, 3))))
    shards.flush()
    shards.ask(Append("b/s", b"def", content_type=TEXT))
    shards.ask(Append("b/t", b"45", content_type=TEXT))
    shards.flush()
    shards.ask(Append("b/s", b"ghi", content_type=TEXT))
    shards.ask(Create("b/u", TEXT, payload=b"!"))
    shards.flush()
    shards.ask(Append("b/s", b"xy", content_type=TEXT))
    return shards


CONTENTS = {"b/s": b"abcdefghixy", "b/t": b"12345", "b/u": b"!"}


def planned(shards: Shards, *numbers: int, cuts: int = 1) -> SwapSegments:
    return rewrite(shards.all[0].lake, shards.all[0].state, numbers, cuts=cuts)


def submit(shards: Shards, swap: SwapSegments) -> Reply:
    return shards.all[0].submit([swap], shards.now)[0]


def refused(shards: Shards, swap: SwapSegments) -> str:
    """The reason why a swap was refused; checks that nothing changed."""
    state = shards.all[0].state
    before = image_of(state)[1:], state.cold.changed_at, state.cold.dropped, state.cold.next_number
    reply = submit(shards, swap)
    assert before == (image_of(state)[1:], state.cold.changed_at, state.cold.dropped, state.cold.next_number)
    assert not state.cold.retired
    assert isinstance(reply, Misplaced)
    return reply.detail


def bodies(shards: Shards) -> dict[str, bytes]:
    return {stream.name: shards.body(stream.name) for stream in shards.streams}


# -- What a swap does -------------------------------------------------------------------------------------------------


def test_segments_become_one(shards: Shards) -> None:
    cold = shards.all[0].state.cold
    old = [held.segment for held in cold.segments.values()]
    swap = planned(shards, 1, 2, 3)
    shards.wait(5)
    assert submit(shards, swap) == Placed()
    assert cold.segments == {4: Held(swap.publications[0].segment, 7)}
    assert cold.retired == {segment.id: Retired(segment, shards.all[0].state.position) for segment in old}
    assert shards.stream("b/s").extents == (Extent(4, 0, 3, 0, 9, 0),)
    assert shards.stream("b/t").extents == (Extent(4, 3, 3, 0, 5, 0),)
    assert [hot.payload for hot in shards.stream("b/s").hot or ()] == [b"xy"]
    assert (cold.dropped, cold.changed_at) == (0, shards.all[0].state.position)
    assert bodies(shards) == CONTENTS


@pytest.mark.parametrize(
    ("numbers", "extents"),
    [((1, 2), [(4, 0, 6), (3, 6, 9)]), ((2, 3), [(1, 0, 3), (4, 3, 9)]), ((2,), [(1, 0, 3), (4, 3, 6), (3, 6, 9)])],
)
def test_extents_beside_those_that_are_replaced_stay(
    numbers: tuple[int, ...], extents: list[tuple[int, int, int]], shards: Shards
) -> None:
    shards.compact(*numbers)
    assert [(one.segment, one.start, one.end) for one in shards.stream("b/s").extents] == extents
    assert bodies(shards) == CONTENTS


def test_a_swap_may_make_several_segments(shards: Shards) -> None:
    shards.compact(1, 2, 3, cuts=2)
    cold = shards.all[0].state.cold
    assert {number: held.live_rows for number, held in cold.segments.items()} == {4: 4, 5: 3}
    assert bodies(shards) == CONTENTS


def test_an_image_sees_a_stream_as_it_was_before_a_swap(shards: Shards) -> None:
    seen: list[tuple[Extent, ...]] = []

    class Witness:
        def before_change(self, stream: object) -> None:
            seen.extend(each.extents for each in shards.streams if each is stream)

    before = shards.stream("b/s").extents
    shards.all[0].state.observers.append(Witness())
    shards.compact(1, 2, 3)
    assert seen[0] == before


def test_a_segment_without_a_live_row_goes_without_another_in_its_place(shards: Shards) -> None:
    shards.ask(Delete("b/s"))
    shards.ask(Delete("b/u"))
    assert submit(shards, SwapSegments((3,), (), LATE, 6)) == Placed()
    cold = shards.all[0].state.cold
    assert list(cold.segments) == [1, 2]
    assert list(cold.retired) == ["segment-3"]
    assert marks(cold) == {1: Mark("b/s", ALL, (1, 2))}
    assert cold.dropped == 6


def test_the_highest_position_that_was_dropped_never_goes_back(shards: Shards) -> None:
    for name in CONTENTS:
        shards.ask(Delete(name))
    assert [submit(shards, SwapSegments((n,), (), LATE, dropped)) for n, dropped in ((1, 5), (2, 4))] == [Placed()] * 2
    assert shards.all[0].state.cold.dropped == 5


# -- Lives that changed since the rewrite was planned -----------------------------------------------------------------


def test_changes_of_a_stream_in_the_meantime_are_not_a_reason_to_refuse(shards: Shards) -> None:
    swap = planned(shards, 1, 2, 3)
    shards.flush()
    shards.publish("b/s", 3)
    shards.ask(Delete("b/t"))
    shards.ask(Delete("b/u"))
    shards.ask(Create("b/u", TEXT, payload=b"another"))
    assert submit(shards, swap) == Placed()
    cold = shards.all[0].state.cold
    assert {number: held.live_rows for number, held in cold.segments.items()} == {4: 1, 5: 2}
    assert marks(cold) == {
        1: Mark("b/s", 3, (5,)),
        2: Mark("b/t", ALL, (5,)),
        8: Mark("b/u", ALL, (5,)),
    }
    assert cold.dead_in == {5: {1, 2, 8}}
    assert shards.stream("b/s").extents == (Extent(5, 1, 2, 3, 9, 1), Extent(4, 0, 1, 9, 11, 3))
    assert shards.body("b/u") == b"another"


def test_rows_before_the_start_of_a_stream_are_left_out_if_no_fork_needs_them(shards: Shards) -> None:
    shards.publish("b/s", 3)
    assert marks(shards.all[0].state.cold) == {1: Mark("b/s", 3, (1,))}
    shards.compact(1, 2)
    cold = shards.all[0].state.cold
    assert shards.stream("b/s").extents[0] == Extent(4, 0, 1, 3, 6, 1)
    assert not cold.tombstones
    assert not cold.dead_in
    assert cold.dropped == 1


def test_dead_rows_that_are_kept_keep_their_tombstone(shards: Shards) -> None:
    shards.all[0].submit([RegisterConsumer("r", 0)], shards.now)
    shards.publish("b/s", 6)
    shards.ask(Delete("b/t"))
    shards.compact(1, 2)
    cold = shards.all[0].state.cold
    assert cold.segments[4].live_rows == 0
    assert marks(cold) == {1: Mark("b/s", 6, (4,)), 2: Mark("b/t", ALL, (4,))}
    assert [one.segment for one in shards.stream("b/s").extents] == [3]


def test_a_life_with_a_gap_goes_into_two_segments_of_which_one_has_its_dead_rows(shards: Shards) -> None:
    """What was trimmed while it was hot never reached the lake; a consumer still needs the rows before it."""
    shards.all[0].submit([RegisterConsumer("r", 0)], shards.now)
    shards.publish("b/s", 11)
    shards.ask(Append("b/s", b"z", content_type=TEXT))
    shards.flush()
    swap = planned(shards, 1, 2, 3, 4)
    assert [[rows.start for rows in each.rows if rows.name == "b/s"] for each in swap.publications] == [[0], [11]]
    assert submit(shards, swap) == Placed()
    cold = shards.all[0].state.cold
    assert {number: held.live_rows for number, held in cold.segments.items()} == {5: 4, 6: 1}
    assert marks(cold) == {1: Mark("b/s", 11, (5,))}
    assert shards.stream("b/s").extents == (Extent(6, 0, 1, 11, 12, 4),)


def test_a_ghost_is_rewritten_for_its_forks_and_is_dead_to_all_others(shards: Shards) -> None:
    shards.finish(shards.fork("b/f", "b/s", 9))
    shards.ask(Delete("b/s"))
    shards.compact(1, 2, 3)
    cold = shards.all[0].state.cold
    assert cold.segments[4].live_rows == 7
    assert marks(cold) == {1: Mark("b/s", ALL, (4,))}
    assert shards.body("b/f") == b"abcdefghi"


def test_a_trimmed_ghost_releases_extents_and_its_segments_are_listed_again(shards: Shards) -> None:
    """Two forks pin it from different offsets; when the one with the lower offset ends, less of it is needed."""
    shards.all[0].submit([Pin("b/s", "low", "b/f", START_US)], shards.now)
    shards.publish("b/s", 6)
    shards.all[0].submit([Pin("b/s", "high", "b/g", START_US)], shards.now)
    shards.ask(Delete("b/s"))
    shards.all[0].submit([Unpin("b/s", 1, "low")], shards.now)
    state = shards.all[0].state
    assert [one.segment for one in shards.stream("b/s").extents] == [3]
    assert [held.live_rows for held in state.cold.segments.values()] == [2, 1, 2]
    assert state.cold.changed_at == state.position


# -- Refusals ---------------------------------------------------------------------------------------------------------


def test_a_swap_is_in_time_up_to_its_deadline(shards: Shards) -> None:
    swap = planned(shards, 1, 2)
    late = msgspec.structs.replace(swap, deadline=START_US - 1)
    assert refused(shards, late) == "The rewrite was submitted after its deadline."
    assert submit(shards, msgspec.structs.replace(swap, deadline=START_US)) == Placed()


@pytest.mark.parametrize(
    ("replaced", "which"), [((1, 9), "[9]"), ((9, 1, 8), "[9, 8]"), ((1, 1), "(1, 1)"), ((1, 1, 9), "[9]")]
)
def test_only_segments_that_are_there_can_be_replaced_and_only_once(
    replaced: tuple[int, ...], which: str, shards: Shards
) -> None:
    swap = msgspec.structs.replace(planned(shards, 1), replaced=replaced)
    assert refused(shards, swap) == f"Segments {which} cannot be replaced: each must be live and be named once."


def test_a_swap_cannot_be_made_twice(shards: Shards) -> None:
    swap = planned(shards, 1, 2)
    assert submit(shards, swap) == Placed()
    assert isinstance(submit(shards, swap), Misplaced)
    assert bodies(shards) == CONTENTS


def test_no_row_may_be_left_out_that_is_still_needed(shards: Shards) -> None:
    swap = planned(shards, 1, 2)
    segment, rows = swap.publications[0].segment, swap.publications[0].rows
    fewer = msgspec.structs.replace(swap, publications=(Publication(segment, rows[:1]),))
    assert refused(shards, fewer) == "The rewrite omits rows that are still needed."
    nothing = msgspec.structs.replace(swap, publications=())
    assert refused(shards, nothing) == "The rewrite omits rows that are still needed."


@pytest.mark.parametrize("change", [{"end": 3}, {"end": 9}, {"start": 3}, {"start": 1}])
def test_rewritten_rows_must_take_over_the_same_bytes(change: dict[str, int], shards: Shards) -> None:
    swap = planned(shards, 1, 2)
    segment, rows = swap.publications[0].segment, swap.publications[0].rows
    wrong = Publication(segment, (msgspec.structs.replace(rows[0], **change), *rows[1:]))
    assert refused(shards, msgspec.structs.replace(swap, publications=(wrong,))) == (
        "The rewritten rows of 'b/s' differ from those in the lake."
    )


def test_rewritten_rows_may_not_take_bytes_from_a_segment_that_stays(shards: Shards) -> None:
    swap = planned(shards, 2, 3)
    segment, rows = swap.publications[0].segment, swap.publications[0].rows
    wrong = Publication(segment, (msgspec.structs.replace(rows[0], start=0), *rows[1:]))
    assert "differ from those" in refused(shards, msgspec.structs.replace(swap, publications=(wrong,)))


def test_rewritten_rows_may_not_reach_over_a_segment_that_stays_to_what_was_trimmed(shards: Shards) -> None:
    shards.publish("b/s", 3)
    swap = planned(shards, 3)
    segment, rows = swap.publications[0].segment, swap.publications[0].rows
    wrong = Publication(segment, (msgspec.structs.replace(rows[0], start=0), *rows[1:]))
    assert "differ from those" in refused(shards, msgspec.structs.replace(swap, publications=(wrong,)))


def test_rewritten_rows_must_be_one_stretch(shards: Shards) -> None:
    """Between the first and the third segment lies a second one that stays."""
    swap = planned(shards, 1, 2, 3)
    assert "differ from those" in refused(shards, msgspec.structs.replace(swap, replaced=(1, 3)))


def test_rows_of_a_life_with_nothing_in_the_old_segments_have_no_place(shards: Shards) -> None:
    swap = planned(shards, 1, 2, 3)
    assert refused(shards, msgspec.structs.replace(swap, replaced=(1, 2))).startswith("The rewritten rows of 'b/s'")
    alone = msgspec.structs.replace(planned(shards, 3), replaced=())
    assert "differ from those" in refused(shards, alone)


def test_a_life_may_be_moved_once_only(shards: Shards) -> None:
    """Its rows twice would balance those of another life that are left out."""
    shards.ask(Create("b/v", TEXT, payload=b"v"))
    shards.ask(Create("b/w", TEXT, payload=b"w"))
    shards.flush("b/v", "b/w")
    swap = planned(shards, 4)
    publication = swap.publications[0]
    one = Publication(publication.segment, publication.rows[:1])
    assert "differ from those" in refused(shards, msgspec.structs.replace(swap, publications=(one, one)))
    twice = Publication(publication.segment, publication.rows[:1] * 2)
    assert refused(shards, msgspec.structs.replace(swap, publications=(twice,))) == (
        "A segment of the rewrite names an incarnation twice."
    )


# -- Consumers --------------------------------------------------------------------------------------------------------


def test_no_row_is_dropped_that_a_registered_reader_has_not_read(shards: Shards) -> None:
    shards.ask(Delete("b/s"))
    dropped = planned(shards, 1, 2)
    assert dropped.dropped == 4
    shards.all[0].submit([RegisterConsumer("r", 3)], shards.now)
    assert refused(shards, dropped) == "The rewrite drops rows that a consumer has not read yet."
    shards.all[0].submit([RegisterConsumer("r", 4)], shards.now)
    assert submit(shards, dropped) == Placed()
    assert shards.all[0].state.cold.dropped == 4


def test_a_consumer_that_left_or_was_silent_for_long_keeps_nothing(shards: Shards) -> None:
    shards.ask(Delete("b/s"))
    first, second = planned(shards, 1), planned(shards, 2)
    shards.all[0].submit([RegisterConsumer("r", 0)], shards.now)
    assert "a consumer" in refused(shards, first)
    shards.all[0].submit([DropConsumer("r")], shards.now)
    assert submit(shards, first) == Placed()
    shards.all[0].submit([RegisterConsumer("r", 0)], shards.now)
    shards.now += CONSUMER_IDLE_US - 1
    assert isinstance(submit(shards, second), Misplaced)
    shards.now += 1
    assert submit(shards, second) == Placed()


# -- Objects that no longer exist -------------------------------------------------------------------------------------


def test_objects_that_were_deleted_are_forgotten(shards: Shards) -> None:
    shards.compact(1, 2)
    cold = shards.all[0].state.cold
    assert list(cold.retired) == ["segment-1", "segment-2"]
    forget = ForgetSegments(("segment-2", "never there", "segment-3"))
    assert shards.all[0].submit([forget, forget], shards.now) == [Done(), Done()]
    assert list(cold.retired) == ["segment-1"]
    assert list(cold.segments) == [3, 4]
