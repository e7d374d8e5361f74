"""Publishing: whatever a network does, every batch is decided once or given back, and streams keep their order."""

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.log.jetstream import judging, publishing
from headwater.log.jetstream.judging import PART_BYTES, SESSION_US, Judge
from headwater.log.jetstream.publishing import FREIGHT_BYTES_IN_FLIGHT_MAX, REFUSED_SECONDS, SILENCE_SECONDS, Publisher
from headwater.log.seam import Ticket
from headwater.streams import batches
from headwater.streams.commands import Command
from headwater.streams.commands.streams import Append, Delete

MINUTE_US = 60_000_000
LARGE = b"." * (3 * PART_BYTES)


class Loopback:
    """A publisher, and the log that its messages go to."""

    def __init__(self) -> None:
        self.judge = Judge("9f2c", 0)
        self.given_back: list[Ticket] = []
        self.publisher = Publisher("9f2c", 0, self.judge, self.given_back.append)
        self.network: list[bytes] = []
        """Messages that were sent; they stay, because any of them may arrive again."""
        self.delivered: list[tuple[Ticket, list[Command]]] = []
        self.proposed: dict[Ticket, list[Command]] = {}
        self.clock_us = 0
        self.seconds = 0.0
        self.barriers = 0

    def append(self, *commands: Command) -> None:
        ticket = len(self.proposed) + 1
        self.proposed[ticket] = list(commands)
        self.publisher.append(self.clock_us, list(commands), ticket, self.seconds)

    def barrier(self) -> None:
        def arrived() -> None:
            self.barriers += 1

        self.publisher.append_barrier(self.clock_us, arrived, self.seconds)

    def send(self, most: int = 1_000) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < most and (data := self.publisher.next_message()) is not None:
            found.append(data)
        self.network += found
        return found

    def store(self, data: bytes) -> None:
        """The log stores a message, and it comes back."""
        taken = self.judge.take(self.judge.sequence + 1, data)
        assert taken is not None
        lane = self.publisher.lane_of(taken.session)
        if lane is None:
            assert not taken.counts or taken.session > 1 << 63, "a session of ours that ended counts no more"
            return
        proposal = self.publisher.arrived(lane, taken, self.seconds)
        if proposal is not None and proposal.ticket is not None:
            assert taken.record is not None
            assert batches.decode(taken.record.data, 1).commands == proposal.commands
            self.delivered.append((proposal.ticket, proposal.commands))
        elif proposal is not None and proposal.arrived is not None:
            proposal.arrived()

    def store_another(self) -> None:
        """Another proposer's message carries shard time forward."""
        self.foreign = getattr(self, "foreign", 0) + 1
        self.judge.take(
            self.judge.sequence + 1,
            judging.message(judging.seed_of("9f2c", 0), (1 << 63) + self.foreign, 1, at=self.clock_us, commands=0),
        )

    def settle(self) -> None:
        """A network that works again: everything is sent again until it has come back."""
        for _ in range(500):
            if self.publisher.idle:
                return
            for data in self.send():
                self.store(data)
            self.seconds += SILENCE_SECONDS[-1] + 1
            self.publisher.resend_if_due(self.seconds)
        raise AssertionError("not everything came back")


def names(delivered: list[tuple[Ticket, list[Command]]]) -> list[str]:
    return [command.name for _, commands in delivered for command in commands]  # type: ignore[attr-defined]


def test_a_small_append_passes_a_large_one_to_another_stream() -> None:
    one = Loopback()
    one.append(Append("large", LARGE))
    first = one.send()
    one.append(Append("small", b"x"))
    one.store(first[0])
    one.store(one.send()[0])
    assert names(one.delivered) == ["small"]
    one.settle()
    assert names(one.delivered) == ["small", "large"]


def test_an_append_to_the_same_stream_or_any_other_command_does_not_pass_a_large_one() -> None:
    for command in (Append("large", b"x"), Delete("other")):
        one = Loopback()
        one.append(Append("large", LARGE))
        one.append(command)
        one.append(Append("large", b"y"))
        one.settle()
        assert [ticket for ticket, _ in one.delivered] == [1, 2, 3]


def test_nothing_passes_a_large_batch_that_is_more_than_appends() -> None:
    one = Loopback()
    one.append(Append("large", LARGE), Delete("other"))
    one.append(Append("small", b"x"))
    one.settle()
    assert [ticket for ticket, _ in one.delivered] == [1, 2]


def test_a_large_append_waits_for_the_small_ones_before_it() -> None:
    one = Loopback()
    one.append(Append("a", b"x"))
    one.append(Append("a", LARGE))
    sent = one.send()
    assert len(sent) == 1
    one.append(Append("b", b"x"))
    sent += one.send()
    assert len(sent) == 2
    one.store(sent[0])
    assert len(one.send()) > 1
    one.settle()
    assert names(one.delivered) == ["a", "b", "a"]


def test_only_so_many_bytes_of_large_appends_are_in_flight() -> None:
    one = Loopback()
    one.append(Append("a", b"." * (3 * FREIGHT_BYTES_IN_FLIGHT_MAX)))
    sent = one.send()
    assert sum(map(len, sent)) <= FREIGHT_BYTES_IN_FLIGHT_MAX + 40 * len(sent)
    one.store(sent[0])
    assert len(one.send()) == 1, "one comes back, one more goes"
    one.settle()
    assert names(one.delivered) == ["a"]


def test_what_was_refused_is_sent_again_soon_and_what_is_silent_later_and_later() -> None:
    one = Loopback()
    one.append(Append("a", b"x"))
    one.send()
    one.publisher.refused(0.0)
    assert not one.publisher.resend_if_due(REFUSED_SECONDS / 2)
    assert one.publisher.resend_if_due(REFUSED_SECONDS)
    assert len(one.send()) == 1
    now = REFUSED_SECONDS
    for patience in (*SILENCE_SECONDS, SILENCE_SECONDS[-1]):
        assert not one.publisher.resend_if_due(now + patience - 0.01)
        now += patience + 0.01
        assert one.publisher.resend_if_due(now)
        assert len(one.send()) == 1
    one.settle()
    assert not one.publisher.resend_if_due(now + 100)


def test_an_idle_proposer_begins_a_new_session_before_the_old_one_is_forgotten() -> None:
    one = Loopback()
    one.append(Append("a", b"x"))
    one.settle()
    session = one.publisher.express.session
    one.clock_us = SESSION_US - MINUTE_US
    one.append(Append("a", b"y"))
    assert one.publisher.express.session != session
    one.settle()
    assert [ticket for ticket, _ in one.delivered] == [1, 2]


def test_a_session_that_was_forgotten_on_the_way_is_replaced() -> None:
    one = Loopback()
    one.append(Append("a", b"x"))
    one.settle()
    one.append(Append("a", b"y"))
    late = one.send()[0]
    one.clock_us = SESSION_US + 1
    one.store_another()
    one.append(Append("a", b"z"))
    session = one.publisher.express.session
    one.store(late)
    assert one.publisher.express.session != session
    # The second batch is stamped ten minutes ago: too old to be decided by any session.
    assert one.given_back == [2]
    one.settle()
    assert [ticket for ticket, _ in one.delivered] == [1, 3]


def test_the_first_message_of_a_session_that_may_still_count_is_not_sent_under_another_one() -> None:
    one = Loopback()
    one.append(Append("a", b"x"))
    message = one.send()[0]
    with patch.object(judging, "SESSIONS_MAX", 0):
        one.store(message)
    assert one.delivered == []
    one.store(message)
    one.settle()
    assert [ticket for ticket, _ in one.delivered] == [1]


STREAMS = st.sampled_from(["a", "b", "c"])
STEPS = st.one_of(
    st.tuples(st.just("small"), STREAMS),
    st.tuples(st.just("large"), STREAMS),
    st.tuples(st.just("delete"), STREAMS),
    st.tuples(st.just("barrier"), st.just("")),
    st.tuples(st.just("send"), st.integers(1, 4)),
    st.tuples(st.just("store"), st.integers(0, 1_000)),
    st.tuples(st.just("again"), st.just("")),
    st.tuples(st.just("sleep"), st.sampled_from([1_000, 4 * MINUTE_US, SESSION_US + 1])),
)


@settings(deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_every_batch_is_decided_once_or_given_back_and_streams_keep_their_order(
    steps: list[tuple[str, object]],
) -> None:
    with patch.object(judging, "PART_BYTES", 64), patch.object(publishing, "FREIGHT_BYTES_IN_FLIGHT_MAX", 128):
        one = Loopback()
        for kind, choice in steps:
            play(one, kind, choice)
        one.settle()
    tickets = [ticket for ticket, _ in one.delivered]
    assert sorted(tickets + one.given_back) == list(one.proposed), "each once"
    for ticket, commands in one.delivered:
        assert commands == one.proposed[ticket]
    for stream in "abc":
        own = [ticket for ticket, commands in one.delivered if commands[0].name == stream]  # type: ignore[attr-defined]
        assert own == sorted(own)


def play(one: Loopback, kind: str, choice: object) -> None:
    if kind in ("small", "large"):
        one.append(Append(str(choice), b"x" if kind == "small" else b"." * 300))
    elif kind == "delete":
        one.append(Delete(str(choice)))
    elif kind == "barrier":
        one.barrier()
    elif kind == "send":
        assert isinstance(choice, int)
        one.send(choice)
    elif kind == "store" and one.network:
        assert isinstance(choice, int)
        one.store(one.network[choice % len(one.network)])
    elif kind == "again":
        one.seconds += SILENCE_SECONDS[-1] + 1
        one.publisher.resend_if_due(one.seconds)
    elif kind == "sleep":
        assert isinstance(choice, int)
        one.clock_us += choice
        one.store_another()
