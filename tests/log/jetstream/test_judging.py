"""Judging: whatever a network does to messages, every node makes the same batches of them, each exactly once."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.jetstream import judging
from headwater.log.jetstream.judging import (
    CHECKPOINT_MESSAGES,
    HEADER,
    PART_BYTES,
    SESSION_US,
    Judge,
    Mark,
    Taken,
    UnknownMessage,
    decode_mark,
    message,
    pieces_of,
    seed_of,
)
from headwater.log.seam import MarkDamaged

LOG_ID, SHARD = "9f2c", 0
SEED = seed_of(LOG_ID, SHARD)
MINUTE_US = 60_000_000


class Sent(NamedTuple):
    """A message of some session."""

    session: int
    number: int
    at: int
    data: bytes


def sent(session: int, number: int, *, at: int = 0, piece: bytes = b"x", part: int = 0, parts: int = 1) -> Sent:
    data = message(SEED, session, number, at=at, commands=2, part=part, parts=parts, piece=piece)
    return Sent(session, number, at, data)


def new_judge(mark: Mark | None = None) -> Judge:
    return Judge(LOG_ID, SHARD, mark)


def take_all(judge: Judge, log: list[bytes]) -> list[Taken | None]:
    return [judge.take(judge.sequence + 1, data) for data in log]


def counted(log: list[Sent]) -> list[bool]:
    return [taken is not None and taken.counts for taken in take_all(new_judge(), [one.data for one in log])]


def records(takens: list[Taken | None]) -> list[tuple[int, bytes]]:
    """The session and the record of everything that was decided."""
    return [(taken.session, taken.record.data) for taken in takens if taken is not None and taken.record is not None]


# -- Rules -------------------------------------------------------------------------------------------------------------


def test_a_message_counts_once_however_often_it_arrives() -> None:
    first, second = sent(1, 1), sent(1, 2)
    assert counted([first, first, second, first, second]) == [True, False, True, False, False]


def test_a_message_that_overtook_another_counts_when_it_comes_again_behind_it() -> None:
    first, second, third = (sent(1, number) for number in (1, 2, 3))
    assert counted([first, third, second, third]) == [True, False, True, True]


def test_a_session_begins_with_its_message_1() -> None:
    assert counted([sent(1, 2), sent(1, 1), sent(1, 2)]) == [False, True, True]


def test_sessions_do_not_disturb_each_other() -> None:
    assert counted([sent(1, 1), sent(2, 1), sent(2, 2), sent(1, 2)]) == [True] * 4


def test_a_message_of_another_log_or_shard_or_with_a_changed_bit_is_not_a_message() -> None:
    judge = new_judge()
    for stranger in (seed_of("0000", SHARD), seed_of(LOG_ID, 1)):
        assert judge.take(judge.sequence + 1, message(stranger, 1, 1, at=0, commands=1, piece=b"x")) is None
    good = sent(1, 1).data
    for at in range(4, len(good)):
        assert judge.take(judge.sequence + 1, good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]) is None
    assert judge.take(judge.sequence + 1, b"short") is None
    assert judge.invalid == judge.sequence
    taken = judge.take(judge.sequence + 1, good)
    assert taken is not None and taken.counts


def test_a_message_of_a_later_format_ends_the_node_with_a_sentence() -> None:
    data = bytearray(sent(1, 1).data)
    data[2] += 1
    with pytest.raises(UnknownMessage, match=r"Message 1 of the log has format 2, .* install a newer version"):
        new_judge().take(1, bytes(data))


def test_positions_count_commands_and_barriers_have_none() -> None:
    barrier = message(SEED, 2, 1, at=5, commands=0)
    takens = take_all(new_judge(), [sent(1, 1).data, barrier, sent(1, 2).data])
    assert [taken.record.first_position for taken in takens if taken and taken.record] == [1, 3, 3]
    assert [taken.record.commands for taken in takens if taken and taken.record] == [2, 0, 2]


def test_a_silent_session_is_forgotten_and_none_of_its_messages_counts_again() -> None:
    log = [sent(1, 1, at=0), sent(1, 2, at=MINUTE_US), sent(2, 1, at=MINUTE_US + SESSION_US + 1)]
    ghosts = [sent(1, 1, at=0), sent(1, 2, at=MINUTE_US), sent(1, 3, at=MINUTE_US)]
    assert counted(log + ghosts) == [True, True, True, False, False, False]


def test_a_session_is_remembered_for_ten_minutes_of_shard_time_after_its_last_stamp() -> None:
    log = [sent(1, 1, at=0), sent(1, 2, at=MINUTE_US), sent(2, 1, at=MINUTE_US + SESSION_US)]
    assert counted([*log, sent(1, 1, at=0), sent(1, 3, at=0)]) == [True, True, True, False, True]


def test_a_new_session_may_be_stamped_ten_minutes_before_shard_time_and_no_earlier() -> None:
    log = [sent(1, 1, at=SESSION_US + 10), sent(2, 1, at=9), sent(3, 1, at=10)]
    assert counted(log) == [True, False, True]


def test_a_large_record_is_put_together_from_its_parts() -> None:
    record = bytes(range(256)) * 2000
    pieces = pieces_of(record)
    assert [len(piece) for piece in pieces[:-1]] == [PART_BYTES] * (len(pieces) - 1)
    log = [sent(1, n + 1, piece=piece, part=n, parts=len(pieces)) for n, piece in enumerate(pieces)]
    disturbed = [log[0], log[0], sent(2, 1), log[2], *log[1:]]
    assert records(take_all(new_judge(), [one.data for one in disturbed])) == [(2, b"x"), (1, record)]


@pytest.mark.parametrize(("part", "parts"), [(1, 2), (2, 2), (0, 0)])
def test_a_part_that_does_not_continue_its_record_does_not_count(part: int, parts: int) -> None:
    assert counted([sent(1, 1, part=part, parts=parts)]) == [False]


def test_parts_beyond_the_limits_do_not_count_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "PARTS_BYTES_MAX", 30)
    monkeypatch.setattr(judging, "SESSION_PARTS_BYTES_MAX", 20)
    part = b"0123456789"
    log = [sent(1, 1, piece=part, parts=9), sent(1, 2, piece=part, part=1, parts=9)]
    assert counted([*log, sent(1, 3, piece=part, part=2, parts=9)]) == [True, True, False], "one session"
    others = [sent(2, 1, piece=part, parts=9), sent(3, 1, piece=part, parts=9)]
    assert counted([*log, *others]) == [True, True, True, False], "all sessions"
    later = SESSION_US + 1
    relief = [sent(4, 1, at=later), sent(3, 1, at=later, piece=part, parts=9)]
    assert counted([*log, *others, *relief])[-1], "the others were forgotten"


def test_sessions_beyond_the_limit_do_not_count_until_others_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "SESSIONS_MAX", 2)
    late = SESSION_US + 1
    log = [sent(1, 1), sent(2, 1), sent(3, 1), sent(2, 2, at=late), sent(3, 1, at=late)]
    assert counted(log) == [True, True, False, True, True]


def test_the_chain_depends_on_every_message_and_on_what_it_was_worth() -> None:
    log = [sent(1, 1).data, sent(1, 1).data]
    both, first = new_judge(), new_judge()
    take_all(both, log)
    take_all(first, log[:1])
    assert both.chain != first.chain
    # Another node that knew the session already judges the same message differently.
    other = new_judge(Mark(1, 0, 0, 0, 0, {1: judging.Session(1, 0)}))
    take_all(other, log[:1])
    assert other.chain != first.chain


def test_the_chain_is_noted_at_every_1024th_message() -> None:
    judge = new_judge()
    take_all(judge, [sent(1, number).data for number in range(1, CHECKPOINT_MESSAGES)])
    assert judge.checkpoint.sequence == 0
    judge.take(CHECKPOINT_MESSAGES, b"")
    assert judge.checkpoint == (CHECKPOINT_MESSAGES, judge.chain)
    judge.take(CHECKPOINT_MESSAGES + 1, b"")
    assert judge.checkpoint.sequence == CHECKPOINT_MESSAGES


def test_a_mark_that_cannot_be_read_is_refused_with_a_sentence() -> None:
    with pytest.raises(MarkDamaged, match="cannot be read"):
        decode_mark(b"nonsense")
    with pytest.raises(MarkDamaged, match="has format 9"):
        decode_mark(judging._mark_encoder.encode(Mark(9, 0, 0, 0, 0, {})))


def test_a_header_has_40_bytes() -> None:
    assert HEADER.size == 40 == len(sent(1, 1, piece=b"").data)


# -- Any network -------------------------------------------------------------------------------------------------------


class Proposer:
    """Sends its records in order; what becomes of the messages is up to the network."""

    def __init__(self, session: int, sizes: list[int]) -> None:
        self.session = session
        self.records = [b"%d/%d:" % (session, n) + b"." * size for n, size in enumerate(sizes)]

    def messages(self, step_us: int) -> list[bytes]:
        """All of its messages, each stamped so much later than the one before."""
        found: list[bytes] = []
        for record in self.records:
            pieces = [record[start : start + 8] for start in range(0, len(record), 8)]
            for part, piece in enumerate(pieces):
                number = len(found) + 1
                found.append(
                    message(
                        SEED,
                        self.session,
                        number,
                        at=number * step_us,
                        commands=1,
                        part=part,
                        parts=len(pieces),
                        piece=piece,
                    )
                )
        return found


STEPS = (0, 1_000, MINUTE_US, SESSION_US // 3)
PROPOSERS = st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=4), min_size=1, max_size=4).map(
    lambda sizes: [Proposer(session, each) for session, each in enumerate(sizes, 1)]
)


@st.composite
def logs(draw: st.DrawFn, steps: tuple[int, ...] = STEPS) -> tuple[list[Proposer], list[bytes]]:
    """Proposers, and a log in which their messages are lost, repeated and mixed, and strangers' messages appear."""
    proposers = draw(PROPOSERS)
    step = draw(st.sampled_from(steps))
    everything = [data for proposer in proposers for data in proposer.messages(step)]
    return proposers, draw(st.lists(st.sampled_from([*everything, b"stranger"]), max_size=60))


@settings(deadline=None)
@given(logs(), st.integers(0, 60))
def test_a_node_that_restarts_from_any_mark_makes_the_same_of_the_rest(
    drawn: tuple[list[Proposer], list[bytes]], cut: int
) -> None:
    _, log = drawn
    steady = new_judge()
    expected = take_all(steady, log)
    first = new_judge()
    found = take_all(first, log[:cut])
    mark = first.encoded_mark()
    take_all(first, [b"whatever comes later leaves no trace in a mark that was saved before"])
    second = new_judge(decode_mark(mark))
    found += take_all(second, log[cut:])
    assert found == expected
    assert second.encoded_mark() == steady.encoded_mark()
    assert second.position == sum(1 for _ in records(expected))


@settings(deadline=None)
@given(logs())
def test_the_records_of_a_session_are_decided_in_order_and_none_twice(
    drawn: tuple[list[Proposer], list[bytes]],
) -> None:
    proposers, log = drawn
    decided = records(take_all(new_judge(), log))
    for proposer in proposers:
        own = [record for session, record in decided if session == proposer.session]
        assert own == proposer.records[: len(own)]


@settings(deadline=None)
@given(logs(steps=(1_000,)))
def test_proposers_that_send_everything_again_have_every_record_decided_exactly_once(
    drawn: tuple[list[Proposer], list[bytes]],
) -> None:
    proposers, log = drawn
    again = [data for proposer in proposers for data in proposer.messages(1_000)]
    decided = records(take_all(new_judge(), log + again))
    for proposer in proposers:
        assert [record for session, record in decided if session == proposer.session] == proposer.records
