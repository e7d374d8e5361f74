"""Extents: bytes and their place in a stream."""

from typing import NamedTuple


class Extent(NamedTuple):
    """Some bytes of a stream, from an offset on.

    >>> Extent(2, b"cdef").agrees_with(Extent(0, b"abcd")), Extent(2, b"cdef").agrees_with(Extent(4, b"x"))
    (True, False)
    """

    start: int
    data: bytes

    @classmethod
    def before(cls, end: int, data: bytes) -> "Extent":
        return cls(end - len(data), data)

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def since(self, offset: int) -> "Extent":
        """What remains of it when everything before an offset is trimmed."""
        return Extent(max(self.start, offset), self.data[max(0, offset - self.start) :])

    def until(self, offset: int) -> "Extent":
        return Extent(self.start, self.data[: max(0, offset - self.start)])

    def agrees_with(self, other: "Extent") -> bool:
        """Whether both are equal where they overlap."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        return start >= end or self.since(start).until(end).data == other.since(start).until(end).data


NOTHING = Extent(0, b"")
