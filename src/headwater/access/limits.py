"""How much a principal may do in a second, and how much a bucket may hold. None is no limit."""

from math import ceil
from typing import NamedTuple

from headwater.access.document import BucketTable, LimitsTable
from headwater.units import parse_size


class Limits(NamedTuple):
    """What one principal may do."""

    requests_per_second: float | None
    append_bytes_per_second: int | None
    read_bytes_per_second: int | None
    creates_per_second: float | None
    live_reads: int | None

    def shared(self, processes: int) -> "Limits":
        """The part of each of several processes, among which the connections of a principal are spread.

        >>> tuple(Limits(3.0, 100, None, None, 5).shared(2))
        (1.5, 50, None, None, 3)
        """
        requests, appends, reads, creates, live_reads = self
        return Limits(
            None if requests is None else requests / processes,
            None if appends is None else ceil(appends / processes),
            None if reads is None else ceil(reads / processes),
            None if creates is None else creates / processes,
            None if live_reads is None else ceil(live_reads / processes),
        )


class Quota(NamedTuple):
    """What one bucket may hold."""

    streams: int | None
    stored_bytes: int | None


def parse_limits(table: LimitsTable) -> Limits:
    """Return the limits of a table; `ValueError` with a clause that names the field."""
    return Limits(
        _positive("requests_per_second", table.requests_per_second),
        _size("append_bytes_per_second", table.append_bytes_per_second),
        _size("read_bytes_per_second", table.read_bytes_per_second),
        _positive("creates_per_second", table.creates_per_second),
        _count("live_reads", table.live_reads),
    )


def parse_quota(table: BucketTable) -> Quota:
    """Return the quota of a table; `ValueError` with a clause that names the field."""
    return Quota(_count("streams", table.streams), _size("stored_bytes", table.stored_bytes, least=0))


def _positive(field: str, value: float | None) -> float | None:
    if value is None or 0 < value < float("inf"):
        return value
    raise ValueError(f"has {field} = {value}; write a number above 0, or leave it out for no limit")


def _count(field: str, value: int | None) -> int | None:
    if value is None or value >= 0:
        return value
    raise ValueError(f"has {field} = {value}; write 0 or more, or leave it out for no limit")


def _size(field: str, value: int | str | None, least: int = 1) -> int | None:
    if value is None:
        return None
    try:
        size = parse_size(value) if isinstance(value, str) else value
    except ValueError:
        size = -1
    if size < least:
        raise ValueError(f"has {field} = {value!r}; write bytes as in 1048576 or '1 MiB', or leave it out for no limit")
    return size
