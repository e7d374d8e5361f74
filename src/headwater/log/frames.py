"""Frames: checked, aligned records, of which journal files and images are made.

    magic 4 | crc 4 | length 4 | entries 4 | number 8 | payload | zeros up to a multiple of 64

`number` says where the frame belongs: the position of a batch's first command, or the ordinal of an image's piece. The
CRC-32C covers everything after itself and starts from the file's own seed, so no payload and no other file can forge a
frame.
"""

import struct
from typing import NamedTuple

from crc32c import crc32c

MAGIC = b"HWf1"
ALIGNMENT = 64
HEADER = struct.Struct("<4sIIIQ")
_CHECKED = struct.Struct("<IIQ")


class Frame(NamedTuple):
    """A whole frame, as it was read."""

    number: int
    entries: int
    payload: bytes
    end: int


def seed(*parts: str | int) -> int:
    """The CRC that a file's frames start from, derived from what identifies the file."""
    return crc32c("/".join(map(str, parts)).encode())


def encode(payload: bytes, number: int, entries: int, seed: int) -> list[bytes]:
    """The parts of a frame, to be written in this order."""
    checked = _CHECKED.pack(len(payload), entries, number)
    crc = crc32c(payload, crc32c(checked, seed))
    padding = -(HEADER.size + len(payload)) % ALIGNMENT
    return [b"%b%b%b" % (MAGIC, crc.to_bytes(4, "little"), checked), payload, bytes(padding)]


def size(payload_bytes: int) -> int:
    """The size of a frame with a payload of this size."""
    return -(-(HEADER.size + payload_bytes) // ALIGNMENT) * ALIGNMENT


def decode(data: bytes | memoryview, at: int, seed: int) -> Frame | None:
    """The frame at `at`, or None if there is no whole one."""
    if len(data) - at < HEADER.size:
        return None
    magic, crc, length, entries, number = HEADER.unpack_from(data, at)
    start = at + HEADER.size
    if magic != MAGIC or len(data) - start < length:
        return None
    view = memoryview(data)
    if crc32c(view[start : start + length], crc32c(view[at + 8 : start], seed)) != crc:
        return None
    return Frame(number, entries, bytes(view[start : start + length]), at + size(length))


def find(data: bytes, at: int, seed: int) -> Frame | None:
    """The first whole frame at an aligned place at or after `at`."""
    while (at := data.find(MAGIC, at)) >= 0:
        if at % ALIGNMENT == 0 and (frame := decode(data, at, seed)) is not None:
            return frame
        at += 1
    return None
