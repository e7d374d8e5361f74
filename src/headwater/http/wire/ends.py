"""Ends: where in the input a head or a chunked body ends.

The native parser cannot say. It decides what is valid; this only finds where to cut input that is.
"""

import re

EMPTY_LINE = b"\r\n\r\n"
"""The end of a line, and the empty line after it."""
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,16}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})\r\n")
_SIZE_LINE_BYTES = 32
"""How much of a line with a size is looked at; an extension may follow the size."""
_CRLF_BYTES = 2


def end_of_lines(data: bytes, at: int, lines_at: int | None = None) -> int:
    """Where lines that continue at a position end with an empty one, or the input.

    If part of the empty line may have arrived with earlier input, this is the end of the first line instead.

    >>> end_of_lines(b"/1.1\\r\\nHost: a\\r\\n\\r\\nGET /", 0)
    17
    """
    if at < len(EMPTY_LINE) - 1 and (line := data.find(b"\n", at, at + _CRLF_BYTES)) >= 0:
        return line + 1
    end = data.find(EMPTY_LINE, at if lines_at is None else lines_at)
    return len(data) if end < 0 else end + len(EMPTY_LINE)


def _after_whole_chunks(data: bytes, at: int) -> int:
    """Where the chunks end that are whole and plain, quickly: a hostile client may send tens of thousands at once."""
    while (chunk := _CHUNK.match(data, at)) and (chunk_bytes := int(chunk[1], 16)):
        end = chunk.end() + chunk_bytes + _CRLF_BYTES
        if end > len(data):
            break
        at = end
    return at


class ChunkedBody:
    """Follows one chunked body through the input."""

    __slots__ = ("_bytes_left", "_last", "_line")

    def __init__(self) -> None:
        self._bytes_left = 0
        self._line = b""
        self._last = False

    def end(self, data: bytes, at: int) -> int:
        """Where the body ends that continues at a position of the input, or the input."""
        size = len(data)
        while at < size and not self._last:
            if self._bytes_left:
                step = min(self._bytes_left, size - at)
                self._bytes_left -= step
                at += step
            elif not self._line and (after := _after_whole_chunks(data, at)) > at:
                at = after
            else:
                line = data.find(b"\n", at)
                end = size if line < 0 else line + 1
                self._line = (self._line + data[at : min(end, at + _SIZE_LINE_BYTES)])[:_SIZE_LINE_BYTES]
                at = end
                if line >= 0:
                    self._begin_chunk()
        return end_of_lines(data, at, max(at - _CRLF_BYTES, 0)) if self._last else at

    def _begin_chunk(self) -> None:
        size = _SIZE.match(self._line)
        chunk_bytes = 0 if size is None else int(size[0], 16)
        self._line = b""
        self._last = not chunk_bytes
        self._bytes_left = chunk_bytes + _CRLF_BYTES if chunk_bytes else 0
