"""Deletes, creates and publications under a condition, and what is known of an offset when a command is judged."""

import pytest

from headwater.protocol.etags import Version
from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.limits import SECOND_US
from headwater.protocol.refusals import Code, Refusal
from headwater.streams.commands.snapshots import NO_SNAPSHOT, PublishSnapshot, Retain, Snapshot
from headwater.streams.commands.streams import Append, Create, Delete, SetAttrs, Touch
from headwater.streams.replies import Acknowledged, Appended, Created, Deleted, Existed, Published, Reply

from .shards import Shards

NAME = "b/s"
JSON = "application/json"
NOW = (Version(1, 3, False),)
BEFORE = (Version(1, 2, False), Version(9, 3, False), Version(1, 3, True))


@pytest.fixture
def shards() -> Shards:
    """One stream of JSON with two messages, 1 and 23, created at position 1."""
    shards = Shards()
    shards.ask(Create(NAME, JSON, payload=b"1"))
    shards.ask(append(b"23"))
    return shards


def append(payload: bytes, asked_at: int | None = None) -> Append:
    return Append(NAME, payload, None, JSON, asked_at=asked_at)


def code_of(reply: Reply) -> Code | None:
    return reply.code if isinstance(reply, Refusal) else None


def snapshot(offset: int, record: int, digest: str = "d") -> Snapshot:
    return Snapshot(offset, record, f"blob-{offset}-{digest}", JSON, 1, digest)


def test_a_delete_is_for_the_versions_that_it_names(shards: Shards) -> None:
    refusal = shards.ask(Delete(NAME, if_match=BEFORE))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.incarnation, refusal.next_offset) == (Code.PRECONDITION_FAILED, 1, 3)
    assert code_of(shards.ask(Delete("b/none", if_match=NOW))) is Code.STREAM_NOT_FOUND
    assert shards.ask(Delete(NAME, if_match=(*BEFORE, *NOW))) == Deleted(1)


def test_a_publication_is_for_the_versions_that_it_names(shards: Shards) -> None:
    late = PublishSnapshot(NAME, 1, snapshot(1, 1), True, 3, BEFORE)
    assert code_of(shards.ask(late)) is Code.PRECONDITION_FAILED
    assert list(shards.all[0].state.discarded) == ["blob-1-d"]
    assert shards.ask(PublishSnapshot(NAME, 1, snapshot(1, 1, "e"), True, 3, NOW)) == Published(1, 1, 3, False, "e")


def test_a_publication_replaces_the_snapshot_that_it_names(shards: Shards) -> None:
    def publish(offset: int, record: int, digest: str, replaces: str) -> Reply:
        return shards.ask(PublishSnapshot(NAME, 1, snapshot(offset, record, digest), True, 3, None, replaces))

    assert code_of(publish(1, 1, "a", "b")) is Code.SNAPSHOT_CONFLICT
    assert isinstance(publish(1, 1, "a", NO_SNAPSHOT), Published)
    assert code_of(publish(3, 2, "b", NO_SNAPSHOT)) is Code.SNAPSHOT_CONFLICT
    assert code_of(publish(3, 2, "b", "other")) is Code.SNAPSHOT_CONFLICT
    assert publish(3, 2, "b", "a") == Published(1, 3, 3, False, "b")


def test_an_offset_that_was_beyond_the_tail_when_it_was_resolved_is_no_boundary(shards: Shards) -> None:
    """An append that came in between has put it inside a message."""
    assert code_of(shards.ask(PublishSnapshot(NAME, 1, snapshot(2, 2), True, 1))) is Code.SNAPSHOT_CONFLICT
    assert code_of(shards.ask(PublishSnapshot(NAME, 1, snapshot(4, 2), True, 4))) is Code.SNAPSHOT_CONFLICT
    shards.ask(PublishSnapshot(NAME, 1, snapshot(3, 2), False, 3))
    assert code_of(shards.ask(Retain(NAME, 1, 2, 2, 1))) is Code.SNAPSHOT_CONFLICT
    assert shards.ask(Retain(NAME, 1, 1, 1, 1)) == Acknowledged(1)
    assert shards.stream(NAME).start == 1


def test_a_create_may_demand_that_there_is_no_stream(shards: Shards) -> None:
    refusal = shards.ask(Create(NAME, JSON, absent=True))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.incarnation, refusal.next_offset) == (Code.PRECONDITION_FAILED, 1, 3)
    assert isinstance(shards.ask(Create(NAME, JSON)), Existed)
    assert isinstance(shards.ask(Create("b/new", JSON, absent=True)), Created)


def test_a_fork_may_demand_that_there_is_no_stream(shards: Shards) -> None:
    assert isinstance(shards.finish(shards.fork("b/fork", NAME, absent=True)), Created)
    assert isinstance(shards.finish(shards.fork("b/fork", NAME)), Existed)
    assert code_of(shards.finish(shards.fork("b/fork", NAME, absent=True))) is Code.PRECONDITION_FAILED


# -- Renewals that took long -------------------------------------------------------------------------------------------


def brief(shards: Shards) -> int:
    """Make the stream again with a TTL of ten seconds, and return the time."""
    shards.ask(Delete(NAME))
    shards.ask(Create(NAME, JSON, Lifetime(ttl_seconds=10)))
    return shards.now


def test_an_append_that_was_asked_for_in_time_is_accepted_however_long_the_log_took(shards: Shards) -> None:
    made_at = brief(shards)
    shards.now = made_at + 60 * SECOND_US
    assert code_of(shards.ask(append(b"1", shards.now))) is Code.STREAM_NOT_FOUND
    assert isinstance(shards.ask(append(b"1", made_at + 9 * SECOND_US)), Appended)
    assert shards.stream(NAME).touched_at == shards.now


def test_a_read_renews_from_when_it_happened(shards: Shards) -> None:
    made_at = brief(shards)
    life, read_at = shards.stream(NAME).incarnation, made_at + 9 * SECOND_US
    shards.now = made_at + 12 * SECOND_US
    shards.ask(Touch(NAME, life, read_at))
    assert shards.stream(NAME).touched_at == read_at
    shards.ask(Touch(NAME, life, made_at))
    assert shards.stream(NAME).touched_at == read_at
    assert isinstance(shards.ask(append(b"1")), Appended)


def test_new_attributes_renew_a_stream_that_was_alive_when_they_were_asked_for(shards: Shards) -> None:
    made_at = brief(shards)
    shards.now = made_at + 60 * SECOND_US
    late, in_time = made_at + 12 * SECOND_US, made_at + 9 * SECOND_US
    assert code_of(shards.ask(SetAttrs(NAME, b"{}", asked_at=late))) is Code.STREAM_NOT_FOUND
    assert isinstance(shards.ask(SetAttrs(NAME, b"{}", asked_at=in_time)), Acknowledged)
    assert shards.stream(NAME).touched_at == shards.now


def test_an_append_that_changes_nothing_renews_by_the_same_rule(shards: Shards) -> None:
    made_at = brief(shards)
    shards.now = made_at + 60 * SECOND_US
    other = Append(NAME, b"x", None, "text/plain", asked_at=made_at + SECOND_US)
    assert code_of(shards.ask(other)) is Code.CONTENT_TYPE_MISMATCH
    assert shards.stream(NAME).touched_at == shards.now
