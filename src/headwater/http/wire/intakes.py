"""Intakes: how a body is received that is too large to be taken without asking.

Such a body is judged by the head of its request, before it is received. What it takes meanwhile, memory or a place in
line, is held until its request has been answered.
"""

from collections.abc import Callable
from typing import Protocol

from headwater.protocol.refusals import Refusal

SMALL_BODY_BYTES = 64 * 1024
"""Bodies up to this size are taken without asking: they mostly arrive together with their heads."""

Refuse = Callable[[Refusal], None]


class Intake(Protocol):
    """What one body holds."""

    @property
    def full(self) -> bool:
        """Whether the client has to wait before it sends more."""

    def begin(self, size: int | None, refuse: Refuse) -> None:
        """Receive a body of this size, None if that is unknown; or refuse it, now or later."""

    def extend(self, size: int) -> bool:
        """A body of unknown size has grown to this; returns whether it may go on."""

    def abandon(self) -> None:
        """The request was refused, or its client is gone before its work began."""

    def release(self) -> None:
        """The request has been answered, or the client has disconnected."""
