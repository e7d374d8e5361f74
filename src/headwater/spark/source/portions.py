"""Portions of a read: how much a micro-batch and a partition contain, and fetching the next portion ahead."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

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


T = TypeVar("T")


def capacity_bytes(total: int, partition_bytes: int, partitions_min: int) -> int:
    """How much to put into a partition so that there are at least `partitions_min` of them.

    >>> capacity_bytes(1000, 300, 1), capacity_bytes(1000, 300, 10)
    (300, 100)
    """
    return max(min(partition_bytes, -(-total // partitions_min)), 1)


def pack(items: Iterable[T], weigh: Callable[[T], int], capacity: int) -> list[list[T]]:
    """Groups of neighbouring items that fit into `capacity`; an item that is too heavy gets a group to itself.

    >>> pack([4, 4, 9, 1, 1], int, 8)
    [[4, 4], [9], [1, 1]]
    """
    groups: list[list[T]] = []
    left = 0
    for item in items:
        weight = weigh(item)
        if not groups or weight > left:
            groups.append([])
            left = capacity
        groups[-1].append(item)
        left -= weight
    return groups


def parts_needed(weight: int, capacity: int) -> int:
    """Into how many parts an item must be cut for each to fit.

    >>> parts_needed(8, 8), parts_needed(9, 8), parts_needed(0, 8)
    (1, 2, 1)
    """
    return max(-(-weight // capacity), 1)


def share(whole: Sequence[T], index: int, of: int) -> Sequence[T]:
    """The part number `index` of a sequence that is cut into `of` parts.

    >>> [share("abcde", index, 3) for index in range(3)]
    ['a', 'bc', 'de']
    """
    return whole[len(whole) * index // of : len(whole) * (index + 1) // of]


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items; a thread fetches the next one while the caller processes the current one.

    >>> list(read_ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    with ThreadPoolExecutor(1, "read-ahead") as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
