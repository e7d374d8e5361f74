"""Server-sent events from bytes that are cut anywhere, with any line end and with comments.

An event ends with a blank line; one that a broken connection leaves unfinished is dropped.
"""

from dataclasses import dataclass

from headwater.client.errors import ProtocolViolation

EVENT_BYTES_MAX = 64 * 1024 * 1024
"""The largest event; anything larger means that the server is broken, or is not one."""


@dataclass(frozen=True, slots=True)
class SentEvent:
    """One event; several `data:` lines are joined by line feeds."""

    name: str
    data: bytes
    id: str | None = None


class EventParser:
    r"""Takes bytes, returns events.

    >>> parser = EventParser()
    >>> parser.feed(b": hello\r\nevent: data\r\ndata:a\rdata: b\n")
    []
    >>> parser.feed(b"\n")
    [SentEvent(name='data', data=b'a\nb', id=None)]
    """

    def __init__(self, event_bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._event_bytes_max = event_bytes_max
        self._partial = bytearray()
        self._after_cr = False
        self._at_start = True
        self._data: list[bytes] = []
        self._size = 0
        self._name = ""
        self._id: str | None = None

    def feed(self, data: bytes) -> list[SentEvent]:
        """The events that `data` completes."""
        if self._after_cr and data:
            # The line feed of a CRLF that was cut in two does not end another line.
            data = data[1:] if data[:1] == b"\n" else data
            self._after_cr = False
        if not data:
            return []
        self._after_cr = data[-1:] == b"\r"
        lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events: list[SentEvent] = []
        for line in lines[:-1]:
            whole = bytes(self._partial) + line if self._partial else line
            self._partial.clear()
            self._line(whole, events)
        self._partial += lines[-1]
        if len(self._partial) + self._size > self._event_bytes_max:
            raise ProtocolViolation(f"An event is larger than {self._event_bytes_max} bytes.")
        return events

    def _line(self, line: bytes, events: list[SentEvent]) -> None:
        if self._at_start:
            line = line.removeprefix(b"\xef\xbb\xbf")
            self._at_start = False
        if not line:
            self._dispatch(events)
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._size += len(value) + 1
        elif field == b"event":
            self._name = value.decode(errors="replace")
        elif field == b"id" and b"\0" not in value:
            self._id = value.decode(errors="replace")

    def _dispatch(self, events: list[SentEvent]) -> None:
        # An event with a name but no data is kept: an empty control event is an error that must be noticed.
        if self._data or self._name:
            events.append(SentEvent(self._name or "message", b"\n".join(self._data), self._id))
        self._data, self._size, self._name, self._id = [], 0, "", None
