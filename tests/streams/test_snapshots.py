"""Snapshots, retention and attributes: the commands one by one."""

import pytest

from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.message_ends import pack
from headwater.protocol.refusals import Code, Refusal
from headwater.streams import reading
from headwater.streams.commands.forks import Pin, Unpin
from headwater.streams.commands.snapshots import Discarded, PublishSnapshot, Retain, Snapshot
from headwater.streams.commands.streams import Append, Create, Delete, SetAttrs
from headwater.streams.hot import hot_cost
from headwater.streams.queries import Read
from headwater.streams.replies import Acknowledged, Created, Done, Page, Pinned, Published, Reply

from .shards import START_US, Shards

NAME, FORK = "b/s", "b/fork"
JSON = "application/json"


@pytest.fixture
def shards() -> Shards:
    """A stream of JSON with six messages of a byte each, in three appends; its life is 1."""
    shards = Shards()
    shards.ask(Create(NAME, JSON, payload=b"123", ends=pack((1, 2, 3))))
    shards.ask(Append(NAME, b"4", content_type=JSON))
    shards.ask(Append(NAME, b"56", pack((1, 2)), content_type=JSON))
    return shards


def code_of(reply: Reply) -> Code | None:
    return reply.code if isinstance(reply, Refusal) else None


def kept(shards: Shards, name: str = NAME) -> bytes:
    """Every byte that is in memory."""
    return b"".join(hot.payload for hot in shards.stream(name).hot or ())


def body(shards: Shards, offset: int, name: str = NAME) -> bytes:
    page = shards.query(Read(name, offset))
    assert isinstance(page, Page), page
    return page.body


def discarded(shards: Shards) -> list[str]:
    return list(shards.all[0].state.discarded)


# -- Publishing --------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_visible_and_trims_what_is_before_it(shards: Shards) -> None:
    assert shards.publish(NAME, 4) == Published(1, 4, 6, False, "folded")
    stream = shards.stream(NAME)
    assert stream.snapshot == Snapshot(4, 4, "blob-1", "text/plain", 6, "folded")
    assert (stream.start, stream.record_start, stream.tail, stream.record_next) == (4, 4, 6, 6)
    assert (kept(shards), body(shards, 4)) == (b"56", b"56")
    assert shards.all[0].state.hot_bytes == hot_cost(2, 1, 2)


def test_where_history_is_kept_a_snapshot_trims_nothing(shards: Shards) -> None:
    assert shards.publish(NAME, 4, trims=False) == Published(1, 4, 6, False, "folded")
    stream = shards.stream(NAME)
    assert (stream.start, stream.record_start, kept(shards)) == (0, 0, b"123456")


def test_a_snapshot_that_is_published_again_trims_if_that_is_the_rule_by_then(shards: Shards) -> None:
    shards.publish(NAME, 4, trims=False)
    assert shards.publish(NAME, 4) == Published(1, 4, 6, False, "folded")
    stream = shards.stream(NAME)
    assert (stream.start, stream.record_start, kept(shards)) == (4, 4, b"56")


def test_a_snapshot_that_is_published_again_trims_nothing_where_history_is_kept(shards: Shards) -> None:
    for _ in range(2):
        assert shards.publish(NAME, 4, trims=False) == Published(1, 4, 6, False, "folded")
        assert (shards.stream(NAME).start, kept(shards)) == (0, b"123456")


def test_an_append_that_a_snapshot_cuts_stays_whole_in_memory_and_is_read_from_the_cut(shards: Shards) -> None:
    shards.publish(NAME, 2)
    assert (kept(shards), body(shards, 2)) == (b"123456", b"3456")
    assert code_of(shards.query(Read(NAME, 1))) is Code.OFFSET_TRIMMED


def test_a_snapshot_at_the_tail_leaves_nothing_and_the_stream_continues(shards: Shards) -> None:
    assert shards.publish(NAME, 6) == Published(1, 6, 6, False, "folded")
    assert (shards.stream(NAME).hot, shards.all[0].state.hot_bytes) == (None, 0)
    shards.ask(Append(NAME, b"7", content_type=JSON, close=True))
    assert (body(shards, 6), shards.stream(NAME).hot_bytes) == (b"7", hot_cost(1, 1, 1))
    assert shards.publish(NAME, 7) == Published(1, 7, 7, True, "folded")


@pytest.mark.parametrize("offset", [0, 3])
def test_the_refusal_of_a_read_before_a_trimmed_start_names_the_earliest_offset(offset: int, shards: Shards) -> None:
    shards.publish(NAME, 4)
    refusal = shards.query(Read(NAME, offset))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.incarnation, refusal.earliest_offset) == (Code.OFFSET_TRIMMED, 1, 4)


def test_a_newer_snapshot_replaces_the_older_one_whose_blob_is_released(shards: Shards) -> None:
    shards.publish(NAME, 1)
    shards.publish(NAME, 4)
    stream = shards.stream(NAME)
    assert stream.snapshot is not None
    assert (stream.snapshot.blob, discarded(shards)) == ("blob-2", ["blob-1"])
    for _ in range(2):
        assert shards.all[0].submit([Discarded("blob-1")], shards.now) == [Done()]
        assert discarded(shards) == []


def test_the_same_snapshot_again_is_acknowledged_and_the_second_blob_is_released(shards: Shards) -> None:
    shards.publish(NAME, 4)
    shards.ask(Append(NAME, b"7", content_type=JSON))
    assert shards.publish(NAME, 4) == Published(1, 4, 7, False, "folded")
    stream = shards.stream(NAME)
    assert stream.snapshot is not None
    assert (stream.snapshot.blob, discarded(shards)) == ("blob-1", ["blob-2"])


def test_other_bytes_or_another_type_at_the_same_offset_are_a_conflict(shards: Shards) -> None:
    shards.publish(NAME, 4)
    others = [
        Snapshot(4, 4, "lesser bytes", "text/plain", 6, "a"),
        Snapshot(4, 4, "greater bytes", "text/plain", 6, "z"),
        Snapshot(4, 4, "lesser type", "text/html", 6, "folded"),
        Snapshot(4, 4, "greater type", "text/xml", 6, "folded"),
    ]
    for snapshot in others:
        reply = shards.ask(PublishSnapshot(NAME, 1, snapshot, trims=True))
        assert code_of(reply) is Code.SNAPSHOT_CONFLICT
        assert isinstance(reply, Refusal)
        assert (reply.incarnation, reply.next_offset) == (1, 6)
    assert shards.stream(NAME).snapshot == Snapshot(4, 4, "blob-1", "text/plain", 6, "folded")
    assert discarded(shards) == [snapshot.blob for snapshot in others]


@pytest.mark.parametrize(
    ("first", "trims_first", "second", "trims", "code", "earliest"),
    [
        (None, True, 7, True, Code.SNAPSHOT_CONFLICT, None),
        (None, True, 7, False, Code.SNAPSHOT_CONFLICT, None),
        (4, True, 3, True, Code.OFFSET_TRIMMED, 4),
        (4, True, 3, False, Code.OFFSET_TRIMMED, 4),
        (4, False, 3, False, Code.SNAPSHOT_CONFLICT, None),
        (4, False, 3, True, Code.OFFSET_TRIMMED, 0),
    ],
)
def test_a_snapshot_beyond_the_tail_or_before_the_visible_one_is_refused_and_changes_nothing(
    *,
    first: int | None,
    trims_first: bool,
    second: int,
    trims: bool,
    code: Code,
    earliest: int | None,
    shards: Shards,
) -> None:
    if first is not None:
        shards.publish(NAME, first, trims=trims_first)
    stream = shards.stream(NAME)
    before = (stream.snapshot, stream.start, kept(shards))
    reply = shards.publish(NAME, second, trims=trims)
    assert isinstance(reply, Refusal)
    assert (reply.code, reply.earliest_offset, reply.incarnation) == (code, earliest, 1)
    assert (stream.snapshot, stream.start, kept(shards)) == before
    assert len(discarded(shards)) == 1


def test_a_snapshot_of_trimmed_history_or_of_another_life_is_refused_and_its_blob_released(shards: Shards) -> None:
    other_life = PublishSnapshot(NAME, 9, shards.snapshot(NAME, 4), trims=True)
    assert code_of(shards.ask(other_life)) is Code.INCARNATION_CHANGED
    gone = PublishSnapshot(NAME, 1, shards.snapshot(NAME, 4), trims=True)
    shards.ask(Delete(NAME))
    assert code_of(shards.ask(gone)) is Code.STREAM_NOT_FOUND
    assert discarded(shards) == ["blob-1", "blob-2"]


def test_the_end_of_a_stream_releases_its_snapshot(shards: Shards) -> None:
    shards.publish(NAME, 4)
    shards.ask(Delete(NAME))
    assert discarded(shards) == ["blob-1"]


# -- Retention ---------------------------------------------------------------------------------------------------------


def test_history_goes_up_to_the_snapshot_and_no_further(shards: Shards) -> None:
    shards.publish(NAME, 4, trims=False)
    assert shards.ask(Retain(NAME, 1, 3, 3)) == Acknowledged(1)
    assert (shards.stream(NAME).start, shards.stream(NAME).record_start, kept(shards)) == (3, 3, b"456")
    assert shards.ask(Retain(NAME, 1, 3, 3)) == Acknowledged(1)
    assert code_of(shards.ask(Retain(NAME, 1, 6, 6))) is Code.SNAPSHOT_CONFLICT
    refusal = shards.ask(Retain(NAME, 1, 1, 1))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.earliest_offset) == (Code.OFFSET_TRIMMED, 3)
    assert (shards.stream(NAME).start, kept(shards)) == (3, b"456")


def test_history_may_go_right_up_to_the_snapshot(shards: Shards) -> None:
    shards.publish(NAME, 4, trims=False)
    assert shards.ask(Retain(NAME, 1, 4, 4)) == Acknowledged(1)
    assert (shards.stream(NAME).start, kept(shards)) == (4, b"56")


@pytest.mark.parametrize(("held", "visible"), [("a", "z"), ("z", "a")])
def test_a_blob_that_only_a_fork_held_is_released_with_it_whatever_the_visible_one_is_called(
    held: str, visible: str, shards: Shards
) -> None:
    for offset, blob in ((3, held), (4, visible)):
        snapshot = Snapshot(offset, offset, blob, "text/plain", 1, blob)
        assert isinstance(shards.ask(PublishSnapshot(NAME, 1, snapshot, trims=False)), Published)
        if blob == held:
            shards.ask(Pin(NAME, "pin", FORK, START_US * 2))
    assert discarded(shards) == []
    shards.ask(Unpin(NAME, 1, "pin"))
    assert discarded(shards) == [held]


@pytest.mark.parametrize(("held", "superseded"), [("a", "z"), ("z", "a")])
def test_a_superseded_blob_is_released_although_a_fork_holds_another_whatever_that_is_called(
    held: str, superseded: str, shards: Shards
) -> None:
    for offset, blob in ((2, held), (3, superseded), (4, "visible")):
        snapshot = Snapshot(offset, offset, blob, "text/plain", 1, blob)
        assert isinstance(shards.ask(PublishSnapshot(NAME, 1, snapshot, trims=False)), Published)
        if blob == held:
            shards.ask(Pin(NAME, "pin", FORK, START_US * 2))
    assert discarded(shards) == [superseded]


@pytest.mark.parametrize("offset", [0, 3])
def test_without_a_snapshot_no_history_goes(offset: int, shards: Shards) -> None:
    assert code_of(shards.ask(Retain(NAME, 1, offset, offset))) is Code.SNAPSHOT_CONFLICT
    assert kept(shards) == b"123456"


def test_retention_of_what_is_gone_or_of_another_life_is_refused(shards: Shards) -> None:
    shards.publish(NAME, 4, trims=False)
    assert code_of(shards.ask(Retain(NAME, 9, 4, 4))) is Code.INCARNATION_CHANGED
    assert kept(shards) == b"123456"
    shards.ask(Delete(NAME))
    assert code_of(shards.ask(Retain(NAME, 1, 4, 4))) is Code.STREAM_NOT_FOUND


# -- Forks -------------------------------------------------------------------------------------------------------------


def test_a_fork_of_a_trimmed_stream_begins_with_its_snapshot(shards: Shards) -> None:
    shards.publish(NAME, 4)
    assert isinstance(shards.finish(shards.fork(FORK, NAME, 5)), Created)
    fork, source = shards.stream(FORK), shards.stream(NAME)
    assert (fork.start, fork.record_start, fork.tail) == (4, 4, 5)
    assert fork.snapshot == source.snapshot
    assert body(shards, 4, FORK) == b"5"
    assert code_of(shards.query(Read(FORK, 3))) is Code.OFFSET_TRIMMED


def test_what_a_fork_needs_stays_when_its_source_publishes_again(shards: Shards) -> None:
    shards.publish(NAME, 1)
    shards.finish(shards.fork(FORK, NAME))
    shards.publish(NAME, 6)
    assert (kept(shards), discarded(shards)) == (b"123456", [])
    assert body(shards, 1, FORK) == b"23456"
    assert shards.stream(FORK).snapshot == Snapshot(1, 1, "blob-1", "text/plain", 6, "folded")
    shards.ask(Delete(FORK))
    shards.tidy()
    assert (kept(shards), shards.blobs) == (b"", {"blob-2"})


def test_what_a_fork_needs_stays_when_its_source_is_deleted(shards: Shards) -> None:
    shards.publish(NAME, 1)
    shards.finish(shards.fork(FORK, NAME))
    shards.publish(NAME, 4)
    shards.ask(Delete(NAME))
    shards.tidy()
    assert body(shards, 1, FORK) == b"23456"
    assert shards.blobs == {"blob-1", "blob-2"}
    shards.ask(Delete(FORK))
    shards.tidy()
    assert (shards.streams, shards.blobs) == ([], set())


def test_a_fork_that_publishes_leaves_the_snapshot_of_its_source_alone(shards: Shards) -> None:
    shards.publish(NAME, 1)
    shards.finish(shards.fork(FORK, NAME))
    assert shards.publish(FORK, 4) == Published(shards.stream(FORK).incarnation, 4, 6, False, "folded")
    shards.tidy()
    assert shards.blobs == {"blob-1", "blob-2"}
    assert (body(shards, 1), body(shards, 4, FORK)) == (b"23456", b"56")
    shards.ask(Delete(FORK))
    shards.tidy()
    assert shards.blobs == {"blob-1"}


@pytest.mark.parametrize(("inherited", "own"), [("a", "z"), ("z", "a")])
def test_a_fork_releases_its_own_blob_and_not_an_inherited_one_whatever_they_are_called(
    inherited: str, own: str, shards: Shards
) -> None:
    shards.ask(PublishSnapshot(NAME, 1, Snapshot(1, 1, inherited, "text/plain", 1, "1"), trims=True))
    shards.finish(shards.fork(FORK, NAME))
    life = shards.stream(FORK).incarnation
    for offset, blob, gone in ((2, own, []), (3, "visible", [own])):
        shards.ask(PublishSnapshot(FORK, life, Snapshot(offset, offset, blob, "text/plain", 1, blob), trims=True))
        assert discarded(shards) == gone


def test_a_fork_before_the_snapshot_of_a_stream_with_all_its_history_has_no_snapshot(shards: Shards) -> None:
    shards.publish(NAME, 4, trims=False)
    shards.finish(shards.fork(FORK, NAME, 3))
    assert (shards.stream(FORK).snapshot, shards.stream(FORK).start) == (None, 0)
    assert body(shards, 0, FORK) == b"123"


@pytest.mark.parametrize("to", [1, 3])
def test_a_pin_whose_point_was_trimmed_since_it_was_resolved_holds_nothing(to: int, shards: Shards) -> None:
    """Below the start there is nothing to read; between start and snapshot nothing replaces what is lost."""
    shards.publish(NAME, 4, trims=False)
    shards.ask(Retain(NAME, 1, 2, 2))
    refusal = shards.ask(Pin(NAME, "pin", FORK, START_US, 1, to, to))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.incarnation, refusal.earliest_offset) == (Code.OFFSET_TRIMMED, 1, 4)
    assert (shards.stream(NAME).pins, shards.all[0].state.unconfirmed) == (None, {})
    assert isinstance(shards.ask(Pin(NAME, "pin", FORK, START_US, 1, 4, 4)), Pinned)


def test_a_released_pin_releases_its_superseded_snapshot_unless_another_needs_it(shards: Shards) -> None:
    shards.publish(NAME, 1)
    for pin in ("one", "two"):
        shards.ask(Pin(NAME, pin, FORK, START_US))
    shards.publish(NAME, 4)
    shards.ask(Unpin(NAME, 1, "one"))
    assert (discarded(shards), kept(shards)) == ([], b"123456")
    shards.ask(Unpin(NAME, 1, "two"))
    assert (discarded(shards), kept(shards)) == (["blob-1"], b"56")


# -- Records -----------------------------------------------------------------------------------------------------------


def test_records_and_offsets_name_the_same_boundaries_also_through_forks(shards: Shards) -> None:
    shards.finish(shards.fork(FORK, NAME, 4))
    shards.ask(Append(FORK, b"78", pack((1, 2)), content_type=JSON))
    for name, last in ((NAME, 6), (FORK, 6)):
        stream = shards.stream(name)
        for number in range(last + 1):
            assert reading.offset_of(stream, number, shards.source_of) == number
            assert reading.record_at(stream, number, shards.source_of) == number


def test_within_a_message_there_is_no_record() -> None:
    shards = Shards()
    shards.ask(Create(NAME, JSON, payload=b"10200", ends=pack((2, 5))))
    stream = shards.stream(NAME)
    found = [reading.record_at(stream, offset, shards.source_of) for offset in range(6)]
    assert found == [0, None, 1, None, None, 2]


# -- Attributes --------------------------------------------------------------------------------------------------------


def test_attributes_are_replaced_also_on_a_closed_stream_and_renew_its_lifetime(shards: Shards) -> None:
    shards.ask(Create("b/t", "text/plain", Lifetime(ttl_seconds=10), closed=True, attrs=b'{"title":"a"}'))
    shards.wait(5)
    assert shards.ask(SetAttrs("b/t", b"{}")) == Acknowledged(shards.stream("b/t").incarnation)
    stream = shards.stream("b/t")
    assert (stream.attrs, stream.touched_at) == (b"{}", shards.now)


def test_attributes_of_what_is_gone_or_of_another_life_are_refused(shards: Shards) -> None:
    assert code_of(shards.ask(SetAttrs(NAME, b"{}", 9))) is Code.INCARNATION_CHANGED
    assert code_of(shards.ask(SetAttrs("b/missing", b"{}"))) is Code.STREAM_NOT_FOUND
    assert shards.stream(NAME).attrs is None
    assert shards.ask(SetAttrs(NAME, b"{}", 1)) == Acknowledged(1)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (None, None, True),
        (None, b"{}", True),
        (None, b'{"title":"a"}', False),
        (b'{"title":"a"}', None, True),
        (b'{"title":"a"}', b'{"title":"a"}', True),
        (b'{"title":"a"}', b'{"title":"b"}', False),
        (b'{"title":"a"}', b"{}", False),
    ],
)
def test_attributes_are_part_of_the_configuration_that_a_second_put_says(
    first: bytes | None, second: bytes | None, same: bool
) -> None:
    shards = Shards()
    shards.ask(Create(NAME, JSON, attrs=first))
    reply = shards.ask(Create(NAME, JSON, attrs=second))
    assert code_of(reply) is (None if same else Code.STREAM_EXISTS)


def test_attributes_are_not_copied_to_forks(shards: Shards) -> None:
    shards.ask(SetAttrs(NAME, b'{"title":"a"}'))
    shards.finish(shards.fork(FORK, NAME))
    shards.finish(shards.fork("b/other", NAME, attrs=b'{"title":"b"}'))
    assert (shards.stream(FORK).attrs, shards.stream("b/other").attrs) == (None, b'{"title":"b"}')


# -- Deadlines ---------------------------------------------------------------------------------------------------------


def publish_by(shards: Shards, deadline: int | None, name: str = NAME) -> Reply:
    snapshot = Snapshot(4, 4, "blob", "text/plain", 6, "folded")
    return shards.ask(PublishSnapshot(name, 1, snapshot, trims=True, deadline=deadline))


@pytest.mark.parametrize("left_us", [0, 1, None])
def test_a_snapshot_is_published_until_its_deadline(shards: Shards, left_us: int | None) -> None:
    deadline = None if left_us is None else shards.now + left_us
    assert publish_by(shards, deadline) == Published(1, 4, 6, False, "folded")


def test_after_its_deadline_a_snapshot_is_refused_and_its_blob_is_released(shards: Shards) -> None:
    refusal = publish_by(shards, shards.now - 1)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.incarnation) == (Code.REQUEST_TIMEOUT, 1)
    assert refusal.detail.endswith("upload it again.")
    assert (shards.stream(NAME).snapshot, discarded(shards)) == (None, ["blob"])


def test_that_the_stream_is_missing_comes_before_a_deadline(shards: Shards) -> None:
    assert code_of(publish_by(shards, 1, "b/missing")) is Code.STREAM_NOT_FOUND
    assert discarded(shards) == ["blob"]
