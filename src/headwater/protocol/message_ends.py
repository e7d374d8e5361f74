"""Message ends: where each of several messages ends in their concatenation, packed into `bytes`.

Every end is a 32-bit little-endian number: four bytes of memory, where a tuple of integers takes forty. Commands,
images and the state hold the same bytes, so nothing is converted on the way. A single message has no ends: it ends
with its payload.
"""

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate

END_BYTES = 4


def pack(ends: Iterable[int]) -> bytes:
    """The ends as bytes.

    >>> pack([2, 3])
    b'\\x02\\x00\\x00\\x00\\x03\\x00\\x00\\x00'
    """
    return array("I", ends).tobytes()


def unpack(ends: bytes) -> "memoryview[int]":
    """The ends as a sequence of numbers, without a copy.

    >>> list(unpack(pack([2, 3])))
    [2, 3]
    """
    return memoryview(ends).cast("I")


def count(ends: bytes | None) -> int:
    """The number of messages.

    >>> count(None), count(pack([2, 3]))
    (1, 2)
    """
    return 1 if ends is None else len(ends) // END_BYTES


def of(messages: Sequence[bytes]) -> bytes | None:
    """The ends of these messages; None for a single one.

    >>> of([b"ab", b"c"]) == pack([2, 3]), of([b"ab"])
    (True, None)
    """
    return pack(accumulate(map(len, messages))) if len(messages) > 1 else None
