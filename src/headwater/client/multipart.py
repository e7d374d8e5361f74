"""The parts of a bootstrap, as they come: the snapshot first, then every message behind it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.client import bodies
from headwater.client.errors import ProtocolViolation
from headwater.client.values import START, Chunk, Snapshot
from headwater.client.wire import (
    CONTENT_TYPE,
    INCARNATION,
    NEXT_OFFSET,
    SNAPSHOT_OFFSET,
    STREAM_CLOSED,
    UP_TO_DATE,
    Response,
)
from headwater.protocol import content_types

_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Part:
    """One part, whole."""

    content_type: str
    data: bytes


class PartParser:
    r"""Takes bytes cut anywhere, gives parts.

    >>> parser = PartParser("multipart/mixed; boundary=b")
    >>> parser.feed(b"--b\r\nContent-Type: text/plain\r\n\r\none\r\n-")
    []
    >>> parser.feed(b"-b--\r\n"), parser.ended
    ([Part(content_type='text/plain', data=b'one')], True)
    """

    def __init__(self, content_type: str) -> None:
        found = _BOUNDARY.search(content_type)
        if content_types.media_type(content_type) != "multipart/mixed" or found is None:
            raise ProtocolViolation(f"A bootstrap is multipart/mixed with a boundary, not {content_type!r}.")
        self._delimiter = b"\r\n--" + (found[1] or found[2]).encode("latin-1")
        # The first boundary may stand at the very beginning.
        self._buffer = bytearray(b"\r\n")
        self._searched = 0
        self._inside = False
        self.ended = False

    def feed(self, data: bytes) -> list[Part]:
        """The parts that `data` completes."""
        self._buffer += data
        parts: list[Part] = []
        while not self.ended:
            at = self._buffer.find(self._delimiter, self._searched)
            end = at + len(self._delimiter)
            if at < 0 or len(self._buffer) < end + 2:
                self._searched = max(0, len(self._buffer) - len(self._delimiter) - 2) if at < 0 else at
                break
            if self._inside:
                parts.append(_part(bytes(self._buffer[:at])))
            self.ended = self._buffer[end : end + 2] == b"--"
            # The line end stays: a part without headers begins with it.
            del self._buffer[:end]
            self._inside, self._searched = True, 0
        return parts


def _part(text: bytes) -> Part:
    head, blank, data = text.partition(b"\r\n\r\n")
    if not blank:
        raise ProtocolViolation("A part of the bootstrap has no blank line between its headers and its data.")
    headers: dict[str, str] = {}
    for line in head.split(b"\r\n"):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return Part(headers.get(CONTENT_TYPE, content_types.DEFAULT), data)


def snapshot(part: Part, headers: Mapping[str, str]) -> Snapshot | None:
    """The snapshot in the first part; None if the stream has none."""
    offset = headers.get(SNAPSHOT_OFFSET, START)
    return None if offset == START else Snapshot(part.data, part.content_type, offset)


def whole_bootstrap(response: Response, content_type: str) -> Chunk:
    """A bootstrap that has arrived in full, as one chunk; the type is the stream's, if no message says it."""
    parser = PartParser(response.headers.get(CONTENT_TYPE, ""))
    parts = parser.feed(response.body)
    if not parser.ended or not parts or NEXT_OFFSET not in response.headers:
        raise ProtocolViolation("The bootstrap is cut short.")
    first, *messages = parts
    content_type = messages[0].content_type if messages else content_type
    closed = response.flag(STREAM_CLOSED)
    return Chunk(
        data=bodies.join([bodies.EncodedMessages(part.data) for part in messages], content_type) if messages else b"",
        next_offset=response.headers[NEXT_OFFSET],
        content_type=content_type,
        up_to_date=response.flag(UP_TO_DATE) or closed,
        closed=closed,
        incarnation=response.headers.get(INCARNATION),
        snapshot=snapshot(first, response.headers),
    )
