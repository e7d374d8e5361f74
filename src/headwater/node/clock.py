"""The node's clock: the wall clock at the start, advanced by elapsed time and slewed slowly."""

import time

SLEW_US_PER_SECOND = 500
"""How fast it follows a stepped wall clock: half a millisecond per second, so that a step expires nothing."""

SLEW_EVERY_US = 1_000_000

ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's monotonic clock stands still while the machine is suspended; this one does not."""


class Clock:
    """Microseconds since 1970 that never jump and never go back."""

    def __init__(self) -> None:
        self._offset = time.time_ns() // 1000 - _elapsed_us()
        self._slewed_at = _elapsed_us()

    def now(self) -> int:
        elapsed = time.clock_gettime_ns(ELAPSED) // 1000
        if elapsed - self._slewed_at >= SLEW_EVERY_US:
            self._slew(elapsed)
        return elapsed + self._offset

    def _slew(self, elapsed: int) -> None:
        allowed = SLEW_US_PER_SECOND * (elapsed - self._slewed_at) // 1_000_000
        wanted = time.time_ns() // 1000 - elapsed - self._offset
        self._offset += max(-allowed, min(allowed, wanted))
        self._slewed_at = elapsed


def _elapsed_us() -> int:
    return time.clock_gettime_ns(ELAPSED) // 1000
