"""Cuts: where a byte stream is cut within a message that is longer than a page."""

from itertools import chain

_CHARACTER_BYTES_MAX = 4


def cut(payload: bytes, offset: int, start: int, end: int) -> int:
    """Where a part ends that begins at `start`, in a message at `offset`: at `end`, or before the character there.

    Every byte is an offset, so any cut is right; but the parts of a text are sent as text, and so are its line ends.
    A part whose first character does not fit is as long as that character.

    >>> cut(b"abcdef", 0, 0, 4), cut("größe".encode(), 10, 10, 13), cut(b"ab\\r\\ncd", 0, 0, 3), cut(b"abc", 0, 1, 1)
    (4, 12, 2, 2)
    >>> cut("€uro".encode(), 0, 0, 1), cut("a😀".encode(), 10, 11, 14), cut(b"\\r\\n", 0, 0, 1)
    (3, 15, 2)

    What is not UTF-8 is cut anywhere.

    >>> cut(b"\\x80" * 9, 0, 0, 5)
    5
    """
    first, last = start - offset, max(end - offset, start - offset + 1)
    before = range(last, max(last - _CHARACTER_BYTES_MAX, first), -1)
    after = range(last + 1, min(last + _CHARACTER_BYTES_MAX, len(payload) + 1))
    for at in chain(before, after):
        if _is_between_characters(payload, at):
            return offset + at
    return offset + last


def _is_between_characters(payload: bytes, at: int) -> bool:
    if at == len(payload):
        return True
    return payload[at] & 0xC0 != 0x80 and payload[at - 1 : at + 1] != b"\r\n"
