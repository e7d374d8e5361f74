"""A mapping by number that can be frozen at once, however large it is."""

from collections.abc import Iterator, Mapping, MutableMapping
from itertools import chain
from typing import TypeVar

T = TypeVar("T")

PARTS = 1_024


class Parted(MutableMapping[int, T]):
    """A dictionary in parts. A part that has been frozen is copied before its first change, which is short work.

    Entries have the order of their parts, and within a part that in which they were added.

    >>> numbers = Parted({1: "a", 2: "b"}); frozen = numbers.freeze(); numbers[1] = "c"; del numbers[2]
    >>> list(frozen), dict(numbers)
    ([(1, 'a'), (2, 'b')], {1: 'c'})
    """

    __slots__ = ("_frozen", "_length", "_parts")

    def __init__(self, entries: Mapping[int, T] | None = None) -> None:
        self._parts: list[dict[int, T]] = [{} for _ in range(PARTS)]
        self._frozen: set[int] = set()
        self._length = 0
        self.update(entries or {})

    def freeze(self) -> Iterator[tuple[int, T]]:
        """The entries of this moment, whatever happens to them before they are visited."""
        self._frozen.update(range(PARTS))
        return _visit(self._parts[::-1])

    def _part_to_change(self, number: int) -> dict[int, T]:
        at = number % PARTS
        if at in self._frozen:
            self._parts[at] = self._parts[at].copy()
            self._frozen.discard(at)
        return self._parts[at]

    def __setitem__(self, number: int, value: T) -> None:
        part = self._part_to_change(number)
        self._length -= len(part)
        part[number] = value
        self._length += len(part)

    def __delitem__(self, number: int) -> None:
        if number not in self:
            raise KeyError(number)
        del self._part_to_change(number)[number]
        self._length -= 1

    def __getitem__(self, number: int) -> T:
        return self._parts[number % PARTS][number]

    def get(self, number: int, default: T | None = None) -> T | None:  # type: ignore[override]
        """The entry; without the exception that the general method is made of."""
        return self._parts[number % PARTS].get(number, default)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and number in self._parts[number % PARTS]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._parts)


def _visit(parts: list[dict[int, T]]) -> Iterator[tuple[int, T]]:
    """The entries of the parts, the last part first; each is released once it has been visited, not all at the end."""
    while parts:
        yield from parts.pop().items()
