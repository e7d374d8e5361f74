"""The node's clock follows elapsed time, and a stepped wall clock only slowly."""

import time
from types import SimpleNamespace

import pytest

from headwater.node import clock
from headwater.node.clock import SLEW_US_PER_SECOND, Clock

SECOND = 1_000_000_000


class Times(SimpleNamespace):
    """The machine's clocks, in nanoseconds."""

    wall: int = 1_700_000_000 * SECOND
    elapsed: int = 50 * SECOND

    def pass_seconds(self, seconds: int) -> None:
        self.wall += seconds * SECOND
        self.elapsed += seconds * SECOND

    def time_ns(self) -> int:
        return self.wall

    def clock_gettime_ns(self, _: int) -> int:
        return self.elapsed


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    times = Times()
    monkeypatch.setattr(clock, "time", times)
    return times


def test_it_advances_with_elapsed_time_however_long_a_suspension_lasts(times: Times) -> None:
    node = Clock()
    before = node.now()
    times.pass_seconds(3600)
    assert node.now() - before == 3600 * 1_000_000


@pytest.mark.parametrize("step", [-1000, 1000])
def test_it_follows_a_stepped_wall_clock_slowly_and_never_goes_back(times: Times, step: int) -> None:
    node = Clock()
    before = node.now()
    times.wall += step * SECOND
    times.pass_seconds(10)
    drift = node.now() - before - 10 * 1_000_000
    assert drift == 10 * SLEW_US_PER_SECOND * (1 if step > 0 else -1)


def test_on_linux_it_counts_the_time_that_the_machine_is_suspended() -> None:
    if hasattr(time, "CLOCK_BOOTTIME"):
        assert clock.ELAPSED == time.CLOCK_BOOTTIME
