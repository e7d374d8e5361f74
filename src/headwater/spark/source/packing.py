"""Packing: work of known weight becomes partitions that are neither tiny nor huge."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def room_bytes(total: int, partition_bytes: int, partitions_min: int) -> int:
    """How much goes into a partition so that there are enough of them.

    >>> room_bytes(1000, 300, 1), room_bytes(1000, 300, 10)
    (300, 100)
    """
    return max(min(partition_bytes, -(-total // partitions_min)), 1)


def pack(pieces: Iterable[T], weigh: Callable[[T], int], room: int, pieces_max: int | None = None) -> list[list[T]]:
    """Neighbouring pieces put together as long as they fit; a piece that is too large is alone.

    >>> pack([4, 4, 9, 1, 1], int, 8)
    [[4, 4], [9], [1, 1]]
    """
    packed: list[list[T]] = []
    left = 0
    for piece in pieces:
        weight = weigh(piece)
        full = pieces_max is not None and packed and len(packed[-1]) >= pieces_max
        if not packed or weight > left or full:
            packed.append([])
            left = room
        packed[-1].append(piece)
        left -= weight
    return packed


def parts_of(weight: int, room: int) -> int:
    """Into how many parts a piece must be cut to fit.

    >>> parts_of(8, 8), parts_of(9, 8), parts_of(0, 8)
    (1, 2, 1)
    """
    return max(-(-weight // room), 1)


def share(whole: Sequence[T], index: int, of: int) -> Sequence[T]:
    """The part with this index when a sequence is cut into so many.

    >>> [share("abcde", index, 3) for index in range(3)]
    ['a', 'bc', 'de']
    """
    return whole[len(whole) * index // of : len(whole) * (index + 1) // of]
