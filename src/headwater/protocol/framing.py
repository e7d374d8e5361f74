"""Frames of an append-batch: a four-byte big-endian length, then that many bytes."""

from headwater.protocol.limits import BATCH_FRAMES_MAX
from headwater.protocol.refusals import Code, Refusal

LENGTH_BYTES = 4


def split(body: bytes) -> list[bytes] | Refusal:
    r"""The frames of a batch, or why it is malformed.

    >>> split(b"\0\0\0\1a\0\0\0\2bc")
    [b'a', b'bc']
    """
    frames: list[bytes] = []
    at = 0
    while at < len(body):
        start = at + LENGTH_BYTES
        length = int.from_bytes(body[at:start], "big")
        if start > len(body) or start + length > len(body):
            return Refusal(Code.BAD_REQUEST, f"Frame {len(frames)} of the batch is cut short.")
        if length == 0:
            return Refusal(Code.BAD_REQUEST, f"Frame {len(frames)} of the batch is empty.")
        if len(frames) == BATCH_FRAMES_MAX:
            return Refusal(Code.TOO_LARGE, f"The batch has more than {BATCH_FRAMES_MAX} frames.")
        at = start + length
        frames.append(body[start:at])
    return frames or Refusal(Code.EMPTY_BODY, "The batch has no frames.")
