"""How much one micro-batch may contain."""

from typing import NamedTuple

from headwater.lake.scanning import EVER


class TriggerLimits(NamedTuple):
    """The most payload bytes and records that one trigger may read."""

    bytes_max: int = EVER
    records_max: int = EVER

    @property
    def are_reached(self) -> bool:
        return min(self) <= 0

    def fit(self, size: int, records: int) -> bool:
        """Whether this much is within the limits."""
        return size <= self.bytes_max and records <= self.records_max

    def less(self, size: int, records: int) -> "TriggerLimits":
        """What is left of the limits after this much.

        >>> TriggerLimits(100, 10).less(40, 3)
        TriggerLimits(bytes_max=60, records_max=7)
        """
        return TriggerLimits(self.bytes_max - size, self.records_max - records)


UNLIMITED = TriggerLimits()
