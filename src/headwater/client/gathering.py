"""Concurrent appends share a request.

While one request is in flight, further appends gather; when it is answered, they are sent together as the next one.
There is no timer: a single append is sent at once. An append with a condition is sent alone, because the condition is
only its own.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from headwater.client.bodies import EncodedMessages
from headwater.client.operations import Conditions
from headwater.client.values import Appended

W = TypeVar("W")

GATHERED_BYTES_MAX = 1024 * 1024
"""The largest shared request, unless a single append is larger."""


@dataclass(frozen=True, slots=True, eq=False)
class Waiting(Generic[W]):
    """An append, and the caller that waits for it."""

    piece: EncodedMessages
    content_type: str
    conditions: Conditions
    closed: bool
    waiter: W

    @property
    def alone(self) -> bool:
        return self.closed or not self.conditions.none


class Gathering(Generic[W]):
    """The appends of the next request; the caller of its first append sends it."""

    def __init__(self, bytes_max: int = GATHERED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._queue: deque[Waiting[W]] = deque()
        self._busy = False

    def add(self, waiting: Waiting[W]) -> list[Waiting[W]]:
        """Add an append, and return what to send now: nothing while a request is in flight."""
        self._queue.append(waiting)
        return [] if self._busy else self.next()

    def next(self) -> list[Waiting[W]]:
        """What to send after the request in flight was answered: nothing if no append has gathered."""
        batch: list[Waiting[W]] = []
        size = 0
        while self._queue:
            first = self._queue[0]
            size += len(first.piece.data) + 1
            joins = not first.alone and not batch[0].alone and size <= self._bytes_max if batch else True
            if not joins or (batch and batch[0].content_type != first.content_type):
                break
            batch.append(self._queue.popleft())
        self._busy = bool(batch)
        return batch


def shares(pieces: Sequence[EncodedMessages], appended: Appended) -> list[Appended]:
    """The result of each append of a shared request.

    >>> pieces = [EncodedMessages(b"1,2", 2), EncodedMessages(b"3")]
    >>> [share.record_start for share in shares(pieces, Appended("9", False, 5, 8))]
    [5, 7]
    """
    if appended.record_start is None:
        return [appended] * len(pieces)
    found, at = [], appended.record_start
    for piece in pieces:
        found.append(Appended(appended.next_offset, appended.duplicate, at, at + piece.messages))
        at += piece.messages
    return found
