"""A lake with a long history, and dictionaries that count how much of it is looked at."""

from collections.abc import Iterator
from typing import Any

from headwater.streams.cold import ALL
from headwater.streams.parted import Parted
from headwater.streams.segments import DeadRows, Segment
from headwater.streams.state import State


class CountedParts(Parted[Any]):
    """Counts the entries that are visited."""

    seen = 0

    def __iter__(self) -> Iterator[int]:
        for key in super().__iter__():
            self.seen += 1
            yield key


class Counted(dict[int, Any]):
    """Counts the entries that are looked at."""

    seen = 0

    def __iter__(self) -> Iterator[int]:
        for key in super().__iter__():
            self.seen += 1
            yield key

    def keys(self) -> Any:
        return list(self)

    def values(self) -> Any:
        return [super(Counted, self).__getitem__(key) for key in self]

    def items(self) -> Any:
        return [(key, super(Counted, self).__getitem__(key)) for key in self]

    def get(self, key: int, default: Any = None) -> Any:
        self.seen += 1
        return super().get(key, default)

    def __getitem__(self, key: int) -> Any:
        self.seen += 1
        return super().__getitem__(key)


def with_history(lives: int, segments: int) -> State:
    """A state whose lake has the rows of many deleted streams; as nothing is flushed, nothing will be compacted."""
    state = State("journal")
    cold = state.cold
    for number in range(segments):
        segment = Segment(f"0000000000{number:06}", number + 1, number + 1, 0, 0, "b/a", "b/z", 9, 9, 99, 9, 9)
        cold.hold(segment, 1)
    for incarnation in range(1, lives + 1):
        cold.hide(f"b/{incarnation}", incarnation, ALL, [DeadRows(incarnation % segments + 1, incarnation % 9, 1)])
    state.position = lives + segments
    return state
