"""Appends in memory, and what they are charged."""

from collections.abc import Sequence

import msgspec

from headwater.protocol import message_ends
from headwater.protocol.producers import Producer

HOT_APPEND_BYTES = 384
"""What an append is charged beside its payload: the objects that hold it, and most of a producer's name."""


def hot_cost(payload_bytes: int, appends: int, messages: int) -> int:
    """The memory that hot appends are charged. It is linear, so that the cost of any run of them is known at once.

    >>> hot_cost(20, appends=1, messages=1), hot_cost(10_000, appends=1, messages=10_000)
    (408, 50384)
    """
    return payload_bytes + appends * HOT_APPEND_BYTES + messages * message_ends.END_BYTES


class Hot(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One append in memory; `ends` are the packed ends of several messages in the payload."""

    offset: int
    payload: bytes
    ends: bytes | None
    record: int
    position: int
    at: int
    producer: Producer | None

    @property
    def end(self) -> int:
        return self.offset + len(self.payload)

    @property
    def messages(self) -> int:
        return message_ends.count(self.ends)

    @property
    def message_ends(self) -> Sequence[int]:
        """Where each message ends in the payload."""
        return (len(self.payload),) if self.ends is None else message_ends.unpack(self.ends)
