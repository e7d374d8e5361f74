"""Publications: what moves to the lake leaves memory, and every read returns the same as before."""

import msgspec
import pytest

from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.message_ends import pack
from headwater.streams.cold import ALL, Held
from headwater.streams.commands import Command
from headwater.streams.commands.lake import Publication, PublishSegment
from headwater.streams.commands.streams import Append, Create, Delete, Expire
from headwater.streams.hot import hot_cost
from headwater.streams.images import image_of
from headwater.streams.replies import Misplaced, Placed, Reply
from headwater.streams.segments import Extent

from .lakes import LATE
from .shards import START_US, Shards
from .tombstones import Mark, marks

TEXT = "text/plain"


@pytest.fixture
def shards() -> Shards:
    """b/s: abc, def, ghi; b/t: one append of the messages 1, 23."""
    shards = Shards()
    shards.ask(Create("b/s", TEXT, payload=b"abc"))
    shards.ask(Append("b/s", b"def", content_type=TEXT))
    shards.ask(Create("b/t", TEXT, payload=b"123", ends=pack((1, 3))))
    shards.ask(Append("b/s", b"ghi", content_type=TEXT))
    return shards


def submit(shards: Shards, *commands: Command) -> list[Reply]:
    return shards.all[0].submit(list(commands), shards.now)


def publish(shards: Shards, publication: Publication, flushed: int = 0, deadline: int = LATE) -> Reply:
    return submit(shards, PublishSegment(publication, deadline, flushed))[0]


def refused(shards: Shards, publication: Publication, deadline: int = LATE) -> str:
    """The reason why a publication was refused; checks that nothing changed."""
    state = shards.all[0].state
    before = image_of(state)[1:], state.cold.flushed, state.cold.changed_at, state.hot_bytes, dict(state.warm)
    reply = publish(shards, publication, ALL, deadline)
    assert before == (image_of(state)[1:], state.cold.flushed, state.cold.changed_at, state.hot_bytes, state.warm)
    assert isinstance(reply, Misplaced)
    return reply.detail


# -- What a publication does ------------------------------------------------------------------------------------------


def test_published_rows_leave_memory_and_are_found_by_their_extents(shards: Shards) -> None:
    state = shards.all[0].state
    publication = shards.all[0].collect()
    assert publish(shards, publication, flushed=4) == Placed()
    assert shards.stream("b/s").hot is None
    assert shards.stream("b/s").extents == (Extent(1, 0, 3, 0, 9, 0),)
    assert shards.stream("b/t").extents == (Extent(1, 3, 2, 0, 3, 0),)
    assert (shards.stream("b/s").hot_start, shards.stream("b/s").hot_bytes) == (9, 0)
    assert (state.hot_bytes, state.warm) == (0, {})
    assert state.cold.segments == {1: Held(publication.segment, 5)}
    assert (state.cold.flushed, state.cold.changed_at, state.cold.dropped) == (4, 5, 0)
    assert not state.cold.tombstones
    assert (shards.body("b/s"), shards.body("b/t")) == (b"abcdefghi", b"123")


def test_what_was_not_collected_stays_hot(shards: Shards) -> None:
    state = shards.all[0].state
    shards.flush("b/s", appends_max=2)
    assert shards.stream("b/s").extents == (Extent(1, 0, 2, 0, 6, 0),)
    assert [hot.payload for hot in shards.stream("b/s").hot or ()] == [b"ghi"]
    assert (shards.stream("b/s").hot_start, shards.stream("b/s").hot_bytes) == (6, hot_cost(3, 1, 1))
    assert (state.hot_bytes, state.warm) == (hot_cost(6, 2, 3), {"b/s": None, "b/t": None})
    assert state.cold.flushed == 0
    assert shards.body("b/s") == b"abcdefghi"


def test_a_stream_goes_to_the_lake_piece_by_piece(shards: Shards) -> None:
    for _ in range(3):
        shards.flush("b/s", appends_max=1)
    assert shards.stream("b/s").extents == (
        Extent(1, 0, 1, 0, 3, 0),
        Extent(2, 0, 1, 3, 6, 1),
        Extent(3, 0, 1, 6, 9, 2),
    )
    assert shards.all[0].state.warm == {"b/t": None}
    shards.ask(Append("b/s", b"jkl", content_type=TEXT))
    assert shards.stream("b/s").hot_start == 9
    assert shards.all[0].state.warm == {"b/t": None, "b/s": None}
    assert shards.body("b/s") == b"abcdefghijkl"


def test_what_was_appended_since_the_collection_stays_hot(shards: Shards) -> None:
    publication = shards.all[0].collect()
    shards.ask(Append("b/s", b"jkl", content_type=TEXT))
    assert publish(shards, publication) == Placed()
    assert [hot.offset for hot in shards.stream("b/s").hot or ()] == [9]
    assert shards.body("b/s") == b"abcdefghijkl"


def test_the_position_up_to_which_everything_is_in_the_lake_never_goes_back(shards: Shards) -> None:
    for flushed, known in ((3, 3), (0, 3), (2, 3), (4, 4)):
        publication = shards.all[0].collect(["b/s"], 1) if shards.stream("b/s").hot else shards.all[0].collect()
        assert publish(shards, publication, flushed) == Placed()
        assert shards.all[0].state.cold.flushed == known


def test_a_fork_has_only_its_own_bytes_in_the_lake(shards: Shards) -> None:
    shards.flush()
    shards.finish(shards.fork("b/f", "b/s", 4, body=b"own"))
    shards.flush()
    assert shards.stream("b/f").extents == (Extent(2, 0, 1, 4, 7, 2),)
    assert shards.body("b/f") == b"abcdown"


def test_an_image_sees_a_stream_as_it_was_before_its_publication(shards: Shards) -> None:
    seen: list[tuple[str, int]] = []

    class Witness:
        def before_change(self, stream: object) -> None:
            assert stream in shards.streams
            seen.extend((each.name, len(each.extents)) for each in shards.streams if each is stream)

    shards.all[0].state.observers.append(Witness())
    shards.flush()
    assert seen == [("b/s", 0), ("b/t", 0)]


# -- Too late, or out of place ----------------------------------------------------------------------------------------


def test_a_publication_is_in_time_up_to_its_deadline(shards: Shards) -> None:
    first, second = shards.all[0].collect(["b/s"]), shards.all[0].collect(["b/t"])
    assert publish(shards, first, deadline=START_US) == Placed()
    assert refused(shards, second, deadline=START_US - 1) == "Segment segment-2 was published after its deadline."


def test_a_publication_cannot_be_made_twice(shards: Shards) -> None:
    publication = shards.all[0].collect()
    assert publish(shards, publication) == Placed()
    assert refused(shards, publication) == "Segment segment-1 does not continue what the lake has of 'b/s'."


@pytest.mark.parametrize("end", [1, 2, 4, 8, 10])
def test_a_publication_must_end_where_an_append_ends(end: int, shards: Shards) -> None:
    publication = shards.all[0].collect()
    rows = publication.rows
    wrong = Publication(publication.segment, (msgspec.structs.replace(rows[0], end=end), *rows[1:]))
    assert "does not continue" in refused(shards, wrong)


def test_one_stream_that_does_not_fit_keeps_the_whole_segment_out(shards: Shards) -> None:
    publication = shards.all[0].collect()
    shards.flush("b/t")
    assert refused(shards, publication).endswith("has of 'b/t'.")


@pytest.mark.parametrize("start", [2, 4])
def test_a_publication_must_begin_where_the_lake_ends(start: int, shards: Shards) -> None:
    shards.flush("b/s", appends_max=1)
    publication = shards.all[0].collect(["b/s"])
    wrong = Publication(publication.segment, (msgspec.structs.replace(publication.rows[0], start=start),))
    assert "does not continue" in refused(shards, wrong)
    assert publish(shards, publication) == Placed()


def test_a_publication_may_not_skip_hot_bytes(shards: Shards) -> None:
    second = Publication(shards.all[0].collect().segment, (shards.all[0].collect(["b/s"]).rows[0],))
    gap = Publication(second.segment, (msgspec.structs.replace(second.rows[0], start=3, row=1, rows=2, record=1),))
    assert "does not continue" in refused(shards, gap)
    assert publish(shards, second) == Placed()


def test_a_life_may_be_named_once_only(shards: Shards) -> None:
    publication = shards.all[0].collect(["b/t"])
    shards.ask(Append("b/t", b"45", content_type=TEXT))
    twice = Publication(publication.segment, publication.rows * 2)
    assert refused(shards, twice) == "Segment segment-1 names an incarnation twice."
    shards.ask(Delete("b/t"))
    assert refused(shards, twice) == "Segment segment-1 names an incarnation twice."


# -- Lives that changed since the collection --------------------------------------------------------------------------


def test_rows_of_a_life_that_is_gone_are_dead(shards: Shards) -> None:
    publication = shards.all[0].collect()
    incarnation = shards.stream("b/s").incarnation
    shards.ask(Delete("b/s"))
    shards.ask(Create("b/s", TEXT, payload=b"new"))
    assert publish(shards, publication) == Placed()
    assert (shards.stream("b/s").extents, shards.body("b/s")) == ((), b"new")
    assert shards.all[0].state.hot_bytes == hot_cost(3, 1, 1)
    assert shards.all[0].state.cold.segments == {1: Held(publication.segment, 2)}
    assert marks(shards.all[0].state.cold) == {incarnation: Mark("b/s", ALL, (1,))}


def test_a_life_is_known_by_its_incarnation_however_high_that_is(shards: Shards) -> None:
    submit(shards, *[Append("b/t", b"", content_type=TEXT)] * 1000)
    shards.ask(Create("b/late", TEXT, payload=b"abc"))
    shards.ask(Append("b/late", b"def", content_type=TEXT))
    shards.flush("b/late", appends_max=1)
    trimmed = shards.all[0].collect(["b/late"])
    shards.publish("b/late", 6)
    assert publish(shards, trimmed) == Placed()
    incarnation = shards.stream("b/late").incarnation
    assert marks(shards.all[0].state.cold) == {incarnation: Mark("b/late", 6, (1, 2))}


def test_a_segment_of_dead_rows_only_is_held_without_a_live_row(shards: Shards) -> None:
    publication = shards.all[0].collect(["b/t"])
    shards.ask(Delete("b/t"))
    assert publish(shards, publication, 4) == Placed()
    assert shards.all[0].state.cold.segments == {1: Held(publication.segment, 0)}
    assert marks(shards.all[0].state.cold) == {3: Mark("b/t", ALL, (1,))}
    assert shards.all[0].state.cold.flushed == 4


@pytest.mark.parametrize(("start", "rows", "below"), [(3, 2, 3), (6, 1, 6)])
def test_rows_before_the_start_of_a_stream_are_dead(start: int, rows: int, below: int, shards: Shards) -> None:
    publication = shards.all[0].collect(["b/s"])
    shards.publish("b/s", start)
    assert publish(shards, publication) == Placed()
    assert shards.stream("b/s").extents == (Extent(1, 3 - rows, rows, start, 9, 3 - rows),)
    assert shards.all[0].state.cold.segments == {1: Held(publication.segment, rows)}
    assert marks(shards.all[0].state.cold) == {1: Mark("b/s", below, (1,))}


def test_rows_that_end_where_a_stream_begins_are_all_dead(shards: Shards) -> None:
    publication = shards.all[0].collect(["b/s"])
    shards.ask(Append("b/s", b"jkl", content_type=TEXT))
    shards.publish("b/s", 9)
    assert publish(shards, publication) == Placed()
    assert shards.stream("b/s").extents == ()
    assert [hot.offset for hot in shards.stream("b/s").hot or ()] == [9]
    assert shards.all[0].state.cold.segments == {1: Held(publication.segment, 0)}
    assert marks(shards.all[0].state.cold) == {1: Mark("b/s", 9, (1,))}


def test_a_segment_that_begins_with_the_stream_has_no_tombstone(shards: Shards) -> None:
    shards.publish("b/s", 3)
    shards.flush()
    assert shards.stream("b/s").extents == (Extent(1, 0, 2, 3, 9, 1),)
    assert not shards.all[0].state.cold.tombstones


def test_a_ghost_moves_to_the_lake_for_its_forks_and_is_dead_to_all_others(shards: Shards) -> None:
    shards.finish(shards.fork("b/f", "b/s"))
    publication = shards.all[0].collect(["b/s"])
    shards.ask(Delete("b/s"))
    assert publish(shards, publication) == Placed()
    assert shards.all[0].state.cold.segments == {1: Held(publication.segment, 3)}
    assert marks(shards.all[0].state.cold) == {1: Mark("b/s", ALL, (1,))}
    assert shards.body("b/f") == b"abcdefghi"
    assert shards.all[0].state.hot_bytes == hot_cost(3, 1, 2)


def test_rows_of_a_ghost_that_no_fork_needs_are_dead(shards: Shards) -> None:
    publication = shards.all[0].collect(["b/s"], 1)
    shards.publish("b/s", 3)
    shards.finish(shards.fork("b/f", "b/s"))
    shards.ask(Delete("b/s"))
    assert publish(shards, publication) == Placed()
    assert shards.all[0].state.cold.segments == {1: Held(publication.segment, 0)}
    assert marks(shards.all[0].state.cold) == {1: Mark("b/s", ALL, (1,))}
    assert shards.stream("b/s").extents == ()


def test_an_expired_stream_that_is_not_reaped_yet_moves_to_the_lake_like_any_other(shards: Shards) -> None:
    shards.ask(Create("b/brief", TEXT, Lifetime(ttl_seconds=1), payload=b"x"))
    shards.wait(10)
    shards.flush("b/brief")
    assert shards.stream("b/brief").extents == (Extent(1, 0, 1, 0, 1, 0),)
    shards.ask(Expire("b/brief", 5))
    assert marks(shards.all[0].state.cold) == {5: Mark("b/brief", ALL, (1,))}
    assert shards.all[0].state.cold.segments[1].live_rows == 0
