"""Cuts: where a byte stream is cut within a message that is longer than a page."""


def cut(payload: bytes, offset: int, start: int, end: int) -> int:
    """Where a part ends that begins at `start`, in a message at `offset`: at `end`, or before the character there.

    Every byte is an offset, so any cut is right; but the parts of a text are sent as text, and so are its line ends.

    >>> cut(b"abcdef", 0, 0, 4), cut("größe".encode(), 10, 10, 13), cut(b"ab\\r\\ncd", 0, 0, 3), cut(b"abc", 0, 1, 1)
    (4, 12, 2, 2)
    """
    for at in range(end - offset, max(end - offset - 4, start - offset), -1):
        if payload[at] & 0xC0 != 0x80 and payload[at - 1 : at + 1] != b"\r\n":
            return offset + at
    return max(end, start + 1)
