from typing import Any

import msgspec
import pytest

from headwater.protocol.etags import Version
from headwater.protocol.lifetimes import Lifetime
from headwater.protocol.limits import PRODUCER_IDLE_US, SECOND_US
from headwater.protocol.message_ends import pack
from headwater.protocol.producers import Producer
from headwater.protocol.refusals import Code, Refusal
from headwater.streams import appending
from headwater.streams.commands.forks import Pin
from headwater.streams.commands.streams import Append, Create, Delete
from headwater.streams.replies import Appended, ClosedOnly, Duplicate, Reply
from headwater.streams.state import Stream

from .shards import START_US, Shards

NAME = "b/s"


@pytest.fixture
def shards() -> Shards:
    """One shard with one empty stream of text, created at position 1."""
    shards = Shards()
    shards.ask(Create(NAME, "text/plain"))
    return shards


def append(
    payload: bytes = b"x",
    *,
    close: bool = False,
    seq: str | None = None,
    producer: Producer | None = None,
    content_type: str = "text/plain",
    incarnation: int | None = None,
) -> Append:
    return Append(NAME, payload, None, content_type, close, seq, producer, incarnation)


def code_of(reply: Reply) -> Code | None:
    return reply.code if isinstance(reply, Refusal) else None


# -- What is accepted -------------------------------------------------------------------------------------------------


def test_an_append_goes_to_the_end(shards: Shards) -> None:
    assert shards.ask(append(b"abc")) == Appended(1, 3, False)
    assert shards.ask(append(b"de")) == Appended(1, 5, False)
    assert shards.body(NAME) == b"abcde"


def test_an_append_of_several_messages_counts_each(shards: Shards) -> None:
    shards.ask(Create("b/json", "application/json"))
    several = Append("b/json", b"123", pack((1, 2, 3)), "application/json")
    assert shards.ask(several) == Appended(2, 3, False, record=0, record_next=3)
    assert shards.ask(several) == Appended(2, 6, False, record=3, record_next=6)


def test_what_an_append_brought_is_kept_with_its_bytes(shards: Shards) -> None:
    shards.wait(5)
    shards.ask(append(b"abc", producer=Producer("p", 0, 0)))
    [hot] = shards.stream(NAME).hot or []
    assert (hot.offset, hot.payload, hot.ends, hot.record) == (0, b"abc", None, 0)
    assert (hot.position, hot.at, hot.producer) == (2, START_US + 5 * SECOND_US, Producer("p", 0, 0))


def test_an_append_may_close_the_stream(shards: Shards) -> None:
    assert shards.ask(append(b"abc", close=True)) == Appended(1, 3, True)
    assert shards.stream(NAME).closed


def test_a_close_adds_nothing_and_ignores_the_content_type(shards: Shards) -> None:
    shards.ask(append(b"abc"))
    assert shards.ask(append(b"", close=True, content_type="image/png")) == ClosedOnly(1, 3)
    assert (shards.body(NAME), shards.stream(NAME).closed) == (b"abc", True)


def test_a_producer_may_close_and_that_counts_as_a_request_of_its(shards: Shards) -> None:
    shards.ask(append(b"abc", producer=Producer("p", 0, 0)))
    assert shards.ask(append(b"", close=True, producer=Producer("p", 0, 1))) == ClosedOnly(1, 3, 0, 1)
    assert shards.ask(append(b"", close=True, producer=Producer("p", 0, 1))) == Duplicate(1, 3, True, 0, 1, size=0)


@pytest.mark.parametrize("content_type", ["TEXT/plain", "text/plain; charset=utf-8"])
def test_content_types_are_compared_by_media_type(content_type: str, shards: Shards) -> None:
    assert isinstance(shards.ask(append(content_type=content_type)), Appended)


@pytest.mark.parametrize("command", [append(), append(b"", close=True)], ids=["append", "close"])
def test_a_write_renews_a_sliding_lifetime(command: Append, shards: Shards) -> None:
    shards.ask(Delete(NAME))
    shards.ask(Create(NAME, "text/plain", Lifetime(ttl_seconds=10)))
    shards.wait(10)
    shards.ask(command)
    shards.wait(10)
    stream = shards.all[0].state.present(NAME, shards.now)
    assert isinstance(stream, Stream)
    assert stream.written_at == START_US + 10 * SECOND_US


# -- The refusals, and which one wins ---------------------------------------------------------------------------------


def test_an_append_to_nothing_is_not_found(shards: Shards) -> None:
    shards.ask(Delete(NAME))
    assert code_of(shards.ask(append())) is Code.STREAM_NOT_FOUND
    assert code_of(shards.ask(append(incarnation=1))) is Code.STREAM_NOT_FOUND


def test_an_append_to_an_expired_stream_is_not_found(shards: Shards) -> None:
    shards.ask(Create("b/ttl", "text/plain", Lifetime(ttl_seconds=0)))
    assert code_of(shards.ask(Append("b/ttl", b"x", content_type="text/plain"))) is Code.STREAM_NOT_FOUND


@pytest.mark.parametrize("command", [append(), append(b"", close=True)], ids=["append", "close"])
def test_a_stream_that_lives_only_in_its_forks_takes_nothing(command: Append, shards: Shards) -> None:
    shards.ask(Pin(NAME, "pin", "b/f", START_US))
    shards.ask(Delete(NAME))
    assert code_of(shards.ask(command)) is Code.STREAM_GONE


def test_another_life_of_the_stream_is_not_written_to(shards: Shards) -> None:
    shards.ask(Delete(NAME))
    shards.ask(Create(NAME, "text/plain"))
    refusal = shards.ask(append(incarnation=1))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.incarnation) == (Code.INCARNATION_CHANGED, 3)
    assert isinstance(shards.ask(append(incarnation=3)), Appended)


def test_a_closed_stream_takes_nothing_more(shards: Shards) -> None:
    shards.ask(append(b"abc", close=True))
    refusal = shards.ask(append(close=True))
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.STREAM_CLOSED
    assert (refusal.incarnation, refusal.next_offset, refusal.closed) == (1, 3, True)
    assert shards.body(NAME) == b"abc"


def test_closing_a_closed_stream_succeeds(shards: Shards) -> None:
    shards.ask(append(b"abc", close=True))
    assert shards.ask(append(b"", close=True)) == ClosedOnly(1, 3)
    assert shards.ask(append(b"", close=True, producer=Producer("p", 0, 0))) == ClosedOnly(1, 3)


def test_another_content_type_is_refused(shards: Shards) -> None:
    shards.ask(append(b"abc"))
    for content_type, word in (("text/html", "text/html"), ("text/xml", "text/xml"), ("", "none")):
        refusal = shards.ask(append(content_type=content_type))
        assert isinstance(refusal, Refusal)
        assert refusal.code is Code.CONTENT_TYPE_MISMATCH
        assert (refusal.incarnation, refusal.next_offset) == (1, 3)
        assert refusal.detail.endswith(f"not {word}.")


@pytest.mark.parametrize(("last", "seq"), [("2", "10"), ("a", "B"), ("a", "a"), ("b", "a"), ("a", ""), ("é", "z")])
def test_a_stream_seq_must_sort_above_the_last_one_byte_by_byte(last: str, seq: str, shards: Shards) -> None:
    shards.ask(append(b"abc", seq=last))
    refusal = shards.ask(append(seq=seq))
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.STREAM_SEQ_CONFLICT
    assert (refusal.incarnation, refusal.next_offset) == (1, 3)


@pytest.mark.parametrize("seqs", [["", "1", "10", "2", "a", "aa", "é"], ["10", None, "11"]])
def test_stream_seqs_that_rise_are_accepted_also_with_unnumbered_appends_between(
    seqs: list[str | None], shards: Shards
) -> None:
    assert [type(shards.ask(append(seq=seq))) for seq in seqs] == [Appended] * len(seqs)
    assert code_of(shards.ask(append(seq=seqs[-1]))) is Code.STREAM_SEQ_CONFLICT


FIRST = Producer("p", 1, 0)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (append(content_type="text/html", producer=Producer("p", 0, 0)), Code.CONTENT_TYPE_MISMATCH),
        (append(seq="a", producer=Producer("p", 0, 0)), Code.PRODUCER_EPOCH_STALE),
        (append(seq="a", producer=Producer("p", 1, 2)), Code.PRODUCER_SEQ_CONFLICT),
        (append(seq="a", producer=Producer("p", 1, 1)), Code.STREAM_SEQ_CONFLICT),
        (append(content_type="text/html", incarnation=9), Code.INCARNATION_CHANGED),
    ],
)
def test_the_checks_have_an_order(command: Append, code: Code, shards: Shards) -> None:
    shards.ask(append(seq="b", producer=FIRST))
    assert code_of(shards.ask(command)) is code


def test_on_a_closed_stream_closed_comes_before_content_type_and_sequence(shards: Shards) -> None:
    shards.ask(append(seq="b", close=True, producer=FIRST))
    command = append(seq="a", content_type="text/html", producer=Producer("p", 0, 5))
    assert code_of(shards.ask(command)) is Code.STREAM_CLOSED


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (append(b"no", seq="a", producer=Producer("p", 1, 1)), Code.STREAM_SEQ_CONFLICT),
        (append(b"no", seq="c", content_type="text/html", producer=Producer("p", 1, 1)), Code.CONTENT_TYPE_MISMATCH),
        (append(b"no", seq="c", producer=Producer("p", 2, 1)), Code.PRODUCER_EPOCH_INVALID),
    ],
)
def test_a_refused_append_changes_nothing(refused: Append, code: Code, shards: Shards) -> None:
    shards.ask(append(b"abc", seq="b", producer=FIRST))
    assert code_of(shards.ask(refused)) is code
    assert shards.body(NAME) == b"abc"
    assert shards.ask(append(b"yes", seq="c", producer=Producer("p", 1, 1))) == Appended(1, 6, False, None, None, 1, 1)


# -- Producers --------------------------------------------------------------------------------------------------------


def test_a_producer_is_answered_with_its_epoch_and_sequence(shards: Shards) -> None:
    assert shards.ask(append(b"abc", producer=Producer("p", 4, 0))) == Appended(1, 3, False, None, None, 4, 0)
    assert shards.ask(append(b"de", producer=Producer("p", 4, 1))) == Appended(1, 5, False, None, None, 4, 1)


def test_a_retried_append_returns_the_first_offset(shards: Shards) -> None:
    shards.ask(append(b"abc", producer=Producer("p", 0, 0)))
    shards.ask(append(b"from somebody else"))
    assert shards.ask(append(b"abc", producer=Producer("p", 0, 0))) == Duplicate(1, 3, False, 0, 0, size=3)
    assert shards.body(NAME) == b"abcfrom somebody else"


def test_a_retry_of_an_older_append_returns_the_tail_and_the_highest_sequence(shards: Shards) -> None:
    for seq in range(3):
        shards.ask(append(b"abc", producer=Producer("p", 0, seq)))
    shards.ask(append(b"from somebody else"))
    assert shards.ask(append(b"abc", producer=Producer("p", 0, 1))) == Duplicate(1, 27, False, 0, 2)


@pytest.mark.parametrize(
    "other",
    [
        Append("b/json", b"123", pack((2, 3)), "application/json"),
        Append("b/json", b"123", None, "application/json"),
        Append("b/json", b"124", pack((1, 3)), "application/json"),
        Append("b/json", b"1234", pack((1, 4)), "application/json"),
        Append("b/json", b"", None, "", True),
    ],
    ids=["other boundaries", "one message", "other bytes", "more bytes", "a close"],
)
@pytest.mark.parametrize("closed", [False, True])
def test_a_repeated_number_with_other_content_is_refused_and_changes_nothing(
    other: Append, closed: bool, shards: Shards
) -> None:
    shards.ask(Create("b/json", "application/json"))
    producer = Producer("p", 0, 0)
    accepted = Append("b/json", b"123", pack((1, 3)), "application/json", producer=producer)
    shards.ask(accepted)
    if closed:
        shards.ask(Append("b/json", b"", close=True))
    refusal = shards.ask(msgspec.structs.replace(other, producer=producer))
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.PRODUCER_PAYLOAD_MISMATCH
    assert (refusal.incarnation, refusal.next_offset, refusal.closed) == (2, 3, closed)
    assert shards.ask(accepted) == Duplicate(2, 3, closed, 0, 0, 0, 2, 3)
    assert shards.body("b/json") == b"123"


def test_an_older_number_is_a_duplicate_whatever_its_content(shards: Shards) -> None:
    for seq in range(2):
        shards.ask(append(b"abc", producer=Producer("p", 0, seq)))
    assert isinstance(shards.ask(append(b"xyz", producer=Producer("p", 0, 0))), Duplicate)


def test_a_retry_wins_over_a_stream_seq_conflict(shards: Shards) -> None:
    command = append(b"abc", seq="a", producer=FIRST)
    shards.ask(command)
    assert isinstance(shards.ask(command), Duplicate)


@pytest.mark.parametrize(("seq", "size"), [(0, None), (1, 2)])
def test_a_retry_after_the_close_succeeds(seq: int, size: int | None, shards: Shards) -> None:
    shards.ask(append(b"abc", producer=Producer("p", 0, 0)))
    shards.ask(append(b"de", close=True, producer=Producer("p", 0, 1)))
    again = shards.ask(append(b"other", close=True, producer=Producer("p", 0, seq)))
    assert again == Duplicate(1, 5, True, 0, 1, size=size)
    assert shards.body(NAME) == b"abcde"


def test_a_message_under_the_number_of_the_close_is_no_retry_of_it(shards: Shards) -> None:
    close = append(b"", close=True, producer=Producer("p", 0, 0))
    shards.ask(close)
    refusal = shards.ask(append(b"abc", producer=Producer("p", 0, 0)))
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.closed) == (Code.PRODUCER_PAYLOAD_MISMATCH, True)
    assert isinstance(shards.ask(close), Duplicate)


@pytest.mark.parametrize("producer", [Producer("p", 0, 1), Producer("p", 1, 0), Producer("q", 0, 0)])
def test_a_new_request_after_the_close_is_refused(producer: Producer, shards: Shards) -> None:
    shards.ask(append(b"abc", close=True, producer=Producer("p", 0, 0)))
    assert code_of(shards.ask(append(producer=producer))) is Code.STREAM_CLOSED


def test_an_unknown_producer_begins_with_sequence_zero(shards: Shards) -> None:
    refusal = shards.ask(append(producer=Producer("p", 0, 3)))
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.PRODUCER_SEQ_CONFLICT
    assert (refusal.incarnation, refusal.expected_seq, refusal.received_seq) == (1, 0, 3)


def test_a_gap_names_the_expected_and_the_received_sequence(shards: Shards) -> None:
    shards.ask(append(producer=Producer("p", 0, 0)))
    refusal = shards.ask(append(producer=Producer("p", 0, 5)))
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.PRODUCER_SEQ_CONFLICT
    assert (refusal.incarnation, refusal.expected_seq, refusal.received_seq) == (1, 1, 5)


def test_a_new_epoch_fences_the_old_one(shards: Shards) -> None:
    shards.ask(append(producer=Producer("p", 1, 0)))
    assert isinstance(shards.ask(append(producer=Producer("p", 3, 0))), Appended)
    refusal = shards.ask(append(producer=Producer("p", 1, 1)))
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.PRODUCER_EPOCH_STALE
    assert (refusal.incarnation, refusal.producer_epoch) == (1, 3)


def test_a_new_epoch_begins_with_sequence_zero(shards: Shards) -> None:
    shards.ask(append(producer=Producer("p", 1, 0)))
    refusal = shards.ask(append(producer=Producer("p", 2, 1)))
    assert isinstance(refusal, Refusal)
    assert refusal.code is Code.PRODUCER_EPOCH_INVALID
    assert (refusal.incarnation, refusal.producer_epoch) == (1, 1)


def test_producers_do_not_know_of_each_other(shards: Shards) -> None:
    for identity in ("p", "q"):
        for seq in range(2):
            assert isinstance(shards.ask(append(producer=Producer(identity, 0, seq))), Appended)


class TestTheMostProducersThatAStreamMayHave:
    @pytest.fixture(autouse=True)
    def two(self, monkeypatch: pytest.MonkeyPatch, shards: Shards) -> None:
        """Two is the maximum, and p was idle for a second longer than q."""
        monkeypatch.setattr(appending, "PRODUCERS_PER_STREAM_MAX", 2)
        for identity, seq in (("p", 0), ("q", 0), ("p", 1)):
            shards.ask(append(producer=Producer(identity, 0, seq)))
            shards.wait(1)
        shards.ask(append(producer=Producer("q", 0, 1)))

    def test_one_more_producer_is_refused_and_known_ones_continue(self, shards: Shards) -> None:
        refusal = shards.ask(append(producer=Producer("r", 0, 0)))
        assert isinstance(refusal, Refusal)
        assert (refusal.code, refusal.incarnation) == (Code.PRODUCERS_TOO_MANY, 1)
        assert isinstance(shards.ask(append(producer=Producer("p", 0, 2))), Appended)
        assert isinstance(shards.ask(append(producer=Producer("q", 1, 0))), Appended)

    def test_the_longest_idle_makes_room_after_a_week(self, shards: Shards) -> None:
        shards.wait(PRODUCER_IDLE_US / SECOND_US - 1)
        assert isinstance(shards.ask(append(producer=Producer("r", 0, 0))), Appended)
        assert set(shards.stream(NAME).producers or ()) == {"q", "r"}

    def test_the_longest_idle_makes_room_at_any_time_after_that(self, shards: Shards) -> None:
        shards.wait(5 * PRODUCER_IDLE_US / SECOND_US)
        assert isinstance(shards.ask(append(producer=Producer("r", 0, 0))), Appended)
        assert set(shards.stream(NAME).producers or ()) == {"q", "r"}

    def test_no_producer_is_evicted_before_that(self, shards: Shards) -> None:
        shards.wait(PRODUCER_IDLE_US / SECOND_US - 1.001)
        assert code_of(shards.ask(append(producer=Producer("r", 0, 0)))) is Code.PRODUCERS_TOO_MANY
        assert set(shards.stream(NAME).producers or ()) == {"p", "q"}


# -- What may be answered before the log ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        (append(producer=Producer("p", 0, 0)), Duplicate),
        (append(b"", close=True), ClosedOnly),
        (append(), Refusal),
        (append(incarnation=9), Refusal),
    ],
)
def test_a_final_outcome_is_known_without_applying_the_command(command: Append, outcome: type, shards: Shards) -> None:
    shards.ask(append(close=True, producer=Producer("p", 0, 0)))
    judged = appending.judge_standing(shards.all[0].state, command, shards.now)
    assert isinstance(judged, outcome)
    assert shards.ask(command) == judged


@pytest.mark.parametrize(
    "command", [append(content_type="text/html"), append(seq=""), append(producer=Producer("p", 0, 9))]
)
def test_what_a_later_append_could_change_is_left_to_apply(command: Append, shards: Shards) -> None:
    shards.ask(append(seq="a"))
    state = shards.all[0].state
    assert appending.judge_standing(state, command, shards.now) is shards.stream(NAME)
    assert isinstance(appending.judge(state, command, shards.now), Refusal)


# -- Conditions --------------------------------------------------------------------------------------------------------


def conditional(version: Version | None = None, record: int | None = None, **more: Any) -> Append:
    return msgspec.structs.replace(
        append(**more), if_match=None if version is None else (version,), record_match=record
    )


def test_if_match_holds_while_life_tail_and_closure_are_those_that_were_seen(shards: Shards) -> None:
    shards.ask(append(b"abc"))
    for version in (Version(1, 2, False), Version(2, 3, False), Version(1, 3, True)):
        reply = shards.ask(conditional(version))
        assert isinstance(reply, Refusal)
        assert (reply.code, reply.incarnation, reply.next_offset) == (Code.PRECONDITION_FAILED, 1, 3)
    assert shards.ask(conditional(Version(1, 3, False), payload=b"de")) == Appended(1, 5, False)
    assert shards.ask(conditional(Version(1, 5, False), payload=b"", close=True)) == ClosedOnly(1, 5)


def test_if_match_may_name_several_states_or_none(shards: Shards) -> None:
    several = msgspec.structs.replace(append(), if_match=(Version(9, 9, True), Version(1, 0, False)))
    assert shards.ask(several) == Appended(1, 1, False)
    assert code_of(shards.ask(msgspec.structs.replace(append(), if_match=()))) is Code.PRECONDITION_FAILED


def test_a_retry_of_what_was_accepted_is_a_duplicate_whatever_its_conditions(shards: Shards) -> None:
    first = conditional(Version(1, 0, False), payload=b"abc", producer=Producer("p", 1, 0))
    assert shards.ask(first) == Appended(1, 3, False, None, None, 1, 0)
    shards.ask(append(b"de"))
    assert shards.ask(first) == Duplicate(1, 3, False, 1, 0, size=3)
    second = conditional(Version(1, 3, False), producer=Producer("p", 1, 1))
    assert code_of(shards.ask(second)) is Code.PRECONDITION_FAILED
    assert isinstance(shards.ask(append(producer=Producer("p", 1, 1))), Appended)


def test_conditions_are_judged_before_the_stream_sequence(shards: Shards) -> None:
    shards.ask(append(seq="b"))
    assert code_of(shards.ask(conditional(Version(1, 0, False), seq="a"))) is Code.PRECONDITION_FAILED
    assert code_of(shards.ask(conditional(Version(1, 1, False), seq="a"))) is Code.STREAM_SEQ_CONFLICT


def test_a_record_must_be_the_next_one_if_it_is_named(shards: Shards) -> None:
    shards.ask(Create("b/json", "application/json", payload=b"12", ends=pack((1, 2))))
    one = msgspec.structs.replace(conditional(record=1, content_type="application/json"), name="b/json")
    for record in (1, 3):
        reply = shards.ask(msgspec.structs.replace(one, record_match=record))
        assert isinstance(reply, Refusal)
        assert (reply.code, reply.next_offset, reply.record_next) == (Code.RECORD_PRECONDITION_FAILED, 2, 2)
    assert shards.ask(msgspec.structs.replace(one, record_match=2)) == Appended(2, 3, False, 2, 3)


def test_what_is_not_json_has_no_records_to_match(shards: Shards) -> None:
    assert code_of(shards.ask(conditional(record=0))) is Code.BAD_REQUEST
    assert shards.stream(NAME).tail == 0


# -- Writes that change nothing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "renews"),
    [
        (Append("b/s", b"x", content_type="text/plain", producer=Producer("p", 0, 0)), True),
        (Append("b/s", b"x", content_type="application/json"), True),
        (Append("b/s", b"x", content_type="text/plain", seq="0"), True),
        (Append("b/s", b"x", content_type="application/json", incarnation=1), True),
        (Append("b/s", b"x", content_type="text/plain", incarnation=7), False),
    ],
)
def test_a_write_that_changes_nothing_is_still_a_use(command: Append, renews: bool) -> None:
    shards = Shards()
    shards.ask(Create("b/s", "text/plain", Lifetime(ttl_seconds=10), seq="1"))
    shards.ask(Append("b/s", b"x", content_type="text/plain", producer=Producer("p", 0, 0)))
    shards.now += 6_000_000
    tail = shards.stream("b/s").tail
    assert not isinstance(shards.ask(command), Appended)
    assert shards.stream("b/s").tail == tail
    assert (shards.stream("b/s").touched_at == shards.now) == renews


def test_a_write_to_a_stream_that_never_expires_leaves_it_alone() -> None:
    shards = Shards()
    shards.ask(Create("b/s", "text/plain"))
    shards.now += 1
    shards.ask(Append("b/s", b"x", content_type="application/json"))
    assert shards.stream("b/s").touched_at == shards.now - 1
