"""Allowances: the rate holds in the long run, a rest gives no more than two bursts, and a refusal costs nothing."""

from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.access.allowances import (
    IDLE_SECONDS,
    NO_USAGE,
    Account,
    Allowance,
    Allowances,
    Exceeded,
    Overdrawn,
    Usage,
)
from headwater.access.limits import Limits

pytestmark = pytest.mark.attack

MIB = 1024 * 1024
LIMITS = Limits(10.0, MIB, MIB, 2.0, 3)


class Time:
    """A clock that a test moves, and that counts how often it is looked at."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.seconds


@pytest.fixture
def time() -> Time:
    return Time()


def allowance(time: Time, rate: float | None = 10.0, burst: float = 10.0) -> Allowance:
    return Allowance("requests", rate, burst, time)


# -- One allowance ----------------------------------------------------------------------------------------------------


def usage(allowances: Allowances) -> dict[str, Usage]:
    return {principal: account.usage for principal, account in allowances.accounts()}


def test_a_request_in_credit_does_not_look_at_the_clock(time: Time) -> None:
    one = allowance(time)
    looks = time.looks
    assert [one.take(1) for _ in range(10)] == [None] * 10
    assert time.looks == looks
    one.take(1)
    assert time.looks == looks + 1


def test_what_is_overdrawn_by_less_than_a_second_is_done_and_muted_for_that_long(time: Time) -> None:
    one = allowance(time)
    one.take(10)
    assert one.take(1) == Overdrawn(0.1)
    assert one.take(8.5) == Overdrawn(0.95)
    assert one.take(1) == Exceeded("requests", 10, 1, 2)


def test_a_refused_request_is_not_charged(time: Time) -> None:
    one = allowance(time)
    one.take(15)
    used = one.used
    for _ in range(100):
        assert isinstance(one.take(10), Exceeded)
    assert one.used == used
    overdrawn = one.take(1)
    assert isinstance(overdrawn, Overdrawn)
    assert overdrawn.mute_seconds == pytest.approx(0.6)


def test_a_client_that_waits_as_told_succeeds(time: Time) -> None:
    one = allowance(time, 0.5, 1.0)
    assert one.take(1) is None
    refused = one.take(1)
    assert refused == Exceeded("requests", 1, 2, 2)
    time.seconds += refused.retry_after_seconds
    assert one.take(1) is None


def test_a_rest_gives_what_was_left_and_one_burst_more(time: Time) -> None:
    one = allowance(time)
    time.seconds += 86_400
    assert [one.take(1) for _ in range(20)] == [None] * 20
    assert isinstance(one.take(1), Overdrawn)


def test_a_request_above_the_burst_passes_when_the_allowance_is_full(time: Time) -> None:
    one = allowance(time)
    assert one.take(100) == Overdrawn(1.0)
    refused = one.take(100)
    assert refused == Exceeded("requests", 10, 1, 10)
    assert isinstance(one.refuse(), Exceeded)
    time.seconds += 9.5
    assert isinstance(one.take(100), Exceeded)
    time.seconds += 0.5
    assert one.take(100) == Overdrawn(1.0)


def test_what_is_done_already_is_always_charged(time: Time) -> None:
    one = allowance(time)
    assert one.spend(10) == 0.0
    assert one.spend(5) == 0.5
    assert one.refuse() is None
    assert one.spend(100) == 1.0
    assert one.refuse() == Exceeded("requests", 10, 1, 11)
    assert one.debt_seconds() == 10.5
    time.seconds += 10.5
    assert one.debt_seconds() == 0.0
    assert one.refuse() is None


def test_an_allowance_without_a_limit_never_looks_at_the_clock_and_counts(time: Time) -> None:
    one = allowance(time, None)
    for _ in range(1000):
        assert one.take(2**30) is None
        assert one.spend(1) == 0.0
    assert (time.looks, one.refuse(), one.debt_seconds(), one.is_full()) == (0, None, 0.0, True)
    assert one.used == 1000 * (2**30 + 1)
    assert one.take(2**50) is None, "the meter turns over"
    assert one.used == 1000 * (2**30 + 1) + 2**50


def test_the_clock_of_a_slow_machine_may_stand_still(time: Time) -> None:
    one = allowance(time)
    verdicts = [one.take(1) for _ in range(100)]
    assert verdicts.count(None) == 10
    assert sum(isinstance(verdict, Overdrawn) for verdict in verdicts) == 9


STEPS = st.lists(
    st.tuples(st.floats(0, 3), st.floats(0.01, 40)),
    max_size=60,
)
RATES = st.floats(0.1, 1000)


@given(steps=STEPS, rate=RATES, burst_seconds=st.floats(1, 4))
def test_the_rate_holds_in_the_long_run(steps: list[tuple[float, float]], rate: float, burst_seconds: float) -> None:
    time = Time()
    one = Allowance("requests", rate, rate * burst_seconds, time)
    began, done, largest = time.seconds, 0.0, 0.0
    for wait, cost in steps:
        time.seconds += wait
        if not isinstance(one.take(cost), Exceeded):
            done, largest = done + cost, max(largest, cost)
    passed = time.seconds - began
    most = rate * (passed + 2 * burst_seconds) + max(largest, rate)
    assert done <= most * (1 + 1e-6)
    assert one.used == pytest.approx(done, abs=1)


@given(parts=st.lists(st.floats(0.001, 1), max_size=60), rate=RATES)
def test_who_stays_below_the_rate_is_never_refused(parts: list[float], rate: float) -> None:
    time = Time()
    one = Allowance("requests", rate, rate, time)
    for part in parts:
        time.seconds += part
        verdict = one.take(part * rate)
        assert verdict is None or (isinstance(verdict, Overdrawn) and verdict.mute_seconds < 1e-6)


@given(steps=STEPS, rate=RATES, pauses=st.lists(st.floats(0, 2), max_size=20))
def test_looking_at_a_debt_does_not_change_it(
    steps: list[tuple[float, float]], rate: float, pauses: list[float]
) -> None:
    time = Time()
    watched, unwatched = (Allowance("requests", rate, rate, time) for _ in range(2))
    for _, cost in steps:
        watched.spend(cost)
        unwatched.spend(cost)
    for pause in pauses:
        time.seconds += pause
        watched.debt_seconds()
    assert watched.debt_seconds() == pytest.approx(unwatched.debt_seconds(), abs=1e-6)


@given(rate=RATES, costs=st.lists(st.floats(0.01, 20), min_size=2, max_size=20), wait=st.floats(0, 5))
def test_charging_and_waiting_commute_in_debt(rate: float, costs: list[float], wait: float) -> None:
    time = Time()
    first, then = (Allowance("requests", rate, rate, time) for _ in range(2))
    debt = rate * (wait + 10)
    for one in (first, then):
        one.spend(debt + rate)
    for cost in costs:
        first.spend(cost)
    time.seconds += wait
    for cost in costs:
        then.spend(cost)
    assert first.debt_seconds() == pytest.approx(then.debt_seconds(), rel=1e-6)


@given(rate=RATES, debt_seconds=st.floats(0, 100), cost=st.floats(0.01, 5000))
def test_whoever_waits_as_told_succeeds_at_once(rate: float, debt_seconds: float, cost: float) -> None:
    time = Time()
    one = Allowance("requests", rate, max(1.0, rate), time)
    one.spend(max(1.0, rate) + debt_seconds * rate)
    verdict = one.take(cost)
    if isinstance(verdict, Exceeded):
        assert verdict.retry_after_seconds >= 1
        assert verdict.retry_after_seconds <= ceil(debt_seconds + max(1.0, rate) / rate + 1e-6)
        time.seconds += verdict.retry_after_seconds
        assert not isinstance(one.take(cost), Exceeded)
    elif verdict is not None:
        assert 0 < verdict.mute_seconds <= 1


@pytest.mark.parametrize(
    ("rate", "quota", "window_seconds"), [(50, 50, 1), (1, 1, 1), (2.5, 2, 1), (0.5, 1, 2), (0.3, 1, 4)]
)
def test_the_policy_is_said_in_whole_numbers(time: Time, rate: float, quota: int, window_seconds: int) -> None:
    one = allowance(time, rate, 1.0)
    one.spend(1000)
    refused = one.refuse()
    assert refused is not None
    assert refused[:3] == ("requests", quota, window_seconds)


# -- One principal ----------------------------------------------------------------------------------------------------


def test_bursts_are_a_second_of_requests_and_two_of_bytes_and_never_less_than_one_of_a_kind(time: Time) -> None:
    account = Account(Limits(0.5, 1000, 2 * MIB, 5.0, None), time)
    assert account.requests.take(1) is None
    assert account.appends.take(16 * MIB) is None, "the largest append"
    assert account.reads.take(4 * MIB) is None
    assert [account.creates.take(1) for _ in range(5)] == [None] * 5
    for empty in (account.requests, account.appends, account.reads, account.creates):
        assert empty.take(1) is not None
    assert Account(Limits(None, None, 1000, None, None), time).reads.take(MIB) is None


def test_live_reads_are_counted_and_released(time: Time) -> None:
    live = Account(LIMITS, time).live_reads
    assert live.begin(2) is None
    assert live.begin(2) == Exceeded("live-reads", 3, None, 5)
    assert live.begin() is None
    assert live.begin() is not None
    live.end(3)
    assert live.begin(3) is None
    unlimited = Account(None, time).live_reads
    assert unlimited.begin(10**6) is None


def test_what_a_principal_uses_is_metered(time: Time) -> None:
    for limits in (LIMITS, None):
        account = Account(limits, time)
        for _ in range(30):
            time.seconds += 0.2
            account.requests.take(1)
            account.appends.take(1000)
            account.reads.spend(123)
        account.creates.take(1)
        assert account.usage == Usage(30, 30_000, 30 * 123, 1)


def test_new_limits_take_effect_and_keep_usage_and_debts(time: Time) -> None:
    account = Account(LIMITS, time)
    account.requests.spend(60)
    account.adjust(LIMITS._replace(requests_per_second=100.0, live_reads=0))
    assert account.requests.debt_seconds() == pytest.approx(5.0)
    assert account.usage.requests == 60
    assert account.live_reads.begin() is not None
    account.adjust(None)
    assert account.requests.take(1) is None
    assert account.usage.requests == 61
    account.adjust(LIMITS)
    assert [account.requests.take(1) for _ in range(10)] == [None] * 10
    overdrawn = account.requests.take(1)
    assert isinstance(overdrawn, Overdrawn)
    assert overdrawn.mute_seconds == pytest.approx(0.1)
    assert account.usage.requests == 72


# -- All principals ---------------------------------------------------------------------------------------------------


def test_a_principal_has_one_account_and_never_that_of_another(time: Time) -> None:
    allowances = Allowances(time)
    ann, bob = allowances.of("ann", LIMITS), allowances.of("bob", LIMITS)
    assert allowances.of("ann", LIMITS) is ann
    ann.requests.spend(1000)
    assert bob.requests.refuse() is None
    assert usage(allowances) == {"ann": Usage(1000, 0, 0, 0), "bob": NO_USAGE}


def test_limits_that_were_read_again_apply_at_once(time: Time) -> None:
    allowances = Allowances(time)
    account = allowances.of("ann", LIMITS)
    account.requests.take(10)
    again = Limits(*LIMITS)
    assert allowances.of("ann", again).limits is again
    assert isinstance(account.requests.take(1), Overdrawn), "the same limits change nothing"
    narrow = LIMITS._replace(requests_per_second=1.0)
    assert allowances.of("ann", narrow) is account
    assert account.requests.rate == 1.0


def test_idle_principals_are_forgotten_and_what_they_used_is_not(time: Time) -> None:
    allowances = Allowances(time)
    allowances.of("idle", LIMITS).requests.take(5)
    allowances.of("in debt", LIMITS).requests.spend(10_000)
    allowances.of("live", None).live_reads.begin()
    busy = allowances.of("busy", None)
    for _ in range(4):
        busy.requests.take(1)
        allowances.tidy()
        time.seconds += IDLE_SECONDS / 2
    assert usage(allowances).keys() == {"in debt", "live", "busy"}
    assert allowances.forgotten == Usage(5, 0, 0, 0)
    allowances.of("live", None).live_reads.end()
    time.seconds += 1000
    for _ in range(2):
        allowances.tidy()
        time.seconds += IDLE_SECONDS
    allowances.tidy()
    assert len(allowances) == 0
    assert allowances.forgotten.requests == 5 + 10_000 + 4


def test_there_are_never_more_principals_than_allowed(time: Time) -> None:
    allowances = Allowances(time, principals_max=100)
    allowances.of("debtor", LIMITS).requests.spend(1000)
    allowances.of("live", LIMITS).live_reads.begin()
    for number in range(1000):
        allowances.of(f"address {number}", LIMITS).requests.take(1)
        time.seconds += 0.1
        assert len(allowances) <= 100
    kept = usage(allowances)
    assert {"debtor", "live"} <= kept.keys(), "those that lose nothing go first"
    assert sum(usage.requests for usage in kept.values()) + allowances.forgotten.requests == 2000


def test_principals_that_are_all_in_use_are_still_bounded(time: Time) -> None:
    allowances = Allowances(time, principals_max=10)
    for number in range(100):
        allowances.of(f"address {number}", LIMITS).requests.spend(1000)
    assert len(allowances) == 10


def test_tidying_many_principals_is_spread_over_many_turns(time: Time) -> None:
    allowances = Allowances(time)
    for number in range(5000):
        allowances.of(f"address {number}", None)
    time.seconds += IDLE_SECONDS
    sizes = []
    for _ in range(6):
        sizes.append(len(allowances))
        allowances.tidy()
    assert [before - after for before, after in pairwise(sizes)] == [250] * 5


# -- Several processes -------------------------------------------------------------------------------------------------


def test_each_of_several_processes_grants_its_part_of_every_limit(time: Time) -> None:
    limits = Limits(10.0, 3000, None, 1.0, 5)
    account = Allowances(time, processes=2).of("user", limits)
    assert (account.requests.rate, account.appends.rate, account.reads.rate, account.creates.rate) == (
        5,
        1500,
        None,
        0.5,
    )
    assert account.live_reads.limit_count == 3
    assert account.limits is limits


def test_new_limits_are_divided_too(time: Time) -> None:
    allowances = Allowances(time, processes=4)
    account = allowances.of("user", Limits(10.0, None, None, None, None))
    assert allowances.of("user", Limits(2.0, None, None, None, 1)) is account
    assert account.requests.rate == 0.5
    assert account.live_reads.limit_count == 1
