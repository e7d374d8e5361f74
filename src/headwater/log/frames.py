"""Frames: checked, aligned records, of which journal files and images are made.

    magic 4 | head crc 4 | crc 4 | length 4 | entries 4 | number 8 | payload | zeros up to a multiple of 64

`number` says where the frame belongs: the position of a batch's first command, or the ordinal of an image's piece. The
first CRC-32C covers length, entries and number; the second one continues it over the payload. They start from the
file's own seed, so no payload and no other file can forge a frame, nor a head: bytes that only look like a head are
recognised without reading the payload that they announce.
"""

import struct
from typing import NamedTuple

from crc32c import crc32c

MAGIC = b"HWf2"
ALIGNMENT = 64
HEADER = struct.Struct("<4sIIIIQ")
_CHECKED = struct.Struct("<IIQ")
_CHECKED_AT = HEADER.size - _CHECKED.size


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
    head_crc = crc32c(checked, seed)
    crc = crc32c(payload, head_crc)
    padding = -(HEADER.size + len(payload)) % ALIGNMENT
    return [HEADER.pack(MAGIC, head_crc, crc, len(payload), entries, number), payload, bytes(padding)]


def size(payload_bytes: int) -> int:
    """The size of a frame with a payload of this size."""
    return -(-(HEADER.size + payload_bytes) // ALIGNMENT) * ALIGNMENT


def payload_bytes(data: bytes | memoryview, at: int, seed: int) -> int | None:
    """How long the payload is whose frame has its head at `at`; None if there is no head."""
    if len(data) - at < HEADER.size:
        return None
    magic, head_crc, _, length, _, _ = HEADER.unpack_from(data, at)
    if magic != MAGIC or crc32c(memoryview(data)[at + _CHECKED_AT : at + HEADER.size], seed) != head_crc:
        return None
    assert isinstance(length, int)
    return length


def decode(data: bytes | memoryview, at: int, seed: int) -> Frame | None:
    """The frame at `at`, or None if there is no whole one."""
    length = payload_bytes(data, at, seed)
    start = at + HEADER.size
    if length is None or len(data) - start < length:
        return None
    _, head_crc, crc, _, entries, number = HEADER.unpack_from(data, at)
    payload = memoryview(data)[start : start + length]
    return Frame(number, entries, bytes(payload), at + size(length)) if crc32c(payload, head_crc) == crc else None


def find(data: bytes, at: int, seed: int) -> Frame | None:
    """The first whole frame at an aligned place at or after `at`, in time that grows with the size of the data.

    Whole heads do not overlap with the payloads of others, so every byte is part of at most one payload that is read.
    """
    while (at := data.find(MAGIC, at)) >= 0:
        if at % ALIGNMENT:
            at += -at % ALIGNMENT
            continue
        if (frame := decode(data, at, seed)) is not None:
            return frame
        at += ALIGNMENT
    return None
