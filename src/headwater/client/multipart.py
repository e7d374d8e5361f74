"""The parts of a bootstrap, as they arrive: the snapshot first, then every message after it."""

import re
from dataclasses import dataclass

from headwater.client import bodies
from headwater.client.errors import ProtocolViolation
from headwater.client.values import START, Chunk, Snapshot
from headwater.client.wire import Response
from headwater.protocol import content_types, headers

_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BodyPart:
    """One complete part."""

    content_type: str
    data: bytes


class PartParser:
    r"""Takes bytes cut anywhere, returns complete parts.

    >>> parser = PartParser("multipart/mixed; boundary=b")
    >>> parser.feed(b"--b\r\nContent-Type: text/plain\r\n\r\none\r\n-")
    []
    >>> parser.feed(b"-b--\r\n"), parser.ended
    ([BodyPart(content_type='text/plain', data=b'one')], True)
    """

    def __init__(self, content_type: str) -> None:
        found = _BOUNDARY.search(content_type)
        if content_types.media_type(content_type) != "multipart/mixed" or found is None:
            raise ProtocolViolation(f"A bootstrap is multipart/mixed with a boundary, not {content_type!r}.")
        self._delimiter = b"\r\n--" + (found[1] or found[2]).encode("latin-1")
        # The first boundary may be at the very beginning.
        self._buffer = bytearray(b"\r\n")
        self._searched = 0
        self._inside = False
        self.ended = False

    def feed(self, data: bytes) -> list[BodyPart]:
        """The parts that `data` completes."""
        self._buffer += data
        parts: list[BodyPart] = []
        while not self.ended:
            at = self._buffer.find(self._delimiter, self._searched)
            end = at + len(self._delimiter)
            if at < 0 or len(self._buffer) < end + 2:
                self._searched = max(0, len(self._buffer) - len(self._delimiter) - 2) if at < 0 else at
                break
            if self._inside:
                parts.append(_part(bytes(self._buffer[:at])))
            self.ended = self._buffer[end : end + 2] == b"--"
            # The line end stays in the buffer: a part without headers begins with it.
            del self._buffer[:end]
            self._inside, self._searched = True, 0
        return parts


def _part(text: bytes) -> BodyPart:
    head, blank, data = text.partition(b"\r\n\r\n")
    if not blank:
        raise ProtocolViolation("A part of the bootstrap has no blank line between its headers and its data.")
    found: dict[str, str] = {}
    for line in head.split(b"\r\n"):
        name, _, value = line.decode("latin-1").partition(":")
        found[name.strip().lower()] = value.strip()
    return BodyPart(found.get(headers.CONTENT_TYPE.lower, content_types.DEFAULT), data)


def snapshot(part: BodyPart, response: Response) -> Snapshot | None:
    """The snapshot in the first part; None if the stream has none."""
    offset = response.header(headers.STREAM_SNAPSHOT_OFFSET) or START
    return None if offset == START else Snapshot(part.data, part.content_type, offset)


def whole_bootstrap(response: Response, content_type: str) -> Chunk:
    """A complete bootstrap as one chunk; `content_type` is the stream's, for a bootstrap without messages."""
    parser = PartParser(response.header(headers.CONTENT_TYPE) or "")
    parts = parser.feed(response.body)
    next_offset = response.header(headers.STREAM_NEXT_OFFSET)
    if not parser.ended or not parts or next_offset is None:
        raise ProtocolViolation("The bootstrap is incomplete.")
    first, *messages = parts
    content_type = messages[0].content_type if messages else content_type
    closed = response.flag(headers.STREAM_CLOSED)
    encoded = [bodies.EncodedMessages(part.data) for part in messages]
    return Chunk(
        data=bodies.join(encoded, content_type) if encoded else b"",
        next_offset=next_offset,
        content_type=content_type,
        up_to_date=response.flag(headers.STREAM_UP_TO_DATE) or closed,
        closed=closed,
        incarnation=response.header(headers.STREAM_INCARNATION),
        snapshot=snapshot(first, response),
    )
