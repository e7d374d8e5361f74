"""Appends that are made at the same time share a request.

While one request is under way, further appends gather; when it is answered, all of them go together as the next one. No
timer is involved: a lone append is sent at once. An append with a condition goes alone, for the condition is its own.
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
"""What a shared request carries at most, unless a single append is larger."""


@dataclass(frozen=True, slots=True, eq=False)
class Waiting(Generic[W]):
    """An append, and whoever waits for it."""

    piece: EncodedMessages
    content_type: str
    conditions: Conditions
    closed: bool
    waiter: W

    @property
    def alone(self) -> bool:
        return self.closed or not self.conditions.none


class Gathering(Generic[W]):
    """Who sends what, and when: the first to come sends, and whoever is first in the next request sends that."""

    def __init__(self, bytes_max: int = GATHERED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._queue: deque[Waiting[W]] = deque()
        self._busy = False

    def add(self, waiting: Waiting[W]) -> list[Waiting[W]]:
        """What is to be sent now; nothing if a request is under way."""
        self._queue.append(waiting)
        return [] if self._busy else self.next()

    def next(self) -> list[Waiting[W]]:
        """What is to be sent after the request under way was answered; nothing if nothing has gathered."""
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
    """What each append of a shared request is told.

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
