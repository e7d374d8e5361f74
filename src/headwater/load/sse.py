"""Server-sent events for many readers at once: only as much parsing as the data and the last offset take."""

from headwater.load import messages
from headwater.load.messages import LoadFailed

DATA = b"event: data\ndata:"
CONTROL = b"\n\nevent: control\n"


class EventStream:
    """The response to one live read: takes the bytes of its connection, gives the data of the stream.

    Data counts once a control event has confirmed it: a reader that resumes at the offset of the last control event
    receives everything after it again.
    """

    __slots__ = ("_control", "_is_chunked", "_is_open", "_partial", "_pending", "_undecoded", "is_closed", "is_ended")

    def __init__(self) -> None:
        self.is_ended = False
        """The response is complete, though the stream may continue."""
        self.is_closed = False
        """The stream is closed, and all of it was received."""
        self._is_open = False
        self._is_chunked = False
        self._undecoded = b""
        self._partial = b""
        self._pending = b""
        self._control = b""

    @property
    def has_position(self) -> bool:
        """Whether a control event has arrived."""
        return bool(self._control)

    @property
    def next_offset(self) -> str:
        """The offset at which to resume, from the last control event."""
        # Searched by hand, and only when a reader resumes: parsing JSON would take most of a reader's time.
        return self._control.partition(b'"streamNextOffset"')[2].split(b'"', 2)[1].decode()

    def feed(self, received: bytes) -> bytes:
        """Return the data that these bytes confirm."""
        if self._undecoded:
            received, self._undecoded = self._undecoded + received, b""
        if not self._is_open:
            received = self._open(received)
        usual, received = self._usual(received)
        return usual + self._feed_any(received) if received else usual

    def _usual(self, received: bytes) -> tuple[bytes, bytes]:
        """Return the data of the usual chunks, one line with its control event each, and what follows them.

        Nearly every chunk is a usual one; finding its parts takes a quarter of the time that parsing its lines does.
        """
        if not self._is_chunked or self._partial or self._pending:
            return b"", received
        found, at = b"", 0
        while (line := received.find(b"\r\n", at)) > 0 and received.startswith(DATA, line + 2):
            first = line + 2 + len(DATA)
            last = received.find(b"\n", first)
            control = received.find(CONTROL, last)
            end = received.find(b"\n\n\r\n", control + 2)
            is_usual = last > 0 and control > 0 and end > 0 and int(received[at:line], 16) == end - line
            if (
                not is_usual
                or received.find(b"\ndata:", last, control) > 0
                or received.find(b"\n\n", control + 2) < end
            ):
                break
            data = received[first:last].removeprefix(b" ")
            found = found + data if found else data
            self._take_control(received[control + 2 : end])
            at = end + 4
        return found, received[at:] if at else received

    def _take_control(self, event: bytes) -> None:
        self._control = event
        if b"streamClosed" in event:
            self.is_closed = b'"streamClosed":true' in event.replace(b" ", b"")

    def _feed_any(self, received: bytes) -> bytes:
        if self._is_chunked:
            received = self._decode(received)
        if b"\r" in received:
            received = received.replace(b"\r", b"")
        return self._events(received) if received else b""

    def _open(self, received: bytes) -> bytes:
        """Read the head of the response, and return what follows it."""
        head, end, rest = received.partition(b"\r\n\r\n")
        if not end:
            self._undecoded = received
            return b""
        if messages.status(head) != 200:
            raise LoadFailed(f"a live read was answered with {messages.status(head)}")
        self._is_open = True
        self._is_chunked = messages.CHUNKED.search(head) is not None
        return rest

    def _decode(self, received: bytes) -> bytes:
        """Return the content of the complete chunks."""
        parts, at = [], 0
        while (line := received.find(b"\r\n", at)) >= 0:
            size = int(received[at:line].partition(b";")[0], 16)
            end = line + 2 + size
            if size == 0:
                self.is_ended = True
                break
            if end + 2 > len(received):
                break
            parts.append(received[line + 2 : end])
            at = end + 2
        self._undecoded = received[at:]
        return b"".join(parts) if len(parts) != 1 else parts[0]

    def _events(self, text: bytes) -> bytes:
        if self._partial:
            text, self._partial = self._partial + text, b""
        end = text.rfind(b"\n\n")
        if end < 0:
            self._partial = text
            return b""
        self._partial = text[end + 2 :]
        confirmed = b""
        for event in text[:end].split(b"\n\n"):
            kind = _kind(event)
            if kind == b"data":
                self._pending += _data(event)
            elif kind == b"control":
                self._take_control(event)
                confirmed, self._pending = confirmed + self._pending, b""
        return confirmed


def _kind(event: bytes) -> bytes:
    """Return the type of an event.

    >>> _kind(b"event: data\\ndata:a"), _kind(b"data: a\\nevent:control"), _kind(b": a comment")
    (b'data', b'control', b'')
    """
    line = event[6:] if event.startswith(b"event:") else event.partition(b"\nevent:")[2]
    return line.partition(b"\n")[0].strip()


def _data(event: bytes) -> bytes:
    """Return the data of an event.

    >>> _data(b"event: data\\ndata:a\\ndata: b\\nid: 7")
    b'a\\nb'
    """
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return lines[0] if len(lines) == 1 else b"\n".join(lines)
