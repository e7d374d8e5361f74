"""The node's clock: the wall clock at the start, advanced by the monotonic clock and slewed slowly."""

import time

SLEW_US_PER_SECOND = 500
"""How fast it follows a stepped wall clock: half a millisecond per second, so that a step expires nothing."""


class Clock:
    """Microseconds since 1970 that never jump and never go back."""

    def __init__(self) -> None:
        self._offset = time.time_ns() // 1000 - time.monotonic_ns() // 1000
        self._slewed_at = time.monotonic_ns() // 1000

    def now(self) -> int:
        monotonic = time.monotonic_ns() // 1000
        if monotonic - self._slewed_at >= 1_000_000:
            self._slew(monotonic)
        return monotonic + self._offset

    def _slew(self, monotonic: int) -> None:
        allowed = SLEW_US_PER_SECOND * (monotonic - self._slewed_at) // 1_000_000
        wanted = time.time_ns() // 1000 - monotonic - self._offset
        self._offset += max(-allowed, min(allowed, wanted))
        self._slewed_at = monotonic
