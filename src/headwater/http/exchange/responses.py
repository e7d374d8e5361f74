"""Responses that take time: they wait for something to send, or are sent piece by piece."""

from typing import Protocol


class LiveResponse(Protocol):
    """A response that is not complete yet, as its connection and the server drive it."""

    endless: bool
    """Whether it may wait forever for something to send."""

    def tick(self, now: float) -> None:
        """About twice a second: time-outs, heartbeats."""

    def resume(self) -> None:
        """The socket has room again."""

    def finish(self) -> None:
        """End cleanly: the server shuts down."""

    def abandon(self) -> None:
        """The client is gone."""


class StreamedResponse(LiveResponse, Protocol):
    """A response that is sent piece by piece."""

    def begin(self) -> None:
        """Every response before it has been sent: send the head, and start."""
