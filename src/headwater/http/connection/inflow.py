"""Inflow: how much of a client's input is taken, and when."""

import asyncio
from collections.abc import Callable


class Inflow:
    """Pauses and resumes the input of one connection."""

    __slots__ = ("_continue", "_turn", "_unmuting", "muted", "paused")

    def __init__(self, go_on: Callable[[], None]) -> None:
        self._continue = go_on
        self._turn: asyncio.Handle | None = None
        self.paused = False
        """Whether nothing is read from the socket."""
        self.muted = False
        """Whether nothing is taken for a while, because the client has used more than its share."""
        self._unmuting: asyncio.TimerHandle | None = None

    def steer(self, transport: asyncio.Transport, *, has_room: bool, has_rest: bool) -> None:
        """Continue with input that has arrived in another turn of the event loop; without such input, read more."""
        if has_rest and has_room and self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)
        paused = has_rest or not has_room
        if paused != self.paused and not transport.is_closing():
            self.paused = paused
            if paused:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def mute(self, seconds: float) -> None:
        """Take nothing for a while."""
        if not self.muted:
            self.muted = True
            self._unmuting = asyncio.get_running_loop().call_later(seconds, self._unmute)

    def _unmute(self) -> None:
        self.muted = False
        self._continue()

    def _take_turn(self) -> None:
        self._turn = None
        self._continue()

    def close(self) -> None:
        """Break the reference cycle with the connection."""
        for handle in (self._turn, self._unmuting):
            if handle is not None:
                handle.cancel()
        del self._continue
