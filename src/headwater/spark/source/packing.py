"""Packing work of known weight into partitions that are neither tiny nor huge."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

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
