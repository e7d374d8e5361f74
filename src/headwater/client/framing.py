"""Messages in a byte stream: each after its length, four bytes, big-endian.

A byte stream has no message boundaries. To keep them, a writer appends `frame(message)`, and a reader feeds what it
reads to a `Deframer`, which accepts bytes cut anywhere. Batches of appends are framed the same way.
"""

from headwater.client.errors import ProtocolViolation
from headwater.protocol.framing import LENGTH_BYTES

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
"""The longest message; a larger length means that the stream is not framed."""


def frame(message: bytes) -> bytes:
    r"""A message after its length.

    >>> frame(b"abc")
    b'\x00\x00\x00\x03abc'
    """
    return len(message).to_bytes(LENGTH_BYTES, "big") + message


class Deframer:
    r"""Takes bytes cut anywhere, returns complete messages.

    >>> deframer = Deframer()
    >>> deframer.feed(b"\0\0\0\3ab"), deframer.feed(b"c\0\0"), deframer.waiting_bytes
    ([], [b'abc'], 2)
    """

    def __init__(self, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self._message_bytes_max = message_bytes_max
        self._buffer = bytearray()

    @property
    def waiting_bytes(self) -> int:
        """How much has arrived of a message that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that `data` completes."""
        self._buffer += data
        messages: list[bytes] = []
        at = 0
        while len(self._buffer) - at >= LENGTH_BYTES:
            start = at + LENGTH_BYTES
            length = int.from_bytes(self._buffer[at:start], "big")
            if length > self._message_bytes_max:
                raise ProtocolViolation(
                    f"A frame announces {length} bytes; the stream is not framed, or reading began within a message."
                )
            if len(self._buffer) < start + length:
                break
            at = start + length
            messages.append(bytes(self._buffer[start:at]))
        del self._buffer[:at]
        return messages
