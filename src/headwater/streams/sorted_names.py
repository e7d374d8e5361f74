"""A sorted set of names in blocks: adding or removing costs one block, walking costs what is walked."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

BLOCK_NAMES_MAX = 1024


class SortedNames:
    """Names in order; a million of them are a thousand blocks.

    >>> names = SortedNames(["b", "a"]); names.add("c"); names.remove("a"); list(names.after("", 9))
    ['b', 'c']
    """

    __slots__ = ("_blocks", "_firsts")

    def __init__(self, names: Iterable[str] = ()) -> None:
        ordered, size = sorted(names), BLOCK_NAMES_MAX // 2
        self._blocks = [ordered[at : at + size] for at in range(0, len(ordered), size)]
        self._firsts = [block[0] for block in self._blocks]

    def add(self, name: str) -> None:
        """Add a new name."""
        if not self._blocks:
            self._blocks, self._firsts = [[name]], [name]
            return
        index = max(bisect_right(self._firsts, name) - 1, 0)
        block = self._blocks[index]
        insort(block, name)
        self._firsts[index] = block[0]
        if len(block) > BLOCK_NAMES_MAX:
            half = len(block) // 2
            self._blocks.insert(index + 1, block[half:])
            self._firsts.insert(index + 1, block[half])
            del block[half:]

    def remove(self, name: str) -> None:
        """Remove an existing name."""
        index = bisect_right(self._firsts, name) - 1
        block = self._blocks[index]
        at = bisect_left(block, name)
        assert block[at] == name
        del block[at]
        if block:
            self._firsts[index] = block[0]
        else:
            del self._blocks[index], self._firsts[index]

    def after(self, name: str, limit: int) -> Iterator[str]:
        """At most `limit` names that sort after `name`, in order."""
        index = max(bisect_right(self._firsts, name) - 1, 0)
        for block in self._blocks[index:]:
            at = bisect_right(block, name)
            for found in block[at : at + limit]:
                yield found
                limit -= 1
            if limit <= 0:
                return
